# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark, `python -m jax_dynemb bench`: see docs/performance.md."""
