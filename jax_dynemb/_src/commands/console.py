# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where commands print: a terminal as wide as it is, a pipe as wide as needed."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_WIDE = 1000  # characters; a table takes what its columns need


def console() -> Console:
    """Makes a console for stdout; nothing is cut off where no terminal reads it."""
    said = "COLUMNS" in os.environ
    return Console(width=None if said or sys.stdout.isatty() else _WIDE)
