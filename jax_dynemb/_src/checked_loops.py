# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Loops inside a shard_map that checks over which axes each array varies.

There a loop must begin with the types that it ends with. JAX takes the results of
collectives to vary and those of kernels not to. So a carry may begin without axes that
its body adds. ``jax.shard_map`` checks unless it has ``check_vma=False``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def while_loop(
    condition: Callable[[T], jax.Array], body: Callable[[T], T], carry: T
) -> T:
    """Runs ``jax.lax.while_loop``; its body may add axes to the carry."""
    if _is_checked():
        body, carry = _with_types_of_end(body, carry)
    return jax.lax.while_loop(condition, body, carry)


def fori_loop(first: int, end: int, body: Callable[[Any, T], T], carry: T) -> T:
    """Runs ``jax.lax.fori_loop``; see ``while_loop``."""
    if not _is_checked():
        return jax.lax.fori_loop(first, end, body, carry)
    numbers = jax.numpy.arange(first, end)
    return scan(lambda c, n: (body(n, c), None), carry, numbers)[0]


def scan(
    body: Callable[[T, Any], tuple[T, Any]], carry: T, inputs: Any
) -> tuple[T, Any]:
    """Runs ``jax.lax.scan``; see ``while_loop``."""
    if not _is_checked():
        return jax.lax.scan(body, carry, inputs)
    one = jax.tree.map(lambda x: x[0], inputs)
    _, settled = _with_types_of_end(lambda c: body(c, one)[0], carry)

    def typed(carry: T, each: Any) -> tuple[T, Any]:
        carry, result = body(carry, each)
        return _with_axes_of(settled, carry), result

    return jax.lax.scan(typed, settled, inputs)


def _is_checked() -> bool:
    """Whether this is in a shard_map that checks over which axes arrays vary."""
    axes = jax.sharding.get_abstract_mesh().manual_axes
    return bool(axes) and bool(_axes(jax.lax.axis_index(axes)))


def _with_types_of_end(body: Callable[[T], T], carry: T) -> tuple[Callable[[T], T], T]:
    """Adds to body and carry the axes over which the results of the body vary."""
    before = None
    while before != (before := [_axes(x) for x in jax.tree.leaves(carry)]):
        carry = _with_axes_of(jax.eval_shape(body, carry), carry)

    return lambda again: _with_axes_of(carry, body(again)), carry


def _with_axes_of(types: T, tree: T) -> T:
    """Lets each array vary over the axes of another one, too."""

    def one(of: Any, x: Any) -> Any:
        missing = _axes(of) - _axes(x)
        return jax.lax.pcast(x, tuple(missing), to="varying") if missing else x

    return jax.tree.map(one, types, tree)


def _axes(x: Any) -> frozenset[str]:
    """Returns the axes of a mesh over which an array is known to vary."""
    kind = x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(x)
    return kind.manual_axis_type.varying
