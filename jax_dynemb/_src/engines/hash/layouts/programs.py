# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One program for equal calls outside of jit.

``jax.jit`` compiles a function object once. A call on a mesh runs a closure that it has
just made. So the program is kept by what decides it: the code of the closure, the
values that it has captured, and its specs. Shapes and dtypes are left to ``jax.jit``.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Hashable
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec

# Of all collections, on meshes and on one device; those used longest ago are dropped.
_MOST_PROGRAMS = 256
_MOST_ALONE = 128


@dataclasses.dataclass(frozen=True)
class _Mapped:
    """Describes a function under shard_map; equal ones compute the same.

    Attributes:
      key: what decides the results, besides the mesh.
      mesh: the devices; None: one device, and no shard_map.
      function: what each device runs.
      specs: of the arguments and of the results.
    """

    key: Hashable
    mesh: Mesh | AbstractMesh | None
    function: Callable[..., Any] = dataclasses.field(compare=False)
    specs: tuple[Any, Any] = dataclasses.field(compare=False)

    def compiled(self) -> Callable[..., Any]:
        """Returns a new function that is compiled once for each shape."""
        if self.mesh is None:  # inside a program the operations are the caller's
            return jax.jit(self.function, inline=True)
        # As one program: outside of jit a shard_map compiles each of its operations.
        return jax.jit(
            jax.shard_map(
                self.function,
                mesh=self.mesh,
                in_specs=self.specs[0],
                out_specs=self.specs[1],
                check_vma=False,
            )
        )


def program(
    function: Callable[..., Any],
    mesh: Mesh | AbstractMesh | None,
    in_specs: Any,
    out_specs: Any,
) -> Callable[..., Any]:
    """Returns the function, run once a shard; the same object for equal functions.

    What is kept holds no array. A function that captured one, or something else
    without a hash, gets a program of its own.

    Args:
      function: may be a closure. What it captured must be values, and never change.
      mesh: the devices; None: one device.
      in_specs: of the arguments.
      out_specs: of the results.
    """
    leaves, tree = jax.tree.flatten(
        (in_specs, out_specs), is_leaf=lambda x: isinstance(x, PartitionSpec)
    )
    key = (_identity(function), tuple(leaves), tree)
    mapped = _Mapped(key, mesh, function, (in_specs, out_specs))
    try:
        hash(key)
    except TypeError:
        return mapped.compiled()
    return (_kept_alone if mesh is None else _kept)(mapped)


@functools.lru_cache(_MOST_PROGRAMS)
def _kept(mapped: _Mapped) -> Callable[..., Any]:
    return mapped.compiled()


@functools.lru_cache(_MOST_ALONE)
def _kept_alone(mapped: _Mapped) -> Callable[..., Any]:
    return mapped.compiled()


def _identity(value: Any) -> Any:
    """Returns what is equal for values that a program cannot tell apart."""
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        defaults = (value.__defaults__, value.__kwdefaults__)
        return value.__module__, value.__code__, _identity((*cells, *defaults))
    if isinstance(value, functools.partial):
        return _identity((value.func, value.args, value.keywords))
    if isinstance(value, dict):
        return dict, tuple((k, _identity(x)) for k, x in value.items())
    if isinstance(value, set):
        return set, frozenset(value)
    if type(value) in (tuple, list):
        return type(value), tuple(map(_identity, value))
    return type(value), value
