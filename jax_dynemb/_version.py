# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the version of the package; the build reads it from this file."""

__version__ = "0.1.0"
