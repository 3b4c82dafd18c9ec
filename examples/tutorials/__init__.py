# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Scripts of docs/tutorials: data with a planted truth, a model, a result."""
