# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sums over groups of rows, in order of position, with the kernels of an update.

Those sum the gradients of each row of a table. Here the rows are numbered groups, and
their sums are written to an array. So sums of a batch are as deterministic, and as
indifferent to skew, as an update.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.call_batches import call_batches
from jax_dynemb._src.ops.layout import one_row_each
from jax_dynemb._src.ops.residual import FeatureGradient
from jax_dynemb._src.ops.row_views import RowBuffers, RowViews, waves
from jax_dynemb._src.ops.update_rows import add_gradients, gradient_attribute
from jax_dynemb._src.spec import TableSpec
from jax_dynemb._src.table_sizes import buckets_for


class PeerSums(NamedTuple):
    """Names GPUs of one host that get sums.

    Attributes:
      devices: ids, groups of ``shards`` side by side.
      shards: of a group.
      rank: of this device among them.
      order: int32[n], the positions of all features in the order of their slots; or
        None. It saves the sort, and sums are the same.
    """

    devices: tuple[int, ...]
    shards: int
    rank: Int32[Array, ""]
    order: Int32[Array, " n"] | None = None


def sum_rows(
    tables: Sequence[TableSpec],
    groups: Sequence[int],
    features: Sequence[FeatureGradient],
    views: RowViews = (),
    order: tuple[jax.Array, jax.Array] | None = None,
    dtype: Any = jnp.float32,
    peers: PeerSums | None = None,
) -> list[jax.Array]:
    """Sums the rows of each group: dtype[groups, dim], or the array of its view.

    Only name and dim of the tables are used. Slots of the features are numbers of
    groups, or negative; ids are not read. The sum of a group without rows is undefined.
    ``order`` of one feature, where it is known, saves a GPU the sort, and may change
    the order of sums: int32[n], its slots ascending, negative ones last; int32[n],
    their positions, ascending for equal slots. ``dtype``, of sums with their own array,
    is float32, or has 16 bits, rounded to once. With ``peers``, where ``is_one_call``,
    the groups of each shard go there, and the result is what this one gets from all.
    """
    views, arrays = views or [None] * len(tables), RowBuffers()
    scratch = [
        dataclasses.replace(t, num_buckets=buckets_for(max(1, size)), shards=1)
        for t, size in zip(tables, groups, strict=True)
    ]
    own: dict[int, jax.Array] = {}
    wave_of = waves([t.name for t in tables], views)
    for some, mine in call_batches(
        scratch, [f.layout.table for f in features], wave_of
    ):
        used = [scratch[t] for t in some]
        of_batch = [features[f] for f in mine]
        sizes = [groups[t] for t in some]
        rows = _sum_fields(used, sizes, [views[t] for t in some], arrays)
        call = _start(used, of_batch, rows, order is not None, peers)
        there: set[int] = set()
        new = []
        for t in some:
            where = views[t]
            if where is None:
                call.result((groups[t], scratch[t].dim), dtype)
                new.append(t)
            elif arrays.add_result(call, there, where):
                new.append(t)
        add_gradients(call, of_batch, with_ids=False)
        call.operand(*(order or ()))
        if peers is not None:
            call.operand(peers.rank.reshape(1), peers.order)
        for t, array in zip(new, call.run(), strict=True):
            where = views[t]
            if where is None:
                own[t] = array
            else:
                arrays.keep(where, array)
    return [
        own[t] if where is None else arrays.whole(where)
        for t, where in enumerate(views)
    ]


def is_one_call(tables: Sequence[TableSpec], features: Sequence[str]) -> bool:
    """Whether one call sums all of them; ``features`` are the names of their tables."""
    return len(list(call_batches(tables, features))) == 1


def _sum_fields(
    tables: Sequence[TableSpec],
    groups: Sequence[int],
    views: RowViews,
    arrays: RowBuffers,
) -> list[dict[str, int]]:
    return [
        {"groups": size, "dim": table.dim} | where
        for table, size, where in zip(tables, groups, arrays.fields(views), strict=True)
    ]


def _start(
    tables: Sequence[TableSpec],
    features: Sequence[FeatureGradient],
    rows: Sequence[dict[str, int]],
    ordered: bool,
    peers: PeerSums | None,
) -> Call:
    fields = _ffi.constants()["sums_fields"]
    sums = np.array([row[field] for row in rows for field in fields], dtype=np.int64)
    attribute = gradient_attribute(tables, features)
    num_ids = [f.layout.num_ids for f in features]
    of_call: dict[str, Any] = {"features": attribute, "sums": sums}
    if peers is None:
        return Call("sum_rows", tables, num_ids, **of_call, ordered=np.int64(ordered))
    of_call["devices"] = np.array(peers.devices, np.int64)
    of_call["shards"] = np.int64(peers.shards)
    of_call["ordered"] = np.int64(peers.order is not None)
    return Call("peer_sums", tables, num_ids, **of_call)


def sum_bags(table: TableSpec, rows: jax.Array, offsets: jax.Array) -> jax.Array:
    """float32[bags, dim]: sums of rows[offsets[b] : offsets[b + 1]]."""
    bags, n = offsets.shape[0] - 1, rows.shape[0]
    # No slot reaches an empty bag's row. Sorted offsets agree with the search on which.
    offsets = jax.lax.cummax(jnp.clip(offsets, 0, n))
    position = jnp.arange(n, dtype=jnp.int32)
    bag = jnp.searchsorted(offsets[1:], position, side="right").astype(jnp.int32)
    slots = jnp.where(position < offsets[-1], bag, -1)
    layout = one_row_each(table.name, table.name, n)
    feature = FeatureGradient(layout, rows, slots, slots, None, None, None)
    (sums,) = sum_rows([table], [bags], [feature])
    filled = offsets[1:] > offsets[:-1]
    return jnp.where(filled[:, None], sums, 0)
