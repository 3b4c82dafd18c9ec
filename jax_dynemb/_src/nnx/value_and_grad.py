# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""value_and_grad for models with tables."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jax_dynemb._src.nnx.fast_path import graph_nodes, is_graph_node, iter_variables
from jax_dynemb._src.nnx.grads import Grads, LookupGradients
from jax_dynemb._src.nnx.table_module import TableModule
from jax_dynemb._src.nnx.tape import ModulePath, Prefetch, Rows, Tape, recording
from jax_dynemb._src.nnx.variable import Table
from jax_dynemb._src.table import Tables

Argnum = int | nnx.DiffState

# Differentiating Params only needs nnx's graph mode, whatever its default is set to.
_GRAPH_MODE = {
    name: True
    for name in ("graph", "graph_updates")
    if name in inspect.signature(nnx.value_and_grad).parameters
}


def value_and_grad(
    f: Callable[..., Any] | None = None,
    *,
    argnums: Argnum | tuple[Argnum, ...] = 0,
    has_aux: bool = False,
    **options: Any,
) -> Callable[..., Any]:
    """Differentiates as ``nnx.value_and_grad``, looked-up rows included.

    The loss is traced twice: once abstractly, on a copy of the modules, to learn the
    shape of every lookup, then for real. Lookups insert unseen ids once.

    Args:
      f: the loss; its model must be an argument, not closed over.
      argnums: which arguments to differentiate, as in ``nnx.value_and_grad``. Tables
        of other arguments are looked up but get no gradient.
      has_aux: whether the loss returns ``(loss, aux)``.
      options: passed on to ``nnx.value_and_grad``.

    Returns:
      A function with the arguments of ``f`` returning ``(loss, grads)``, or
      ``((loss, aux), grads)``. ``grads`` is a ``jde.nnx.Grads``, or a tuple of them
      when ``argnums`` is one. Without tables in any argument it returns exactly what
      ``nnx.value_and_grad`` does.

    Raises:
      ValueError: a lookup inside jit, scan, cond, vmap or remat within the loss.

    Example:
      >>> loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)  # doctest: +SKIP
      >>> optimizer.update(model, grads)  # doctest: +SKIP
    """
    if f is None:
        return functools.partial(
            value_and_grad, argnums=argnums, has_aux=has_aux, **options
        )

    @functools.wraps(f)
    def with_rows(*args, **kwargs):
        variables = iter_variables((args, kwargs))
        if not any(isinstance(variable, Table) for variable in variables):
            plain = nnx.value_and_grad(f, argnums=argnums, has_aux=has_aux, **options)
            return plain(*args, **kwargs)
        args, kwargs = _positional(f, args, kwargs)
        several = argnums if isinstance(argnums, tuple | list) else (argnums,)
        indices = tuple(map(_index, several))
        _check_filters(args, several)
        tapped = _Tapped(f, indices, has_aux)
        taps = tapped.zero_taps(args, kwargs)
        shifted = (0, *map(_shift, several))
        gradient = nnx.value_and_grad(
            tapped, argnums=shifted, has_aux=True, **{**_GRAPH_MODE, **options}
        )
        (loss, more), (d_taps, *dense) = gradient(taps, kwargs, *args)
        aux, residuals, prefetches = more
        for prefetch in prefetches:
            _end(prefetch, args, d_taps)
        rows = list(zip(tapped.lookups, residuals, d_taps, strict=True))
        grads = [
            Grads(state, _rows_of(index, rows))
            for index, state in zip(indices, dense, strict=True)
        ]
        out = (loss, aux) if has_aux else loss
        return out, tuple(grads) if isinstance(argnums, tuple | list) else grads[0]

    return with_rows


class _Tapped:
    """The loss as a function of its taps first, then of its own arguments."""

    lookups: list[tuple[ModulePath, Tables]]  # of the last call; holds no tracers

    def __init__(self, f: Callable[..., Any], indices: tuple[int, ...], has_aux: bool):
        self._f, self._indices, self._has_aux = f, indices, has_aux
        self._last: frozenset[int] = frozenset()

    def __call__(self, taps: list[Rows], kwargs: dict[str, Any], *args: Any):
        tape, out = self._record(args, kwargs, taps)
        loss, aux = out if self._has_aux else (out, None)
        residuals = [lookup.residual for lookup in tape.lookups]
        return loss, (aux, residuals, list(tape.prefetches.values()))

    def zero_taps(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Rows]:
        """Runs the loss abstractly, on copies, and returns a zero for every row."""

        def shapes():
            copied = _copy((args, kwargs))
            tape, _ = self._record(*copied, taps=None)
            last = {lookup.key: n for n, lookup in enumerate(tape.lookups)}
            self._last = frozenset(last.values())
            return [lookup.rows for lookup in tape.lookups]

        # Nothing is an argument here: what the loss may branch on stays concrete.
        abstract = jax.eval_shape(shapes)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract)

    def _record(self, args, kwargs, taps) -> tuple[Tape, Any]:
        with recording(Tape(_paths(args, self._indices), taps, self._last)) as tape:
            out = self._f(*args, **kwargs)
        self.lookups = [(lookup.path, lookup.tables) for lookup in tape.lookups]
        return tape, out


def _end(prefetch: Prefetch, args: tuple[Any, ...], d_taps: list[Rows]) -> None:
    """Waits for the rows of a prefetch, behind the gradients of a lookup's rows."""
    index, path = prefetch.path
    module = dict(nnx.iter_graph(args[index]))[path]
    state, d_rows = prefetch.begun.end(module._state(), d_taps[prefetch.lookup])
    module._set_state(state)
    d_taps[prefetch.lookup] = d_rows


def _positional(f, args, kwargs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Makes keyword arguments positional where ``f`` allows, as argnums counts them."""
    try:
        bound = inspect.signature(f).bind(*args, **kwargs)
    except (TypeError, ValueError):  # no signature, or a call that f will refuse itself
        return args, kwargs
    return bound.args, bound.kwargs


def _paths(args: tuple[Any, ...], indices: tuple[int, ...]) -> dict[int, ModulePath]:
    paths: dict[int, ModulePath] = {}
    for index in indices:
        for path, node in nnx.iter_graph(args[index]):
            if isinstance(node, TableModule):
                paths.setdefault(id(node), (index, path))
    return paths


def _copy(tree: Any) -> Any:
    """New modules and Variables with the same arrays; sharing is kept."""
    copies = iter(nnx.clone(graph_nodes(tree)))
    return jax.tree.map(
        lambda x: next(copies) if is_graph_node(x) else x, tree, is_leaf=is_graph_node
    )


def _rows_of(index: int, rows) -> tuple[LookupGradients, ...]:
    return tuple(
        LookupGradients(path, tables, residual, d_rows)
        for ((argument, path), tables), residual, d_rows in rows
        if argument == index
    )


def _check_filters(args: tuple[Any, ...], several: Iterable[Argnum]) -> None:
    for argnum in several:
        if not isinstance(argnum, nnx.DiffState):
            continue
        tables = nnx.state(args[argnum.argnum], nnx.All(argnum.filter, Table))
        if jax.tree.leaves(tables):
            raise ValueError(
                f"DiffState({argnum.argnum}, {argnum.filter!r}) takes in jde.nnx.Table "
                "Variables, which are no arrays to differentiate. Write "
                "nnx.DiffState(..., nnx.Param): row gradients come by themselves, as "
                "grads.rows."
            )


def _index(argnum: Argnum) -> int:
    return argnum.argnum if isinstance(argnum, nnx.DiffState) else argnum


def _shift(argnum: Argnum) -> Argnum:
    """Counts the two arguments that _Tapped puts in front."""
    if isinstance(argnum, nnx.DiffState):
        return dataclasses.replace(argnum, argnum=argnum.argnum + 2)
    return argnum + 2
