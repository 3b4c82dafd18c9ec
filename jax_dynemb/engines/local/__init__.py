# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hash tables on one device."""

from jax_dynemb.engines.local._engine import LocalEngine as LocalEngine
