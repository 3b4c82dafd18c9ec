# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How far something is that takes minutes: a bar in a terminal, lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

_EVERY = 10.0  # seconds between lines


@contextlib.contextmanager
def progress_bar(
    what: str, total: int, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Shows what is done of ``total``, in logs every ten seconds; yields a counter."""
    # Here, because `import jax_dynemb` would take twice as long with it.
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    lines = _Lines(what, total) if not quiet and not console.is_terminal else None
    with Progress(console=console, disable=quiet or lines is not None) as progress:
        task = progress.add_task(what, total=total)
        yield lines or (lambda some: progress.advance(task, some))


class _Lines:
    """Prints lines, the first when something has taken a while."""

    def __init__(self, what: str, total: int):
        self._what, self._total, self._done = what, total, 0
        self._next = time.monotonic() + _EVERY

    def __call__(self, some: int) -> None:
        self._done += some
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            part = self._done / max(1, self._total)
            print(f"{self._what}: {part:.0%}", file=sys.stderr, flush=True)
