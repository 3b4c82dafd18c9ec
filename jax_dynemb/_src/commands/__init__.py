# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Commands of ``python -m jax_dynemb``."""

from jax_dynemb._src.commands import bench as bench
from jax_dynemb._src.commands import convert as convert
from jax_dynemb._src.commands import inspect as inspect
from jax_dynemb._src.commands.console import console as console
