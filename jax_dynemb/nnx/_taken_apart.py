# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Notices tables that change inside a plain ``jax.jit`` and never come out of it.

A Module is a pytree, so ``jax.jit`` takes it: it puts a copy together from tracers, and
what the function writes into the copy is lost, unless the function returns it. Whether
it does is known when the copy is dropped: it was read after its last change, or not.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from flax import nnx
from jax.core import Tracer


class _Copy:
    """What is known of one copy; it does not keep the copy alive.

    A copy is known by its first Variable: Flax puts several Modules around it.
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.is_unread = False


_managed = 0  # calls of jde.nnx.jit that run, which carries every change out itself


@contextlib.contextmanager
def managed() -> Iterator[None]:
    """Watch no copies in the meantime."""
    global _managed
    _managed += 1
    try:
        yield
    finally:
        _managed -= 1


_copies: dict[int, _Copy] = {}  # by the id of a Variable that is alive


def watch(module: Any) -> None:
    """Begins to watch a Module that JAX has put together, if it is of tracers."""
    variable = _first_variable(module)
    if _managed or variable is None or id(variable) in _copies:
        return
    if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(variable)):
        return
    _copies[id(variable)] = _Copy(type(module).__name__)
    weakref.finalize(variable, _dropped, id(variable)).atexit = False


def changed(module: Any) -> None:
    """Notes that tables of the Module changed."""
    if (copy := _copies.get(id(_first_variable(module)))) is not None:
        copy.is_unread = True


def read(module: Any) -> None:
    """Notes that the tables of the Module were taken out."""
    if (copy := _copies.get(id(_first_variable(module)))) is not None:
        copy.is_unread = False


def _first_variable(module: Any) -> nnx.Variable[Any] | None:
    tables = vars(module).get("tables")
    first = next(iter(tables.values()), None) if isinstance(tables, Mapping) else None
    return first if isinstance(first, nnx.Variable) else None


def _dropped(variable: int) -> None:
    copy = _copies.pop(variable)
    if copy.is_unread:
        warnings.warn(_LOST.format(kind=copy.kind), stacklevel=2)


_LOST = (
    "{kind}: tables changed in a copy of the module that jax.jit made of its argument, "
    "and the copy was dropped: rows that a lookup inserted, or an optimizer updated, "
    "are lost. Use jde.nnx.jit in place of jax.jit, or return the module from the "
    "function. To read without inserting: train=False, or model.eval()."
)
