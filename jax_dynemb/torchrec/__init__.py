# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's names over ``jde.Tables`` and ``jde.nnx``: jagged tensors, collections.

No kernel and no second kind of table: everything here is Python that turns TorchRec's
arguments into those of the core.
"""
