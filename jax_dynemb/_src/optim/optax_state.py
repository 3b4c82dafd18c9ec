# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Splits the state of an optax transformation by leaf: per row, or stored once."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.optim.row_local import optax_rules, refuse

# Two row counts on both sides of every size at which a transformation is known to
# change its state (factored second moments appear at 128 rows).
_ROW_COUNTS = (3, 257)
_CONSTANT = (
    "Use a transformation whose state for a row starts as a constant: sgd, momentum, "
    "adagrad, adam(w), rmsprop, lion"
)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf of an optax state."""

    # As the transformation calls it; None when the leaf is stored once.
    name: str | None
    shape: tuple[int, ...]  # of one row, or of the whole leaf when it is stored once
    dtype: Any  # what the transformation computes with
    initial: float | None  # what a per-row leaf holds when the row is new


class _NoPlace(ValueError):
    """A leaf that is neither one entry per row nor stored once."""


def check_state(tx: optax.GradientTransformation, dim: int) -> None:
    """Raises ValueError, naming part and leaf, if a leaf has no place in a table."""
    refuse(tx, functools.partial(_no_place, dim=dim), _CONSTANT)


@functools.lru_cache(maxsize=256)
def state_leaves(tx: optax.GradientTransformation, dim: int) -> tuple[Leaf, ...]:
    """Sorts the leaves of ``tx.init`` into per-row and stored-once ones."""
    with at_once():
        shapes = [
            jax.eval_shape(tx.init, jax.ShapeDtypeStruct((n, dim), jnp.float32))
            for n in _ROW_COUNTS
        ]
        few, many = (jax.tree_util.tree_leaves_with_path(s) for s in shapes)
        if len(few) != len(many):
            raise _NoPlace("its state grows with the rows")
        values = [jax.tree.leaves(tx.init(rows)) for rows in _two_tables(dim)]
    names: dict[str, int] = {}
    return tuple(
        _leaf(dim, names, *item) for item in zip(few, many, *values, strict=True)
    )


def join_state(
    leaves: Sequence[Leaf],
    rows: int,
    states: Mapping[str, jax.Array],
    extra: Sequence[jax.Array],
) -> list[jax.Array]:
    """Puts the leaves for ``rows`` rows together as the transformation has them."""
    once = iter(extra)
    return [
        next(once)
        if leaf.name is None
        else states[leaf.name].reshape((rows, *leaf.shape)).astype(leaf.dtype)
        for leaf in leaves
    ]


def part_state(
    leaves: Sequence[Leaf], values: Sequence[jax.Array], dim: int
) -> tuple[dict[str, jax.Array], tuple[jax.Array, ...]]:
    """Takes them apart again, as the table stores them."""
    states, extra = {}, []
    for leaf, x in zip(leaves, values, strict=True):
        if leaf.name is None:
            extra.append(jnp.asarray(x, leaf.dtype))
        else:
            shape = (x.shape[0], *row_shape(leaf, dim))
            states[leaf.name] = x.reshape(shape).astype(jnp.float32)
    return states, tuple(extra)


def row_shape(leaf: Leaf, dim: int) -> tuple[int, ...]:
    """``(dim,)``, or ``()`` for one number a row."""
    return (dim,) if leaf.shape == (dim,) else ()


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Evaluates optax code at once, also while a jit is being traced."""
    with jax.ensure_compile_time_eval(), optax_rules():
        yield


def _no_place(tx: optax.GradientTransformation, dim: int) -> str | None:
    try:
        leaves = state_leaves(tx, dim)
    except _NoPlace as error:
        return str(error)
    except Exception as error:  # whatever this transformation's init raises
        return f"it has no state for rows ({type(error).__name__}: {error})"
    count = sum(leaf.name is not None for leaf in leaves)
    most = _ffi.constants()["max_states"]  # arrays beside the rows in a kernel
    if count > most:
        return f"it keeps {count} numbers for each number of a row, more than {most}"
    return None


def _leaf(dim, names, few, many, one, other) -> Leaf:
    (path, a), (_, b) = few, many
    if a.shape == b.shape:
        return Leaf(None, a.shape, a.dtype, None)
    counts, row, name = a.shape[:1] + b.shape[:1], a.shape[1:], _name_of(path)
    per_row = counts == _ROW_COUNTS and row == b.shape[1:]
    if not per_row or not (row == (dim,) or np.prod(row, dtype=int) == 1):
        raise _NoPlace(f"its state {name!r} is not one entry per row")
    if not jnp.issubdtype(a.dtype, jnp.floating):
        raise _NoPlace(f"its state {name!r} is {a.dtype}, not a float")
    initial = {float(v) for x in (one, other) for v in np.unique(np.asarray(x, "f4"))}
    if len(initial) != 1:
        raise _NoPlace(f"its state {name!r} starts as a function of the row")
    names[name] = names.get(name, 0) + 1
    unique = name if names[name] == 1 else f"{name}_{names[name]}"
    return Leaf(unique, row, a.dtype, initial.pop())


def _name_of(path) -> str:
    """The field's name where optax gives one: ``(0, .mu)`` becomes ``mu``."""
    fields = [key.name for key in path if isinstance(key, jax.tree_util.GetAttrKey)]
    keys = [str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey)]
    return (fields or keys or ["state"])[-1]


def _two_tables(dim: int) -> list[jax.Array]:
    draw = np.random.default_rng(0)
    return [jnp.asarray(draw.normal(size=(5, dim)), jnp.float32) for _ in range(2)]
