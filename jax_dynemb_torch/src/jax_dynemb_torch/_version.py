# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The version: the only place that states it (the build reads this file)."""

__version__ = "0.1.0"
