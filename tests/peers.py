# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""GPUs that read each other's memory, on a mesh of CPU devices.

What the custom call does, XLA's collectives do here, and whatever it leaves unwritten
is garbage: NaNs, and numbers that no table has. So a result that reads it is wrong.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jax_dynemb._src import ops
from jax_dynemb._src.engines.hash import links
from jax_dynemb._src.engines.hash.layouts import hosts, mesh_axes, peers

_GARBAGE = {"float": np.nan, "uint": 0xA5, "int": -1515870811}


def emulate(patch: pytest.MonkeyPatch) -> None:
    """Lets every mesh of CPU devices exchange as GPUs do."""
    _find_peers_by(patch, _peers_of)
    patch.setattr(links.Links, "exchange", _exchange)
    patch.setattr(links.Links, "place_rows", _place_rows)
    patch.setattr(links.Links, "sum_rows", _sum_rows)
    patch.setattr(links.Links, "send_bags", _send_bags)
    patch.setattr(links.Links, "lookup", _lookup)
    patch.setattr(links.Links, "find", _find)


def of_itself(patch: pytest.MonkeyPatch) -> Mesh:
    """A mesh of one GPU, which reads its own memory by the calls for peers."""
    device = jax.devices("gpu")[0]
    member = ops.Peer(device.id, device.local_hardware_id, "the GPU")
    assert not ops.prepare_peers([member])

    def peers_of(mesh, axes, transport, devices=None):
        chosen = () if transport == "collectives" else (device.id,)
        return peers.Peers(chosen, "" if chosen else "collectives")

    _find_peers_by(patch, peers_of)
    return Mesh(np.array([device]), ("data",))


def _find_peers_by(patch: pytest.MonkeyPatch, peers_of: Callable) -> None:
    """Replaces ``peers_of``; what is cached of a mesh stays as it is."""
    for module in (mesh_axes, hosts):
        patch.setattr(module, "peers_of", peers_of)
    patch.setattr(mesh_axes, "hosts_of", hosts.hosts_of.__wrapped__)


def _peers_of(mesh, axes, transport, devices=None):
    if transport == "collectives" or not isinstance(mesh, Mesh):
        return peers.Peers((), "collectives")
    return peers.Peers(tuple(range(mesh.size)))


def _exchange(self, arrays, pieces, live=None, *, gathers=False):
    """Stands for ``Links.exchange``."""
    if gathers:
        arrays = [jnp.broadcast_to(x, (self.shards, *x.shape)) for x in arrays]
    arrived = [self.swap(x.reshape(self.shards, -1)) for x in arrays]
    counts = None
    if live is not None:
        counts = live.counts.T
        if live.by_sender:
            counts = self.swap(counts)
    result = []
    for n, (array, part) in enumerate(zip(arrays, arrived, strict=True)):
        mine = [piece for piece in pieces if piece.array == n]
        mask = _mask(mine, part.shape[1], part.dtype.itemsize, counts, self.shards)
        kind = "float" if jnp.issubdtype(part.dtype, jnp.floating) else None
        kind = kind or ("uint" if part.dtype.kind == "u" else "int")
        garbage = jnp.full_like(part, _GARBAGE[kind])
        result.append(jnp.where(mask, part, garbage).reshape(array.shape))
    return result


def ids_by_owner(ids, table, shards):
    """Returns uint32[shards, n, 2]: the ids of each owner, among padding."""
    hashes = ops.hash_words(ids, table.hash_seed)
    owner = ops.owner_of(*hashes, table.num_buckets, table.local_buckets)
    mine = owner[None] == jnp.arange(shards)[:, None]
    return jnp.where(mine[..., None], ids[None], jnp.uint32(0xFFFFFFFF))


def _send_bags(self, ids, tables):
    """Stands for ``Links.send_bags``."""
    pairs = zip(ids, tables, strict=True)
    return [self.swap(ids_by_owner(*pair, self.shards)) for pair in pairs]


def _lookup(self, tables, states, inputs, scores, views):
    """Stands for ``Links.lookup``."""
    outputs, new, _ = ops.lookup(tables, states, inputs, scores, views)
    return _pushed(self, outputs, views), new


def _find(self, tables, states, inputs, views):
    """Stands for ``Links.find``."""
    outputs, new = ops.find(tables, states, inputs, views)
    return _pushed(self, outputs, views), new


def _pushed(self, outputs, views):
    """Exchanges the only array that lookups have written rows to."""
    (number,) = {view.array for view in views}
    assert number == 0
    whole = outputs[0]["rows"]
    arrived = self.swap(whole.reshape(self.shards, -1)).reshape(whole.shape)
    return [output | {"rows": arrived} for output in outputs]


def _place_rows(self, arrays, ids, placed, stored=None):
    """Stands for ``Links.place_rows``: a row for each position, one after the other."""
    if stored is not None:
        arrays = _with_stored(self.shards, arrays, placed.tables, stored)
    arrived = [self.swap(x.reshape(self.shards, -1)) for x in arrays]
    result = [jnp.full(x.shape, _GARBAGE["float"], x.dtype) for x in placed.results]
    ends = [*(span.begin for span in placed.spans[1:]), ids.number.shape[0]]
    for span, end in zip(placed.spans, ends, strict=True):
        if span.result < 0:
            continue
        table = placed.tables[span.table]
        part = arrived[table.array]
        width = part.dtype.itemsize
        first, dim = table.begin // width, table.row_bytes // width
        rows = part[:, first : first + table.room * dim]
        rows = rows.reshape(self.shards, table.room, dim)
        order = jnp.sort(ids.order)[span.begin : end]  # each position is in it
        number = ids.number[order][:, None]
        begin, past = ids.begin[span.table][None], ids.end[span.table][None]
        own = (number >= begin) & (number < past) & (number - begin < table.room)
        owner = own.argmax(1)
        row = rows[owner, (number[:, 0] - begin[0, owner]) % table.room]
        row = jnp.where(own.any(1)[:, None], row, 0)
        target, at = result[span.result], slice(span.row, span.row + end - span.begin)
        result[span.result] = target.at[at].set(row)
    return result, None if stored is None else jnp.zeros(1, jnp.int32)


def _with_stored(shards, arrays, tables, stored):
    """Copies rows of slots from the tables into what is sent; others stay there."""
    parts = [x.reshape(shards, -1) for x in arrays]
    for table, where in zip(tables, stored.tables, strict=True):
        if where.rows == 0:
            continue
        part, values = parts[table.array], stored.arrays[where.array]
        first, dim = table.begin // part.dtype.itemsize, values.shape[1]
        assert table.row_bytes == dim * values.dtype.itemsize
        assert values.dtype == part.dtype
        end = where.first_place + shards * table.room
        slots = stored.slots[where.first_place : end].reshape(shards, table.room, 1)
        at = slice(first, first + table.room * dim)
        sent = part[:, at].reshape(shards, table.room, dim)
        own = values[jnp.clip(where.first_row + slots[..., 0], 0, len(values) - 1)]
        has_row = (slots >= 0) & (slots < where.rows)
        rows = jnp.where(has_row, own, sent).reshape(shards, -1)
        parts[table.array] = part.at[:, at].set(rows)
    return [part.reshape(x.shape) for part, x in zip(parts, arrays, strict=True)]


def _sum_rows(self, tables, groups, features, views, order=None):
    """Stands for ``Links.sum_rows``: places without a sum are garbage."""
    if order is not None:
        is_sorted = _sorts(tables, features, order)
        features = [
            dataclasses.replace(f, gradients=jnp.where(is_sorted, f.gradients, jnp.nan))
            for f in features
        ]
    sums = ops.sum_rows(tables, groups, features, views)
    masks = {view.array: jnp.zeros(view.size, bool) for view in views}
    for t, view in enumerate(views):
        dim, rooms = tables[t].dim, groups[t] // self.shards
        slots = [f.slots for f in features if f.layout.table == tables[t].name]
        slot = jnp.concatenate([*slots, jnp.full(1, -1, jnp.int32)])[:, None]
        at = slot // rooms * view.stride + view.offset + slot % rooms * dim
        at = jnp.where(slot >= 0, at + jnp.arange(dim)[None], view.size)
        masks[view.array] = masks[view.array].at[at].set(True, mode="drop")
    wholes = {view.array: x for view, x in zip(views, sums, strict=True)}
    arrived = {}
    for number, whole in wholes.items():
        own = jnp.where(masks[number], whole, jnp.asarray(np.nan, whole.dtype))
        own = own.reshape(self.shards, -1)
        own = self.swap(own)
        arrived[number] = own.reshape(whole.shape)
    return [arrived[view.array] for view in views]


def _sorts(tables, features, order):
    """Whether this is the order of tables and slots, where there are any."""
    slots = jnp.concatenate([f.slots for f in features])
    names = [t.name for t in tables]
    table = np.concatenate(
        [np.full(f.layout.num_ids, names.index(f.layout.table)) for f in features]
    )
    expected = jnp.lexsort((jnp.where(slots < 0, 2**30, slots), table))
    return (order == expected).all() | (slots < 0).all()


def _mask(pieces, width, itemsize, counts, shards):
    """Says which elements of each part arrive, bool[shards, width]."""
    mask = jnp.zeros((shards, width), bool)
    column = jnp.arange(width)[None]
    for piece in pieces:
        assert piece.begin % itemsize == 0 and piece.row_bytes % itemsize == 0
        begin, row = piece.begin // itemsize, piece.row_bytes // itemsize
        end = jnp.full(shards, begin + piece.room // itemsize)
        if piece.counter >= 0:
            assert counts is not None
            end = jnp.minimum(end, begin + counts[:, piece.counter] * row)
        mask |= (column >= begin) & (column < end[:, None])
    return mask
