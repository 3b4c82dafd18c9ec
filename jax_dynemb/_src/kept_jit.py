# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Programs of tables that are kept as long as they are among those used last.

``jax.jit`` with static arguments keeps a program for every value that it has seen, as
long as the process runs. Programs of tables take megabytes, and a process may make
thousands of tables.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

_MOST = 128  # values of static arguments, by function: two large collections of tables


class _KeptJit:
    """Holds a function, compiled for the values of its static arguments."""

    def __init__(
        self,
        function: Callable[..., Any],
        static: tuple[int, ...],
        donated: tuple[int, ...],
        inline: bool,
    ):
        functools.update_wrapper(self, function)
        self._function, self._static = function, static
        self._donated, self._inline = donated, inline
        self._kept = functools.lru_cache(_MOST)(self._jitted)
        self._programs: weakref.WeakSet[Any] = weakref.WeakSet()

    def __call__(self, *args: Any) -> Any:
        program, rest = self._split(args)
        return program(*rest)

    def lower(self, *args: Any) -> Any:
        """Lowers the function for arguments, or their types."""
        program, rest = self._split(args)
        return program.lower(*rest)

    def prepare(self, *args: Any) -> None:
        """Compiles ahead of the first call with such arguments, or their types."""
        self.lower(*args).compile()

    def _cache_size(self) -> int:
        """Counts the programs that are kept."""
        return sum(program._cache_size() for program in self._programs)

    def _split(self, args: Sequence[Any]) -> tuple[Any, list[Any]]:
        values = tuple(args[place] for place in self._static)
        rest = [x for place, x in enumerate(args) if place not in self._static]
        return self._kept(values, len(args)), rest

    def _jitted(self, values: tuple[Any, ...], count: int) -> Any:
        static = dict(zip(self._static, values, strict=True))
        traced = [place for place in range(count) if place not in static]

        @functools.wraps(self._function)
        def function(*rest: Any) -> Any:
            given = dict(zip(traced, rest, strict=True)) | static
            return self._function(*(given[place] for place in range(count)))

        # jit would read the names of the arguments from the function that is wrapped.
        del function.__wrapped__
        donated = tuple(traced.index(place) for place in self._donated)
        program = jax.jit(function, donate_argnums=donated, inline=self._inline)
        self._programs.add(program)
        return program


def kept_jit(
    *static: int, donated: tuple[int, ...] = (), inline: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Makes a decorator like ``jax.jit``, whose programs are dropped in time.

    All arguments are positional; ``static`` ones are values with a hash. Inside a
    program it costs a look in a dict.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        return _KeptJit(function, static, donated, inline)

    return decorate
