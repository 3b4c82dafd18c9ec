# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A collection with tensor trains: each call is split by kind, results are merged."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Self

import jax
import numpy as np

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import (
    TOUCHING,
    TRAINING,
    Catalog,
    LookupEngine,
    LookupFlags,
    ScoreInputs,
    StatsFuture,
)
from jax_dynemb._src.engines.hash import HashEngine, Placement
from jax_dynemb._src.engines.shard import Query, pair_lookups
from jax_dynemb._src.engines.tensor_train import TTEngine
from jax_dynemb._src.rows import Exported
from jax_dynemb._src.shown import Shown
from jax_dynemb._src.tt import without_strangers

States = dict[str, Any]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class ResidualByKind(Shown):
    """Holds what a lookup leaves; None where no feature was looked up.

    Attributes:
      dynamic: of the dynamic tables.
      tensor_train: of the others.
    """

    dynamic: Any
    tensor_train: Any

    @property
    def features(self) -> dict[str, Any]:
        """Returns what is left of each feature."""
        parts = (self.dynamic, self.tensor_train)
        return {f: r for p in parts if p is not None for f, r in p.features.items()}


def with_residuals(configs: tuple[Any, ...], shards: int = 1) -> tuple[Any, ...]:
    """Adds the residual tables that are not there yet; each pools as its train does.

    One that so many devices cannot share equally is copied to each: it is small.
    """
    trains = {r.name: c for c in configs if (r := getattr(c, "residual", None))}
    listed = {config.name for config in configs}
    own = [
        dataclasses.replace(c, pooling=trains[c.name].pooling)
        if c.name in trains
        else c
        for c in configs
    ]
    new = [
        dataclasses.replace(
            train.residual,
            pooling=train.pooling,
            sharding=_sharding_of(train.residual, shards),
        )
        for name, train in trains.items()
        if name not in listed
    ]
    return (*own, *new)


def _sharding_of(residual: TableConfig, shards: int) -> str:
    cut = residual.sharding == "row_wise" and residual.tier is None
    return "replicated" if cut and residual.max_shards % shards else residual.sharding


def by_kind(catalog: Catalog[Any]) -> tuple[tuple[TableConfig, ...], tuple[Any, ...]]:
    """Returns the dynamic tables and the others.

    A residual table has the features of its tensor train beside its own.
    """
    others = [c for c in catalog.configs if not isinstance(c, TableConfig)]
    features = {c.residual.name: c.feature_names for c in others if c.residual}
    dynamic = [
        dataclasses.replace(
            c, feature_names=(*c.feature_names, *features.get(c.name, ()))
        )
        for c in catalog.dynamic.values()
    ]
    return tuple(dynamic), tuple(others)


@dataclasses.dataclass(frozen=True)
class ByKind:
    """Splits each call by the kind of table; see ``LookupEngine``.

    What only hash tables can do is called on their engine, see ``hash_of``.

    Attributes:
      catalog: all tables, in the order of the user.
      dynamic: the engine of the dynamic tables; None if there are none.
      tensor_train: the engine of the others.
    """

    catalog: Catalog[Any]
    dynamic: HashEngine | None
    tensor_train: TTEngine

    def with_configs(self, configs: Iterable[Any]) -> Self:
        catalog = Catalog(with_residuals(tuple(configs)))
        dynamic, others = by_kind(catalog)
        if dynamic and self.dynamic is None:
            raise ValueError(
                f"These tables are tensor trains only, so '{dynamic[0].name}' has no "
                "place among them. Make new ones: jde.Tables(tables)."
            )
        return dataclasses.replace(
            self,
            catalog=catalog,
            dynamic=self.dynamic and self.dynamic.with_configs(dynamic),
            tensor_train=self.tensor_train.with_configs(others),
        )

    @property
    def placement(self) -> Placement | None:
        """Returns the mesh and the places of dynamic tables; None on one device."""
        return (self.dynamic or self.tensor_train).placement

    @property
    def share_arrays(self) -> bool | None:
        """Returns whether dynamic tables share arrays, see ``jde.Tables``."""
        return (self.dynamic or self.tensor_train).share_arrays

    def _of(self, table: str) -> LookupEngine:
        name = self.catalog.table(table).name
        if self.dynamic is not None and name in self.catalog.dynamic:
            return self.dynamic
        return self.tensor_train

    def _engines(self) -> list[LookupEngine]:
        return [e for e in (self.dynamic, self.tensor_train) if e is not None]

    def _split(
        self, by_feature: Mapping[str, Any]
    ) -> list[tuple[LookupEngine, dict[str, Any]]]:
        """Returns each engine with its features, if it has some."""
        parts = []
        for engine in self._engines():
            mine = {f: x for f, x in by_feature.items() if f in engine.catalog.features}
            if mine:
                parts.append((engine, mine))
        return parts

    def _ids_of(
        self, ids: Mapping[str, Any]
    ) -> list[tuple[LookupEngine, dict[str, Any]]]:
        """Returns each engine with its ids; residuals skip ids that have no row."""
        parts = self._split(ids)
        trains = self.tensor_train.catalog
        for engine, mine in parts:
            if engine is self.dynamic:
                for feature in mine.keys() & trains.features.keys():
                    config = trains.config_of(feature)
                    mine[feature] = without_strangers(config, feature, mine[feature])
        return parts

    # ---- where arrays are --------------------------------------------------------

    def state_name(self, table: str) -> str:
        return self._of(table).state_name(table)

    def extent(self, table: str) -> Mapping[str, Any]:
        return self._of(table).extent(table)

    # ---- whole tables ------------------------------------------------------------

    def init(self, seed: jax.Array) -> States:
        return {k: v for e in self._engines() for k, v in e.init(seed).items()}

    def empty(self, table: str, like: Any) -> Any:
        return self._of(table).empty(table, like)

    def clear(self, state: States, tables: Collection[str]) -> States:
        for engine in self._engines():
            mine = [name for name in tables if name in engine.catalog.tables]
            state = engine.clear(state, mine)
        return state

    def stats_async(self, state: States) -> StatsFuture:
        futures = [engine.stats_async(state) for engine in self._engines()]
        return StatsFuture.joined(futures)

    def compile_stats(self, types: States) -> list[Any]:
        return [p for engine in self._engines() for p in engine.compile_stats(types)]

    def export(self, state: States, table: str, query: Query) -> Iterator[Exported]:
        chunks = self._of(table).export(state, table, query)
        residual = getattr(self.catalog.table(table), "residual", None)
        if residual is None or self.dynamic is None:
            return chunks
        if not state[self.state_name(residual.name)].values.is_fully_addressable:
            raise ValueError(
                f"Rows of '{table}' are sums with those of '{residual.name}', which "
                "lies on the devices of several processes. Save a checkpoint with "
                "jde.checkpoint.save, restore it in one process, and export there."
            )
        return _corrected(chunks, self.dynamic.export(state, residual.name, Query()))

    def index(
        self, state: States, table: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self._of(table).index(state, table)

    # ---- a step ------------------------------------------------------------------

    def route(self, ids: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
        for engine, mine in self._ids_of(ids):
            if engine is self.dynamic:
                return engine.route(
                    mine, {f: w for f, w in weights.items() if f in mine}
                )
        return None

    def pack(self, ids: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        if self.dynamic is None:
            return OrderedDict(ids), None
        known = self.dynamic.catalog.features
        rest, packed = self.dynamic.pack({f: x for f, x in ids.items() if f in known})
        return OrderedDict((f, rest.get(f, x)) for f, x in ids.items()), packed

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        score_inputs: ScoreInputs,
        sent: Any = None,
        flags: LookupFlags = TRAINING,
    ) -> tuple[dict[str, jax.Array], ResidualByKind, States]:
        rows: dict[str, jax.Array] = {}
        residuals: dict[bool, Any] = {}
        for engine, mine in self._ids_of(ids):
            factors = {f: w for f, w in weights.items() if f in mine}
            here = sent if engine is self.dynamic else None
            one, residual, state = engine.lookup(
                state, mine, factors, score_inputs.of(mine), here, flags
            )
            rows = _added(rows, one)
            residuals[engine is self.dynamic] = residual
        residual = ResidualByKind(residuals.get(True), residuals.get(False))
        return OrderedDict((f, rows[f]) for f in ids), residual, state

    def touch(
        self,
        state: States,
        ids: Mapping[str, Any],
        score_inputs: ScoreInputs,
        flags: LookupFlags = TOUCHING,
    ) -> States:
        for engine, mine in self._ids_of(ids):
            state = engine.touch(state, mine, score_inputs.of(mine), flags)
        return state

    def find(
        self, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        rows: dict[str, jax.Array] = {}
        found: dict[str, jax.Array] = {}
        for engine, mine in self._ids_of(ids):
            factors = {f: w for f, w in weights.items() if f in mine}
            one, flags, state = engine.find(state, mine, factors)
            rows = _added(rows, one)
            found |= flags  # the tensor train, which comes last, has the row
        ordered = OrderedDict((f, rows[f]) for f in ids)
        return ordered, OrderedDict((f, found[f]) for f in ids), state

    def prefetch(self, state: States, ids: Mapping[str, Any]) -> States:
        for engine, mine in self._ids_of(ids):
            state = engine.prefetch(state, mine)
        return state

    def flush(self, state: States) -> States:
        return state if self.dynamic is None else self.dynamic.flush(state)

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        hyper: Mapping[str, Mapping[str, Any]],
    ) -> States:
        for engine, residuals, gradients in self._gradients(residual, d_rows):
            mine = {n: h for n, h in hyper.items() if n in engine.catalog.tables}
            state = engine.apply_gradients(state, residuals, gradients, mine)
        return state

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, Any], States]:
        sums: dict[str, Any] = {}
        for engine, residuals, gradients in self._gradients(residual, d_rows):
            one, state = engine.reduce_gradients(state, residuals, gradients)
            sums |= one
        return sums, state

    def weight_gradients(
        self, state: States, residual: Any, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        result: dict[str, jax.Array] = {}
        for engine, (one,), (gradients,) in self._gradients(residual, d_rows):
            if any(each.layout.weighted for each in one.features.values()):
                more, state = engine.weight_gradients(state, one, gradients)
                result = _added(result, more)
        if not result:
            raise ValueError(
                "no feature of this lookup had weights; pass weights to lookup first"
            )
        return OrderedDict((f, result[f]) for f in d_rows if f in result), state

    def _gradients(
        self, residual: Any, d_rows: Any
    ) -> Iterator[tuple[LookupEngine, list[Any], list[dict[str, Any]]]]:
        """Yields each engine with its residuals and their gradients, if it has some."""
        pairs = pair_lookups(ResidualByKind, residual, d_rows)
        for engine in self._engines():
            is_dynamic = engine is self.dynamic
            residuals, gradients = [], []
            for one, by_feature in pairs:
                mine = one.dynamic if is_dynamic else one.tensor_train
                if mine is not None:
                    residuals.append(mine)
                    gradients.append({f: by_feature[f] for f in mine.features})
            if residuals:
                yield engine, residuals, gradients


def hash_of(engine: LookupEngine) -> HashEngine:
    """Returns the engine of the hash tables of a collection.

    Raises:
      ValueError: all of its tables are tensor trains.
    """
    if isinstance(engine, HashEngine):
        return engine
    if isinstance(engine, ByKind) and engine.dynamic is not None:
        return engine.dynamic
    raise ValueError(
        f"The tables {list(engine.catalog.tables)} are tensor trains (jde.TTConfig), "
        "which store cores and no rows of their own. Use a jde.TableConfig where rows "
        "come and go."
    )


def _corrected(
    chunks: Iterator[Exported], residual: Iterator[Exported]
) -> Iterator[Exported]:
    """Adds the rows of a residual to those of the cores: what a lookup reads."""
    parts = [(part.keys, part.rows) for part in residual]
    for chunk in chunks:
        rows = np.array(chunk.rows)
        first = int(chunk.keys[0])  # keys of a chunk are in order, without gaps
        for keys, corrections in parts:
            here = (keys >= first) & (keys < first + len(rows))
            rows[keys[here] - first] += corrections[here]
        yield chunk._replace(rows=rows)


def _added(a: dict[str, jax.Array], b: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Adds what both have by feature: rows of cores and of their residual."""
    return a | {f: a[f] + x if f in a else x for f, x in b.items()}
