# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A bar in the terminal for what takes minutes; nothing where there is no terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(
    what: str, total: int, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Shows rows that are done; yields the function that counts them."""
    # Here, because `import jax_dynemb` would take twice as long with it.
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    with Progress(console=console, disable=hidden) as progress:
        task = progress.add_task(what, total=total)
        yield lambda rows: progress.advance(task, rows)
