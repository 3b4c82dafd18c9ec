# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that look tables up, and the tables that they take."""

from jax_dynemb._src.files.program.frozen import frozen as frozen
from jax_dynemb._src.files.program.program import load_program as load_program
from jax_dynemb._src.files.program.program import program as program
