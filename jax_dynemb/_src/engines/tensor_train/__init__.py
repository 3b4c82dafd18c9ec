# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor-train tables in a collection: cores on one device, or a copy on each."""

from jax_dynemb._src.engines.tensor_train.engine import TTEngine as TTEngine
from jax_dynemb._src.engines.tensor_train.training import CoreGradients as CoreGradients
from jax_dynemb._src.engines.tensor_train.training import TTResiduals as TTResiduals
