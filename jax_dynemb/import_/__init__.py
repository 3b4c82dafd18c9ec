# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Files of other programs into tables."""

from jax_dynemb.import_._dynamicemb import dynamicemb as dynamicemb
from jax_dynemb.import_._imported import Imported as Imported
from jax_dynemb.import_._safetensors import safetensors as safetensors
