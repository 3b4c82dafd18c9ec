# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The engine of tensor-train tables, whose cores are on every device."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb import tt
from jax_dynemb.engines._catalog import Catalog
from jax_dynemb.engines._flags import TOUCHING, TRAINING, LookupFlags
from jax_dynemb.engines._given import Given
from jax_dynemb.engines._stats_future import StatsFuture, compile_counts
from jax_dynemb.engines.mesh import Placement
from jax_dynemb.engines.shard import NewRows, Query, Rule
from jax_dynemb.engines.tensor_train import _training
from jax_dynemb.engines.tensor_train._devices import ALL, Devices, OneDevice, OnMesh
from jax_dynemb.engines.tensor_train._training import CoreGradients, TTResiduals
from jax_dynemb.ops import new_run
from jax_dynemb.rows import Exported

States = dict[str, Any]
_CHUNK_BYTES = 1 << 28
_CHUNK_IDS = 1 << 20


@dataclasses.dataclass(frozen=True)
class TTEngine:
    """Tensor-train tables on one device, or replicated over a mesh; see ``Engine``.

    Attributes:
      catalog: the tables by name.
      placement: the mesh whose devices share batches; None for one device.
    """

    catalog: Catalog[tt.TTConfig]
    placement: Placement | None

    def with_configs(self, configs: Iterable[tt.TTConfig]) -> Self:
        return dataclasses.replace(self, catalog=Catalog(tuple(configs)))

    def _devices(self) -> Devices:
        return OneDevice() if self.placement is None else OnMesh.here(self.placement)

    # ---- where arrays are --------------------------------------------------------

    def state_name(self, table: str) -> str:
        return self.catalog.table(table).name

    def extent(self, table: str) -> Mapping[str, Any]:
        del table
        return {}

    def counter_rows(self, table: str) -> NoReturn:
        _refuse("a clock", table)

    def removed_log(self, state: States, table: str) -> NoReturn:
        del state
        _refuse("a log of removed keys", table)

    def counted(self, state: States, table: str) -> NoReturn:
        del state
        _refuse("a clock", table)

    def partition_specs(self) -> dict[str, Any]:
        """Returns a ``PartitionSpec`` for each array of the state."""
        words = (jax.ShapeDtypeStruct(shape, "uint32") for shape in ((2,), (3, 2)))
        states = jax.eval_shape(self._made, tuple(words))
        return jax.tree.map(lambda _: ALL, states)

    # ---- whole tables ------------------------------------------------------------

    def init(self, seed: jax.Array) -> States:
        placement = None if self.placement is None else self.placement.here()
        shared = placement is not None and placement.spans_processes
        run = jnp.asarray(new_run(shared, isinstance(seed, Tracer)))
        return self._devices().replicated(self._made)((seed, run))

    def _made(self, words: tuple[jax.Array, jax.Array]) -> States:
        tables = self.catalog.tables.items()
        return {name: tt.init_from_words(config, *words) for name, config in tables}

    def empty(self, table: str, like: Any) -> Any:
        del like
        only = self.with_configs([self.catalog.table(table)])
        return only.init(jnp.zeros(2, jnp.uint32))[table]

    def clear(self, state: States, tables: Collection[str]) -> States:
        """Makes the initial cores again."""
        new = dict(state)
        for name in tables:
            new[name] = tt.cleared(self.catalog.table(name), state[name])
        return new

    def growing_together(self, table: str) -> NoReturn:
        _refuse("a capacity to grow", table)

    def grow(self, arrays: Any, factors: Mapping[str, int]) -> NoReturn:
        del arrays
        _refuse("a capacity to grow", next(iter(factors)))

    def grow_homes(
        self, before: Any, after: Any, factors: Mapping[str, int]
    ) -> NoReturn:
        del before, after
        _refuse("a capacity to grow", next(iter(factors)))

    def stats_async(self, state: States) -> StatsFuture:
        counters = self._read(state)
        arrays = {name: (state[name].cores, state[name].optimizer) for name in counters}
        nbytes = {
            name: sum(array.nbytes for array in jax.tree.leaves(some))
            for name, some in arrays.items()
        }
        return StatsFuture.of(self, counters, functools.partial(self._stats, nbytes))

    def compile_stats(self, types: States) -> list[Any]:
        return compile_counts(self, self._read(types))

    def _read(self, state: States) -> dict[str, jax.Array]:
        return {name: state[name].counters for name in self.catalog.tables}

    def count(self, arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """See ``Counts``: the counters themselves."""
        return arrays

    def _stats(
        self, nbytes: Mapping[str, int], counters: Mapping[str, np.ndarray]
    ) -> dict[str, int | float]:
        result: dict[str, int | float] = {}
        for name, config in self.catalog.tables.items():
            result[f"{name}/num_embeddings"] = config.num_embeddings
            result[f"{name}/parameters"] = config.num_parameters
            result[f"{name}/bytes"] = nbytes[name]
            counts = counters[name][: len(tt.COUNTERS)].tolist()
            for counter, count in zip(tt.COUNTERS, counts, strict=True):
                result[f"{name}/{counter}"] = count
        return result

    def export(self, state: States, table: str, query: Query) -> Iterator[Exported]:
        config = self.catalog.table(table)
        _check_export(config, query)
        if jax.process_index() != 0:
            return iter(())  # every process has all cores, and one streams them
        return _rows(config, state[table].cores)

    def index(
        self, state: States, table: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        del state  # all rows are there, whatever the cores are
        config = self.catalog.table(table)
        _check_export(config, Query())
        for first in range(0, config.num_embeddings, _CHUNK_IDS):
            end = min(first + _CHUNK_IDS, config.num_embeddings)
            yield np.arange(first, end), np.zeros(end - first, np.uint64)

    # ---- a step ------------------------------------------------------------------

    def route(self, ids: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
        del ids, weights  # every device has the cores

    def pack(self, ids: Mapping[str, Any]) -> tuple[dict[str, Any], None]:
        return OrderedDict(ids), None

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        given: Given,
        sent: Any = None,
        flags: LookupFlags = TRAINING,
    ) -> tuple[dict[str, jax.Array], TTResiduals, States]:
        del given, sent, flags  # every row is there
        return _training.lookup(self.catalog, self._devices(), state, ids, weights)

    def touch(
        self,
        state: States,
        ids: Mapping[str, Any],
        given: Given,
        flags: LookupFlags = TOUCHING,
    ) -> States:
        del ids, given, flags  # rows have no scores
        return state

    def find(
        self, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        devices, tables = self._devices(), self.catalog
        configs = _training.configs_by_feature(tables, ids)
        batch = devices.batch(configs, ids, weights)
        layout = batch.layout

        def body(states: States, ids: Any, weights: Any) -> Any:
            rows, found = {}, {}
            for each, given in layout.local(ids, weights):
                feature, config = each.feature, tables.table(each.table)
                one, numbers = tt.residual_of(config, each, given)
                cores = states[config.name].cores
                rows[feature] = tt.rows_by_residual(config, cores, one, one.weights)
                flags = each.shaped_as_given(numbers.found.astype("uint8"))
                found[feature] = layout.whole(given.offsets, flags)
            return rows, found

        own = _training.states_of(tables, state, ids)
        run = devices.run(
            body,
            (ALL, batch.ids_specs, batch.weights_specs),
            (devices.split(), batch.per_id_specs),
        )
        rows, found = run(own, batch.ids, batch.weights)
        flags = ((f, batch.restored(f, found[f]).astype(bool)) for f in ids)
        return batch.rows(rows), OrderedDict(flags), state

    def prefetch(self, state: States, ids: Mapping[str, Any]) -> States:
        del ids  # cores have no tiers
        return state

    def flush(self, state: States) -> States:
        return state

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        hyper: Mapping[str, Mapping[str, Any]],
    ) -> States:
        return _training.apply_gradients(
            self.catalog, self._devices(), state, residual, d_rows, hyper
        )

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, CoreGradients], States]:
        return _training.reduce_gradients(
            self.catalog, self._devices(), state, residual, d_rows
        )

    def weight_gradients(
        self, state: States, residual: Any, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        return _training.weight_gradients(
            self.catalog, self._devices(), state, residual, d_rows
        )

    # ---- single rows: a tensor train has none ------------------------------------

    def gather(self, state: States, slots: Mapping[str, jax.Array]) -> NoReturn:
        del state
        _refuse("slots", next(iter(slots)))

    def scatter(
        self, state: States, slots: Mapping[str, jax.Array], rows: Any
    ) -> NoReturn:
        del state, rows
        _refuse("slots", next(iter(slots)))

    def insert(self, arrays: Any, table: str, new: NewRows) -> NoReturn:
        del arrays, new
        _refuse("rows to insert", table)

    def erase(self, arrays: Any, table: str, ids: Any) -> NoReturn:
        del arrays, ids
        _refuse("rows to erase", table)

    def erase_where(
        self, arrays: Any, table: str, rule: Rule, dry_run: bool
    ) -> NoReturn:
        del arrays, rule, dry_run
        _refuse("rows to erase", table)

    def bucket_stats(self, arrays: Any, table: str) -> NoReturn:
        del arrays
        _refuse("buckets", table)

    def decay(self, arrays: Any, table: str, factor: jax.Array) -> NoReturn:
        del arrays, factor
        _refuse("counts to decay", table)


def _refuse(what: str, table: str) -> NoReturn:
    raise ValueError(
        f"Table '{table}' is a tensor train (jde.TTConfig), which stores cores: it has "
        f"no {what}. Use a jde.TableConfig for that, or leave '{table}' out."
    )


def _check_export(config: tt.TTConfig, query: Query) -> None:
    if config.ids == "hash":
        raise ValueError(
            f"Table '{config.name}' has ids='hash': which ids it was trained with is "
            "not stored, so it has no rows by id to export. Export its cores with "
            "jde.tt.to_torch, or read rows with find."
        )
    if query.since is not None or query.known_keys is not None:
        raise ValueError(
            f"Table '{config.name}' is a tensor train: one update changes all of its "
            "rows, so there is no delta. Export it whole, or its cores."
        )


def _rows(config: tt.TTConfig, cores: Any) -> Iterator[Exported]:
    first = 0
    chunk = max(1, _CHUNK_BYTES // (4 * config.dim))
    for rows in tt.full_weight(config, cores, chunk):
        keys = np.arange(first, first + len(rows), dtype=np.int64)
        first += len(rows)
        yield Exported(keys, rows, np.zeros(len(rows), np.uint64), {})
