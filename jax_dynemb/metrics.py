# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of clicks and ranked lists as pytrees: ``empty``, ``merge``, ``compute``.

A metric of a batch comes from ``from_model_output`` and is merged into a running one,
all inside ``jax.jit`` or ``jax.lax.scan``. Sums are pairs of float32, so that a billion
examples add up without float64.
"""

from jax_dynemb._src.metrics import AUC as AUC
from jax_dynemb._src.metrics import CTR as CTR
from jax_dynemb._src.metrics import MRR as MRR
from jax_dynemb._src.metrics import NDCG as NDCG
from jax_dynemb._src.metrics import NE as NE
from jax_dynemb._src.metrics import Calibration as Calibration
from jax_dynemb._src.metrics import LogLoss as LogLoss
from jax_dynemb._src.metrics import RecallAtK as RecallAtK
from jax_dynemb._src.metrics import Windowed as Windowed
