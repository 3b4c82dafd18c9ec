# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The bridge: any row-local optax transformation as the optimizer of a table.

The transformation itself runs unmodified, on the touched rows only. Its state is
taken apart leaf by leaf: leaves with one entry per row live in the table beside the
rows, all others (step counts, schedules) are stored once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_dynemb.optim._base import StateSpec
from jax_dynemb.optim._row_local import check_row_local, optax_rules, refuse

# Two row counts on both sides of every size at which a transformation is known to
# change its state (factored second moments appear at 128 rows).
_ROW_COUNTS = (3, 257)
_CONSTANT = (
    "Use a transformation whose state for a row starts as a constant: sgd, momentum, "
    "adagrad, adam(w), rmsprop, lion"
)


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """One leaf of the optax state: ``name`` is None when it is stored once."""

    name: str | None
    shape: tuple[int, ...]  # of one row, or of the whole leaf
    dtype: Any
    initial: float | None  # per-row leaves start as this constant


@dataclasses.dataclass(frozen=True)
class OptaxOptimizer:
    """A row-local optax transformation as the optimizer of a table.

    Given as ``TableConfig(optimizer=optax.adamw(1e-3))``, which wraps it. The
    meaning is the lazy one: the rows a batch touches are updated with the sum of
    their gradients, untouched rows keep value and state, and a step count inside
    the transformation counts the table's updates, not the row's.

    Attributes:
      tx: the transformation; hashable, like every optax transformation.
    """

    tx: optax.GradientTransformation

    def states(self, dim: int) -> dict[str, StateSpec]:
        """Names the per-row states: ``"mu"``, ``"nu"``, ``"trace"``, ...

        Args:
          dim: columns of a row.

        Returns:
          For each per-row leaf its shape per row, ``(dim,)`` or ``()``, and its
          initial value.

        Raises:
          ValueError: the transformation is not row-local; the sentence names the
            part that is not and what to use instead.
        """
        refuse(self.tx, functools.partial(_no_place, dim=dim), _CONSTANT)
        check_row_local(self.tx, dim)
        shapes = {}
        for leaf in _leaves(self.tx, dim):
            if leaf.name is not None:
                shape = leaf.shape if leaf.shape == (dim,) else ()
                shapes[leaf.name] = StateSpec(shape, leaf.initial)
        return shapes

    def extra(self, dim: int = 8) -> tuple[jax.Array, ...]:
        """Returns the initial values of the leaves that are stored once."""
        with _constants():
            state = jax.tree.leaves(self.tx.init(jnp.zeros((2, dim))))
            pairs = zip(_leaves(self.tx, dim), state, strict=True)
            return tuple(jnp.asarray(x) for leaf, x in pairs if leaf.name is None)

    def apply(
        self,
        rows: jax.Array,
        grads: jax.Array,
        states: dict[str, jax.Array],
        extra: tuple[jax.Array, ...],
    ) -> tuple[jax.Array, dict[str, jax.Array], tuple[jax.Array, ...]]:
        """Updates distinct rows once.

        Args:
          rows: float32[n, dim], the rows before the update.
          grads: float32[n, dim], their summed gradients.
          states: per-row states by name, float32[n, dim] or float32[n].
          extra: the leaves stored once, as ``extra`` made them.

        Returns:
          New rows, new states and new extra leaves, in the same shapes.
        """
        leaves = _leaves(self.tx, rows.shape[1])
        with optax_rules():
            tree = jax.tree.structure(jax.eval_shape(self.tx.init, rows))
            state = jax.tree.unflatten(tree, _join(leaves, len(rows), states, extra))
            updates, state = self.tx.update(grads, state, rows)
            new_rows = optax.apply_updates(rows, updates)
        states, extra = _part(leaves, jax.tree.leaves(state))
        return jnp.asarray(new_rows, rows.dtype), states, extra


def as_optimizer(optimizer: Any) -> Any:
    """Wraps an optax transformation; every other optimizer is passed through."""
    if isinstance(optimizer, optax.MultiSteps):
        optimizer = optimizer.gradient_transformation()
    if isinstance(optimizer, optax.GradientTransformation):
        return OptaxOptimizer(optimizer)
    return optimizer


class _NoPlace(ValueError):
    """A leaf of the optax state that is neither per row nor stored once."""


def _no_place(tx: optax.GradientTransformation, dim: int) -> str | None:
    try:
        _leaves(tx, dim)
    except _NoPlace as error:
        return str(error)
    except Exception as error:  # whatever this transformation's init raises
        return f"it has no state for rows ({type(error).__name__}: {error})"
    return None


@functools.lru_cache(maxsize=256)
def _leaves(tx: optax.GradientTransformation, dim: int) -> tuple[_Leaf, ...]:
    """Sorts the leaves of ``tx.init`` into per-row and stored-once ones."""
    with _constants():
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


def _leaf(dim, names, few, many, one, other) -> _Leaf:
    (path, a), (_, b) = few, many
    if a.shape == b.shape:
        return _Leaf(None, a.shape, a.dtype, None)
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
    return _Leaf(unique, row, a.dtype, initial.pop())


def _name_of(path) -> str:
    """The field's name where optax gives one: ``(0, .mu)`` becomes ``mu``."""
    fields = [key.name for key in path if isinstance(key, jax.tree_util.GetAttrKey)]
    keys = [str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey)]
    return (fields or keys or ["state"])[-1]


def _join(leaves, rows: int, states, extra) -> list[jax.Array]:
    once = iter(extra)
    return [
        next(once)
        if leaf.name is None
        else states[leaf.name].reshape((rows, *leaf.shape)).astype(leaf.dtype)
        for leaf in leaves
    ]


def _part(leaves, values):
    states, extra = {}, []
    for leaf, x in zip(leaves, values, strict=True):
        if leaf.name is None:
            extra.append(jnp.asarray(x, leaf.dtype))
        else:
            shape = (
                x.shape if len(leaf.shape) == 1 and leaf.shape[0] > 1 else x.shape[:1]
            )
            states[leaf.name] = x.reshape(shape).astype(jnp.float32)
    return states, tuple(extra)


def _two_tables(dim: int):
    draw = np.random.default_rng(0)
    return [jnp.asarray(draw.normal(size=(5, dim)), jnp.float32) for _ in range(2)]


@contextlib.contextmanager
def _constants():
    """Evaluates at once, also while a jit is being traced."""
    with jax.ensure_compile_time_eval(), optax_rules():
        yield
