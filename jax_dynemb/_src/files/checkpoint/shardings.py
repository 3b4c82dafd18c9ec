# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""On which devices the arrays of a checkpoint come back.

Arrays beside tables on a mesh are on all of it. One that a program had committed to a
single device could not be in a program with these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from jax_dynemb._src.files.checkpoint.pieces import is_host
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.table import Tables


def placed(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode], tables: Tables | None
) -> dict[Path, Any]:
    """Returns the same leaves, each with the sharding that it is to come back with.

    Arrays that come back elsewhere become abstract, and abstract ones get a sharding.
    Tensor trains of ``tables`` are not among ``nodes``.
    """
    shardings, mesh = _of_tables(leaves, nodes), _mesh(nodes, tables)
    above = {node.arrays for node in nodes.values()}

    def one(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
            return leaf
        found = shardings.get(path) or leaf.sharding
        of_table = any(path[: len(arrays)] == arrays for arrays in above)
        if isinstance(leaf, jax.Array) and (of_table or mesh is None):
            return leaf
        if mesh is not None and not of_table:
            found = _on_all(mesh, leaf.sharding)
        elif leaf.sharding is not None:
            found = leaf.sharding
        found = found or SingleDeviceSharding(jax.local_devices()[0])
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=found)

    return {path: one(path, leaf) for path, leaf in leaves.items()}


def uncommitted(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode], tables: Tables | None
) -> dict[Path, Any]:
    """Returns the devices of arrays that come back without being committed to them.

    These are arrays beside tables, where no table is on a mesh. A program may use them
    with arrays on any devices, as it could before.
    """
    if _mesh(nodes, tables) is not None:
        return {}
    above = {node.arrays for node in nodes.values()}
    return {
        path: _device_of(leaf)
        for path, leaf in leaves.items()
        if _is_loose(leaf) and not any(path[: len(a)] == a for a in above)
    }


def released(array: jax.Array, device: Any) -> jax.Array:
    """Returns an array, which no other caller has, not committed to its device."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        words = released(jax.random.key_data(array), device)
        with jax.default_device(device):
            return jax.random.wrap_key_data(words, impl=jax.random.key_impl(array))
    on_host = np.asarray(array)
    if not is_host(device):
        array.delete()  # so that it is not there twice
    with jax.default_device(device):
        return jax.device_put(on_host)


def _is_loose(leaf: Any) -> bool:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.sharding is None
    return isinstance(leaf, jax.Array) and not leaf.committed


def _device_of(leaf: Any) -> Any:
    if leaf.sharding is None:
        return jax.local_devices()[0]
    return next(iter(leaf.sharding.device_set))


def _on_all(mesh: Any, given: Any) -> Any:
    """Returns the sharding of an array beside tables: as given, if of several."""
    if given is not None and len(given.device_set) > 1:
        return given
    kind = None
    if given is not None and given.memory_kind is not None:
        usual = next(iter(given.device_set)).default_memory().kind
        kind = None if given.memory_kind == usual else given.memory_kind
    return NamedSharding(mesh, PartitionSpec(), memory_kind=kind)


def _mesh(nodes: Mapping[Path, TableNode], tables: Tables | None) -> Any:
    """Returns the mesh of some tables; None if all are on one device."""
    colls = [*(node.coll for node in nodes.values()), tables]
    placements = (coll.placement for coll in colls if coll is not None)
    meshes = (each.mesh for each in placements if each is not None)
    return next((mesh for mesh in meshes if mesh is not None), None)


def _of_tables(
    leaves: Mapping[Path, Any], nodes: Mapping[Path, TableNode]
) -> dict[Path, Any]:
    """The shardings of tables on meshes, by the paths of their arrays."""
    shardings = {}
    for node in nodes.values():
        placement = node.coll.placement
        if placement is None or placement.mesh is None:
            continue
        specs = node.coll.partition_specs()[node.coll.state_name(node.name)]
        of_table = [
            NamedSharding(placement.mesh, spec) for spec in jax.tree.leaves(specs)
        ]
        shardings |= dict(zip(node.own(leaves), of_table, strict=True))
    return shardings
