# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows as the bytes that FBGEMM's inference kernels read, and back."""
