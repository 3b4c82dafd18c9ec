# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The engine of tensor-train tables, whose cores are on every device."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jax_dynemb._src import tt
from jax_dynemb._src.engines.catalog import Catalog
from jax_dynemb._src.engines.flags import TOUCHING, TRAINING, LookupFlags
from jax_dynemb._src.engines.hash import OneDevice, Placement
from jax_dynemb._src.engines.hash.layouts import Layout
from jax_dynemb._src.engines.score_inputs import ScoreInputs
from jax_dynemb._src.engines.shard import Query
from jax_dynemb._src.engines.stats_future import StatsFuture, compile_counts
from jax_dynemb._src.engines.tensor_train import training as _training
from jax_dynemb._src.engines.tensor_train.training import (
    ALL,
    CoreGradients,
    TTResiduals,
)
from jax_dynemb._src.ops import new_run
from jax_dynemb._src.rows import Exported

States = dict[str, Any]
_CHUNK_BYTES = 1 << 28
_CHUNK_IDS = 1 << 20


@dataclasses.dataclass(frozen=True)
class TTEngine:
    """Tensor-train tables on one device, or replicated over a mesh.

    Attributes:
      catalog: the tables by name.
      layout: one device, or a mesh whose devices share batches.
    """

    catalog: Catalog[tt.TTConfig]
    layout: Layout

    def with_configs(self, configs: Iterable[tt.TTConfig]) -> Self:
        return dataclasses.replace(self, catalog=Catalog(tuple(configs)))

    @property
    def placement(self) -> Placement | None:
        """Returns the mesh; None on one device."""
        return None if isinstance(self.layout, OneDevice) else self.layout

    share_arrays = False

    # ---- where arrays are --------------------------------------------------------

    def state_name(self, table: str) -> str:
        return self.catalog.table(table).name

    def extent(self, table: str) -> Mapping[str, Any]:
        del table
        return {}

    def partition_specs(self) -> dict[str, Any]:
        """Returns a ``PartitionSpec`` for each array of the state."""
        words = (jax.ShapeDtypeStruct(shape, "uint32") for shape in ((2,), (3, 2)))
        states = jax.eval_shape(self._made, tuple(words))
        return jax.tree.map(lambda _: ALL, states)

    # ---- whole tables ------------------------------------------------------------

    def init(self, seed: jax.Array) -> States:
        layout, traced = self.layout.here(), isinstance(seed, Tracer)
        run = jnp.asarray(new_run(layout.spans_processes, traced))
        return layout.mapped(self._made, (ALL,), ALL)((seed, run))

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
        score_inputs: ScoreInputs,
        sent: Any = None,
        flags: LookupFlags = TRAINING,
    ) -> tuple[dict[str, jax.Array], TTResiduals, States]:
        del score_inputs, sent, flags  # every row is there
        return _training.lookup(self.catalog, self.layout.here(), state, ids, weights)

    def touch(
        self,
        state: States,
        ids: Mapping[str, Any],
        score_inputs: ScoreInputs,
        flags: LookupFlags = TOUCHING,
    ) -> States:
        del ids, score_inputs, flags  # rows have no scores
        return state

    def find(
        self, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        layout, tables = self.layout.here(), self.catalog
        configs = _training.configs_by_feature(tables, ids)
        batch = layout.batch(configs, ids, weights)
        static = batch.layout

        def body(states: States, ids: Any, weights: Any) -> Any:
            rows, found = {}, {}
            for each, feature_input in static.local(ids, weights):
                feature, config = each.feature, tables.table(each.table)
                one, numbers = tt.residual_of(config, each, feature_input)
                cores = states[config.name].cores
                rows[feature] = tt.rows_by_residual(config, cores, one, one.weights)
                flags = each.shaped_as_given(numbers.found.astype("uint8"))
                found[feature] = static.whole(feature_input.offsets, flags)
            return rows, found

        own = _training.states_of(tables, state, ids)
        run = layout.mapped(
            body,
            (ALL, batch.ids_specs, batch.weights_specs),
            (layout.split, batch.per_id_specs),
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
            self.catalog, self.layout.here(), state, residual, d_rows, hyper
        )

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, CoreGradients], States]:
        return _training.reduce_gradients(
            self.catalog, self.layout.here(), state, residual, d_rows
        )

    def weight_gradients(
        self, state: States, residual: Any, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        return _training.weight_gradients(
            self.catalog, self.layout.here(), state, residual, d_rows
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
