# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Batches of a coming step: their ids as a lookup takes them, and as keys by table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_dynemb._src import ids as _ids
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.table import Tables, id_arrays
from jax_dynemb._src.tiers.together import Alone, Places

_ALONE = Alone()
# Finds in a batch the ids by feature, on the host; and returns it as a step takes it.
# What is ids in NumPy, or begins with them, goes to the devices after that.
Fed = Callable[[Any], tuple[Mapping[str, Any], Any]]


class Batch(NamedTuple):
    """Describes a batch that waits for its step."""

    given: Any  # what the iterator yielded, with ids that a lookup takes
    # Of tables with a store: distinct keys int64[n] of this process, in order.
    keys: dict[str, np.ndarray]
    # Of these tables: the same keys as ids on the device, padded.
    held: dict[str, list[jax.Array]]


def prepared(
    coll: Tables,
    tables: Sequence[TableConfig],
    sharding: Any,
    places: Places,
    fed: Fed | None,
    batch: Any,
) -> Batch:
    """Makes a ``Batch`` of host ids by feature, or of a tuple that begins with them.

    Of another batch ``fed`` finds the ids.
    """
    ids = batch[0] if isinstance(batch, tuple) else batch
    if fed is not None and not _by_feature(coll, ids):
        ids, given = fed(batch)
        first = given[0] if isinstance(given, tuple) else given
        if isinstance(first, np.ndarray):
            first = _put(first, sharding or places.split)
            given = (first, *given[1:]) if isinstance(given, tuple) else first
    elif isinstance(ids, Mapping):
        given = on_device(coll, ids, sharding or places.split, places)
        given = (given, *batch[1:]) if isinstance(batch, tuple) else given
    else:
        raise TypeError(
            "prefetch_rows takes batches that are ids by feature, or tuples that begin "
            f"with them; not {kind_of(ids)}. Write {{'feature': ids}}."
        )
    keys, held = {}, {}
    for config in tables:
        own = [ids[name] for name in config.feature_names if name in ids]
        if own:
            pieces = [_keys_of(config, each) for each in own]
            room = _room(sum(_most_keys(config, each) for each in own))
            keys[config.name] = _distinct(np.concatenate(pieces))
            held[config.name] = padded_ids(config, keys[config.name], room, places)
    return Batch(given, keys, held)


def _by_feature(coll: Tables, ids: Any) -> bool:
    return isinstance(ids, Mapping) and ids.keys() <= set(coll.features)


def on_device(
    coll: Tables, ids: Mapping[str, Any], sharding: Any, places: Places = _ALONE
) -> dict[str, Any]:
    """Copies ids by feature to the device, as a lookup takes them."""
    return {
        name: _to_device(coll.config_of(name), each, sharding, places)
        for name, each in ids.items()
    }


def table_keys(
    coll: Tables, stores: Collection[str], ids: Mapping[str, Any], places: Places
) -> tuple[dict[str, np.ndarray], dict[str, list[jax.Array]], dict[str, Any]]:
    """Prepares ids by table for an operation beside the batches.

    Returns, of tables with a store, distinct keys int64[n], and these as ids on the
    device, padded. Also all ids on the device, as they were given.
    """
    catalog = coll.engine.catalog
    configs = {name: catalog.table(name) for name in ids}
    arrays = {
        name: _to_device(configs[name], each, places.split, places)
        for name, each in ids.items()
    }
    keys, held = {}, {}
    for name in ids:
        if name in stores:
            keys[name] = _distinct(_keys_of(configs[name], ids[name]))
            room = _room(_most_keys(configs[name], ids[name]))
            held[name] = padded_ids(configs[name], keys[name], room, places)
    return keys, held, arrays


def keys_on_host(config: TableConfig, keys: Any) -> np.ndarray:
    """Reads distinct keys int64[n], in order, of ids on the devices of all processes.

    It waits for them. What is on the host already stays.
    """
    if isinstance(keys, np.ndarray):
        return keys
    parts = [_keys_of(config, np.asarray(part)) for part in keys]
    return _distinct(np.concatenate(parts))


def _distinct(keys: np.ndarray) -> np.ndarray:
    distinct = np.unique(keys)
    return distinct[distinct != _ids.PADDING]


def padded_ids(
    config: TableConfig, keys: np.ndarray, size: int, places: Places
) -> list[jax.Array]:
    """Keys int64[n] as padded ids, in two arrays where 32-bit keys need them."""
    padded = np.full(places.room(size), _ids.PADDING, np.int64)
    padded[: len(keys)] = keys
    return [places.spread(ids) for ids in id_arrays(config, padded)]


def offered_size(count: int) -> int:
    """Rounds a number of rows up to 256, 1,024, 4,096, ...: few programs."""
    size = 256
    while size < count:
        size *= 4
    return size


def _room(count: int) -> int:
    return max(256, 1 << max(0, count - 1).bit_length())


def _most_keys(config: TableConfig, ids: Any) -> int:
    """How many keys ids of this shape have at most: equal on all processes."""
    values = _on_host(ids.values if isinstance(ids, Jagged) else ids)
    is_pairs = config.key_dtype == "int64" and values.dtype == np.uint32
    return values.size // (2 if is_pairs and values.shape[-1:] == (2,) else 1)


def _on_host(ids: Any) -> np.ndarray:
    """Ids in NumPy; of an array of several processes the part of this one."""
    if not isinstance(ids, jax.Array) or ids.is_fully_addressable:
        return np.asarray(ids)
    parts = {str(each.index): np.asarray(each.data) for each in ids.addressable_shards}
    return np.concatenate(list(parts.values()))


def _keys_of(config: TableConfig, ids: Any) -> np.ndarray:
    """Keys int64[n] of the ids of a feature, padding included."""
    if isinstance(ids, Jagged):
        values = _on_host(ids.values)[: int(np.sum(np.asarray(ids.lengths)))]
    else:
        values = _on_host(ids)
    wide = config.key_dtype == "int64"
    if wide and values.dtype == np.uint32 and values.shape[-1:] == (2,):
        return np.ascontiguousarray(values).view(np.int64).reshape(-1)
    if values.size == 0:
        return np.empty(0, np.int64)
    if not wide and values.dtype == np.uint32:  # its padding is 2**32 - 1
        keys = values.astype(np.int64)
        return np.where(keys == np.iinfo(np.uint32).max, -1, keys).reshape(-1)
    return values.astype(np.int64).reshape(-1)


def _to_device(config: Any, ids: Any, sharding: Any, places: Places) -> Any:
    if isinstance(ids, Jagged):  # whole, since its bags end anywhere in the values
        values = _words(config, ids.values)
        lengths = places.whole(np.asarray(ids.lengths))
        return Jagged(places.whole(values), lengths, ids.weights)
    if isinstance(ids, jax.Array):
        return ids
    return _put(_words(config, ids), sharding)


def _put(words: Any, sharding: Any) -> Any:
    """Copies ids to the devices; of several processes the part of this one."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(words, sharding)
    return jax.make_array_from_process_local_data(sharding, words)


def _words(config: Any, ids: Any) -> Any:
    """Ids as a lookup takes them, on the host; arrays of JAX stay."""
    if isinstance(ids, jax.Array):
        return ids
    array = np.asarray(ids)
    if config.key_dtype == "int32":
        return _narrow(config, array)
    if array.dtype == np.uint32 and array.shape[-1:] == (2,):
        return array
    return _ids.words_of(array)


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
