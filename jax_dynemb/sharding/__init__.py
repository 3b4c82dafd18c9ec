# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables on a mesh: who owns which row, and how ids, rows and gradients travel."""
