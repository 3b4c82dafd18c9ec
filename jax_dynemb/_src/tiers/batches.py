# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of a coming step: their ids as a lookup takes them, and as keys by table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_dynemb._src import ids as _ids
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.table import Tables, id_arrays


class Batch(NamedTuple):
    """Describes a batch that waits for its step."""

    given: Any  # what the iterator yielded, with ids that a lookup takes
    # Of tables with a store: distinct keys int64[n], in order.
    keys: dict[str, np.ndarray]
    # Of these tables: the same keys as ids on the device, padded.
    held: dict[str, list[jax.Array]]


def prepared(
    coll: Tables, tables: Sequence[TableConfig], sharding: Any, batch: Any
) -> Batch:
    """Makes a ``Batch`` of host ids by feature, or of a tuple that begins with them."""
    rest = batch[1:] if isinstance(batch, tuple) else None
    ids = batch[0] if isinstance(batch, tuple) else batch
    if not isinstance(ids, Mapping):
        raise TypeError(
            "ahead takes batches that are ids by feature, or tuples that begin with "
            f"them; not {kind_of(ids)}. Write {{'feature': ids}}."
        )
    arrays = on_device(coll, ids, sharding)
    keys, held = {}, {}
    for config in tables:
        own = [ids[name] for name in config.feature_names if name in ids]
        if own:
            pieces = [_keys_of(config, each) for each in own]
            room = sum(len(piece) for piece in pieces)
            keys[config.name] = _distinct(np.concatenate(pieces))
            held[config.name] = padded_ids(config, keys[config.name], _room(room))
    given = arrays if rest is None else (arrays, *rest)
    return Batch(given, keys, held)


def on_device(coll: Tables, ids: Mapping[str, Any], sharding: Any) -> dict[str, Any]:
    """Copies ids by feature to the device, as a lookup takes them."""
    return {
        name: _to_device(coll.config_of(name), each, sharding)
        for name, each in ids.items()
    }


def table_keys(
    coll: Tables, stores: Collection[str], ids: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, list[jax.Array]], dict[str, Any]]:
    """Prepares ids by table for an operation beside the batches.

    Returns, of tables with a store, distinct keys int64[n], and these as ids on the
    device, padded. Also all ids on the device, as they were given.
    """
    catalog = coll.engine.catalog
    configs = {name: catalog.table(name) for name in ids}
    arrays = {n: _to_device(configs[n], each, None) for n, each in ids.items()}
    keys, held = {}, {}
    for name in ids:
        if name in stores:
            keys[name] = _distinct(_keys_of(configs[name], ids[name]))
            room = _room(len(keys[name]))
            held[name] = padded_ids(configs[name], keys[name], room)
    return keys, held, arrays


def _distinct(keys: np.ndarray) -> np.ndarray:
    distinct = np.unique(keys)
    return distinct[distinct != _ids.PADDING]


def padded_ids(config: TableConfig, keys: np.ndarray, size: int) -> list[jax.Array]:
    """Keys int64[n] as padded ids, in two arrays where 32-bit keys need them."""
    padded = np.full(size, _ids.PADDING, np.int64)
    padded[: len(keys)] = keys
    return [jax.device_put(ids) for ids in id_arrays(config, padded)]


def offered_size(count: int) -> int:
    """Rounds a number of rows up to 256, 1,024, 4,096, ...: few programs."""
    size = 256
    while size < count:
        size *= 4
    return size


def _room(count: int) -> int:
    return max(256, 1 << max(0, count - 1).bit_length())


def _keys_of(config: TableConfig, ids: Any) -> np.ndarray:
    """Keys int64[n] of the ids of a feature, padding included."""
    if isinstance(ids, Jagged):
        values = np.asarray(ids.values)[: int(np.sum(np.asarray(ids.lengths)))]
    else:
        values = np.asarray(ids)
    wide = config.key_dtype == "int64"
    if wide and values.dtype == np.uint32 and values.shape[-1:] == (2,):
        return np.ascontiguousarray(values).view(np.int64).reshape(-1)
    if values.size == 0:
        return np.empty(0, np.int64)
    if not wide and values.dtype == np.uint32:  # its padding is 2**32 - 1
        keys = values.astype(np.int64)
        return np.where(keys == np.iinfo(np.uint32).max, -1, keys).reshape(-1)
    return values.astype(np.int64).reshape(-1)


def _to_device(config: Any, ids: Any, sharding: Any) -> Any:
    if isinstance(ids, Jagged):
        values = _to_device(config, ids.values, None)
        return Jagged(values, jax.device_put(np.asarray(ids.lengths)), ids.weights)
    if isinstance(ids, jax.Array):
        return ids
    array = np.asarray(ids)
    if config.key_dtype == "int32":
        return jax.device_put(_narrow(config, array), sharding)
    if array.dtype == np.uint32 and array.shape[-1:] == (2,):
        return jax.device_put(array, sharding)
    return _ids.ids(array, sharding=sharding)


def _narrow(config: Any, array: np.ndarray) -> np.ndarray:
    """Ids of a table of 32-bit keys; ``device_put`` would truncate wider ones."""
    if array.dtype.kind not in "iu" or array.dtype in (np.int32, np.uint32):
        return array  # a lookup says what is wrong with other kinds
    bounds = np.iinfo(np.int32)
    if array.size and (array.min() < bounds.min or array.max() > bounds.max):
        raise ValueError(
            f"Table '{config.name}' has key_dtype='int32', but ids are beyond int32. "
            "Pass uint32 ids, or drop key_dtype."
        )
    return array.astype(np.int32)
