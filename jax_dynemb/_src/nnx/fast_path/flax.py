# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""All private attributes of Flax that this package uses, each with a public fallback.

Flax may move any of them. ``tests/nnx/test_flax_internals.py`` exercises each one with
the installed version and names what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from flax import nnx
from flax.errors import TraceContextError

Variables = Sequence[nnx.Variable[Any]]

# Slots of a Variable: reading and writing them skips the checks and copies of its
# public methods.
_raw_value: Any = vars(nnx.Variable).get("_raw_value")
_metadata: Any = vars(nnx.Variable).get("_var_metadata")
_Progress: Any = type(vars(nnx.Module()).get("_pytree__state"))
_graphlib: Any = getattr(nnx, "graphlib", nnx.graph)

# A class derived from Variable needs this slot before weak references may point to it.
WEAKREF_SLOT = () if hasattr(nnx.Variable, "__weakref__") else ("__weakref__",)


def assign(variables: Variables, values: Sequence[Any]) -> None:
    """Sets the raw values of Variables that are known to be writable."""
    if hasattr(_raw_value, "__set__"):
        for variable, value in zip(variables, values, strict=True):
            _raw_value.__set__(variable, value)
        return
    for variable, value in zip(variables, values, strict=True):
        variable.set_raw_value(value)


def raw_values(variables: Variables) -> list[Any]:
    """Returns the raw values of Variables."""
    if hasattr(_raw_value, "__get__"):
        return [*map(_raw_value.__get__, variables)]
    return [variable.get_raw_value() for variable in variables]


def metadata_of(variable: nnx.Variable[Any]) -> dict[str, Any]:
    """Returns the metadata itself where possible; do not change it."""
    if hasattr(_metadata, "__get__"):
        return _metadata.__get__(variable)
    return variable.get_metadata()


def progress_of(x: Any) -> tuple[bool, bool] | None:
    """Returns how far a Module is made, from the object that keeps it; None of others.

    That object is a node of pytrees, which takes longer to flatten.
    """
    if type(x) is not _Progress:
        return None
    return x.initializing, x.is_setup


def writable(variable: nnx.Variable[Any]) -> bool:
    """Returns whether nnx lets the running code write to a Variable."""
    if isinstance(known := getattr(variable, "_can_update", None), bool):
        return known
    try:
        variable.set_value(variable.get_value())
    except TraceContextError:
        return False
    return True


def in_cached_partial() -> bool:
    """Returns whether ``nnx.cached_partial``, whose cache is ``nnx.jit``'s, calls."""
    context = getattr(_graphlib, "GRAPH_CONTEXT", None)
    return getattr(context, "tmp_static_cache", None) is not None


class ObservedModule(nnx.Module):
    """A Module that observes how JAX and nnx build it and flatten it."""

    def _on_built(self) -> None:
        """Runs after JAX has built a copy of this Module from leaves."""

    def _on_flattened(self) -> None:
        """Runs before JAX or nnx reads the values of this Module."""

    @classmethod
    def _pytree__unflatten(cls, *args: Any) -> Self:
        module = super()._pytree__unflatten(*args)
        module._on_built()
        return module

    def _pytree__flatten(self) -> Any:
        self._on_flattened()
        return super()._pytree__flatten()

    def _pytree__flatten_with_paths(self) -> Any:
        self._on_flattened()
        return super()._pytree__flatten_with_paths()

    def _graph_node_flatten(self) -> Any:
        self._on_flattened()
        return super()._graph_node_flatten()
