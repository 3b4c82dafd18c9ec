# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Assertions for your own train step: tables stay in place, nothing recompiles."""

from jax_dynemb._src.testing import assert_in_place as assert_in_place
from jax_dynemb._src.testing import assert_no_recompilation as assert_no_recompilation
