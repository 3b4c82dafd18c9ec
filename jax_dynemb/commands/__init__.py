# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What ``python -m jax_dynemb`` does with files."""

from jax_dynemb.commands import convert as convert
from jax_dynemb.commands import inspect as inspect
