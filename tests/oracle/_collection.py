# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables under one roof: `Tables` with the state kept inside."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ._bags import (
    Bags,
    as_int64,
    bag_scales,
    bags_of,
    of_each_id,
    pool,
    position_factors,
)
from ._optimizers import SUMS_SQUARES, due_decay, updated_row
from ._rules import keys_to_remove
from ._table import PADDING, RESERVED, ReferenceTable, Row

Arrays = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class ReferenceResidual:
    """Holds what a lookup passes to `apply_gradients`, for one feature.

    Attributes:
        weights: one for each id, or None.
        rows: the row of each stored key of the input, as it was then.
        values: float[n, dim], the row read for each id.
    """

    bags: Bags
    weights: Any
    rows: dict[int, Row]
    values: np.ndarray


class Use(NamedTuple):
    """Holds one position of a lookup: its key, how many uses it is, its score."""

    key: int
    count: int = 1
    score: int | None = None


class ReferenceTables:
    """The oracle of `jax_dynemb.Tables`.

    It takes the same configurations and offers the same operations. Only the
    state is not passed around: it lives in the object, and `init` resets it.
    """

    def __init__(self, tables: Iterable[Any], seed: int = 0):
        """Makes empty tables from `TableConfig` objects."""
        self.configs = {config.name: config for config in tables}
        self.features = {
            feature: name
            for name, config in self.configs.items()
            for feature in config.feature_names
        }
        self.init(seed)

    def init(self, seed: int = 0) -> None:
        """Empties everything, counters too."""
        self.seed = seed
        self.tables = {
            name: ReferenceTable(config, seed) for name, config in self.configs.items()
        }

    def lookup(
        self,
        ids: Arrays,
        weights: Arrays | None = None,
        scores: Arrays | None = None,
        *,
        counts: Arrays | None = None,
        now: int | None = None,
        touch: bool = True,
        insert: bool = True,
    ) -> tuple[dict[str, np.ndarray], dict[str, ReferenceResidual]]:
        """Reads rows for training; unseen ids that may have one get a row before."""
        weights = weights or {}
        inputs = {f: self._bags(f, x) for f, x in ids.items()}
        for name, features in self._by_table(ids).items():
            table, given = self.tables[name], scores or {}
            own = given.get(name)
            if own is not None and np.ndim(own) > 0:  # a feature of that name
                own = None
            uses = [
                use
                for f in features
                for use in _uses(inputs[f], f, counts or {}, given, own)
            ]
            table.tick(now)
            kept = self._admitted(table, uses, insert and table.config.insert)
            stays = None
            if table.config.on_full == "compete":
                stays = table.score(None, 1, None if own is None else int(own))
            self._insert_unseen(table, kept, touch, stays)
            table.counts["lookups"] += 1
        out, residual = {}, {}
        for feature, bags in inputs.items():
            table = self.tables[self.features[feature]]
            values, rows = _read(table, bags, table.config.initializer)
            residual[feature] = ReferenceResidual(
                bags, weights.get(feature), rows, values
            )
            if getattr(table.config.optimizer, "decays_lookups", False):
                values = values * _due_decays(table, bags, rows)
            out[feature] = _output(table.config, bags, values, weights.get(feature))
        return out, residual

    def find(
        self, ids: Arrays, weights: Arrays | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Reads rows for serving and changes nothing."""
        out, found = {}, {}
        for feature, x in ids.items():
            table = self.tables[self.features[feature]]
            bags = self._bags(feature, x)
            values, rows = _read(table, bags, table.config.eval_initializer)
            out[feature] = _output(
                table.config, bags, values, (weights or {}).get(feature)
            )
            hits = [int(key) in rows for key in bags.keys]
            found[feature] = np.array(hits, bool).reshape(bags.input_shape)
        return out, found

    def apply_gradients(
        self, residual: Any, d_rows: Any, *, learning_rate: float | None = None
    ) -> None:
        """One optimizer update of every touched row.

        Args:
            residual: from `lookup`, or a list of them.
            d_rows: one gradient for each output of the lookup, or a list.
            learning_rate: takes the place of the optimizers' own.
        """
        if isinstance(residual, Mapping):
            residual, d_rows = [residual], [d_rows]
        for name, features in self._by_table(residual[0]).items():
            table = self.tables[name]
            if not table.config.trainable or table.config.optimizer.kind == "none":
                continue
            sums: dict[int, np.ndarray] = {}
            for one, d_one in zip(residual, d_rows, strict=True):
                for feature in features:
                    _add_gradients(table, one[feature], d_one[feature], sums)
            self._update(table, sums, learning_rate)

    def weight_gradients(self, residual: Any, d_rows: Any) -> dict[str, np.ndarray]:
        """Computes each weight's gradient: its bag's gradient times its row."""
        out = {}
        for feature, r in residual.items():
            pooling = self._config(feature).pooling
            d = np.asarray(d_rows[feature], np.float64)
            d = d.reshape(r.bags.num_bags, r.values.shape[-1])
            d = _limited(self._config(feature), d)
            d = d * bag_scales(r.bags, pooling)[:, None]
            inner = np.sum(of_each_id(r.bags, d) * r.values.astype(np.float64), axis=-1)
            out[feature] = inner.reshape(r.bags.input_shape)
        return out

    def insert(
        self,
        ids: Arrays,
        rows: Arrays,
        *,
        optimizer_state: Mapping[str, Arrays] | None = None,
        scores: Arrays | None = None,
    ) -> None:
        """Writes rows; the last of equal ids wins."""
        for name, x in ids.items():
            table = self.tables[name]
            given = (optimizer_state or {}).get(name, {})
            words = (scores or {}).get(name)
            keys = as_int64(x).view(np.uint64).copy()
            if table.config.nonfinite == "skip":
                skipped = [
                    not _is_finite_row(rows[name][i], given, i)
                    for i in range(len(keys))
                ]
                table.counts["nonfinite"] += int(np.sum(keys[skipped] != PADDING))
                keys[skipped] = PADDING
            table.tick()
            uses = [Use(int(key)) for key in keys if key != PADDING]
            self._insert_unseen(table, uses)
            for i, key in enumerate(keys):
                row = table.get(int(key))
                if row is None:
                    continue  # padding, or refused
                row.values = np.asarray(rows[name][i]).astype(row.values.dtype)
                if words is not None:
                    row.score = table.restore(int(words[i]))
                for leaf, array in given.items():
                    row.state[leaf] = np.asarray(array[i], row.state[leaf].dtype)

    def erase(self, ids: Arrays) -> None:
        """Forgets ids."""
        for name, x in ids.items():
            for key in as_int64(x).view(np.uint64).reshape(-1):
                self.tables[name].erase(int(key))

    def pin(self, ids: Arrays, pins: bool = True) -> None:
        """Keeps the rows of ids, or lets them go."""
        for name, x in ids.items():
            for key in as_int64(x).view(np.uint64).reshape(-1):
                row = self.tables[name].get(int(key))
                if row is not None:
                    row.pinned = pins

    def hold(self, ids: Arrays, lookups: int) -> None:
        """Keeps the rows of ids during so many lookups that come."""
        for name, x in ids.items():
            for key in as_int64(x).view(np.uint64).reshape(-1):
                self.tables[name].hold(int(key), lookups)

    def erase_where(self, rules: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Removes rows by rule, its fields by table; says how many left."""
        removed = {}
        for name, fields in rules.items():
            keys = keys_to_remove(self.tables[name], **fields)
            self.tables[name].remove_by_rule(keys)
            removed[name] = len(keys)
        return removed

    def clear(self) -> None:
        """Empties everything and keeps the seed and the clocks."""
        clocks = {name: table.clock for name, table in self.tables.items()}
        self.init(self.seed)
        for name, clock in clocks.items():
            self.tables[name].clock = clock

    def grow(self, tables: Iterable[Any]) -> None:
        """Takes the larger tables' `TableConfig` objects for those of their names."""
        for config in tables:
            self.configs[config.name] = config
            self.tables[config.name].grow(config)

    def export(self, name: str, *, min_score: int = 0) -> dict[int, Row]:
        """All rows of one table under their signed ids."""
        return {
            key - 2**64 if key >> 63 else key: row
            for key, row in self.tables[name].items()
            if row.score >= min_score
        }

    def stats(self) -> dict[str, float | int]:
        """Computes what `Tables.stats` gives."""
        out: dict[str, float | int] = {}
        for name, table in self.tables.items():
            capacity = table.config.num_slots
            out[f"{name}/rows"] = len(table)
            out[f"{name}/capacity"] = capacity
            out[f"{name}/load_factor"] = len(table) / capacity
            out[f"{name}/fullest_bucket"] = table.fullest_bucket()
            out[f"{name}/mean_bucket"] = len(table) / len(table.buckets)
            out[f"{name}/step"] = table.step
            out[f"{name}/pinned"] = sum(row.pinned for _, row in table.items())
            out |= {f"{name}/{key}": count for key, count in table.counts.items()}
        return out

    def _config(self, feature: str) -> Any:
        return self.configs[self.features[feature]]

    def _bags(self, feature: str, ids: Any) -> Bags:
        return bags_of(ids, self._config(feature).pooling is not None)

    def _by_table(self, features: Iterable[str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for feature in features:
            groups.setdefault(self.features[feature], []).append(feature)
        return groups

    def _admitted(
        self, table: ReferenceTable, uses: list[Use], inserts: bool
    ) -> list[Use]:
        """Counts hits and misses; returns the uses without those that are kept out."""
        counts: dict[int, int] = {}
        for use in uses:
            if _storable(use.key):
                counts[use.key] = counts.get(use.key, 0) + use.count
        unseen = {k: n for k, n in counts.items() if table.get(k) is None}
        table.counts["misses"] += sum(unseen.values())
        table.counts["hits"] += sum(counts.values()) - sum(unseen.values())
        lookup = table.counts["lookups"] + 1
        out = table.admission.kept_out(unseen, lookup) if inserts else set(unseen)
        table.counts["not_admitted"] += sum(unseen[k] for k in out)
        return [use for use in uses if use.key not in out]

    def _insert_unseen(
        self,
        table: ReferenceTable,
        uses: list[Use],
        touch: bool = True,
        stays: int | None = None,
    ) -> None:
        occurrences: dict[int, int] = {}
        storable: dict[int, tuple[int, int | None]] = {}  # count, highest score
        for key, count, score in uses:
            occurrences[key] = occurrences.get(key, 0) + 1
            if _storable(key):
                total, best = storable.get(key, (0, None))
                scores_given = [x for x in (best, score) if x is not None]
                storable[key] = total + count, max(scores_given, default=None)
        scores = {
            k: table.score(table.get(k), n, best) for k, (n, best) in storable.items()
        }
        there = {key for key in scores if table.get(key) is not None}
        refused = table.insert(scores, evicts=touch, stays=stays)
        for key in scores.keys() - refused - (set() if touch else there):
            row = table.get(key)
            assert row is not None
            row.score, row.used = scores[key], table.clock
        refused |= occurrences.keys() - storable.keys()
        table.counts["refused"] += sum(occurrences[key] for key in refused)

    def _update(
        self,
        table: ReferenceTable,
        sums: dict[int, np.ndarray],
        learning_rate: float | None,
    ) -> None:
        hyper = hyper_parameters(table.config.optimizer, table.step)
        if "initial_accumulator_value" in hyper:  # as the array of `n` holds it
            first = table.config.states["n"].initial
            hyper["initial_accumulator_value"] = first
        if learning_rate is not None:
            hyper["learning_rate"] = learning_rate
        table.step += 1
        for key, g in sums.items():
            row = table.get(key)
            assert row is not None
            if table.config.nonfinite == "skip" and not _is_usable(table, g):
                table.counts["nonfinite"] += 1
                continue
            values, state = updated_row(
                table.config.optimizer.kind, hyper, table.step, row, g
            )
            row.values = table.stored(key, values)
            row.state = {
                n: table.stored_state(key, n, x)
                if n in dict(table.config.state_dtype)
                else x.astype(row.state[n].dtype)
                for n, x in state.items()
            }


def _uses(
    bags: Bags, feature: str, counts: Arrays, scores: Arrays, of_table: Any
) -> list[Use]:
    """The positions of a feature that are no padding."""
    n = len(bags.keys)
    own = scores.get(feature, of_table)
    each = np.broadcast_to(np.asarray(own, object).reshape(-1), n)
    many = np.broadcast_to(np.asarray(counts.get(feature, 1)).reshape(-1), n)
    pairs = zip(bags.keys, many, each, strict=True)
    uses = [
        Use(int(key), int(count), None if score is None else int(score))
        for key, count, score in pairs
    ]
    return [use for use, valid in zip(uses, bags.valid, strict=True) if valid]


def hyper_parameters(optimizer: Any, count: int) -> dict[str, float]:
    """Evaluates the numbers of an optimizer; schedules take the updates so far."""
    rate: Any = optimizer.learning_rate
    others = getattr(optimizer, "numbers", None)  # of the tuned ones: attributes
    if others is None:
        names = ("eps", "b1", "b2", "weight_decay")
        others = [(name, getattr(optimizer, name)) for name in names]
    rate = rate if isinstance(rate, (int, float)) else rate(count)
    return {"learning_rate": float(rate)} | {n: float(x) for n, x in others}


def _is_finite_row(values: Any, states: Arrays, i: int) -> bool:
    arrays = [values, *(array[i] for array in states.values())]
    return all(np.isfinite(np.asarray(x, np.float64)).all() for x in arrays)


def _is_usable(table: ReferenceTable, g: np.ndarray) -> bool:
    """Tell whether a summed gradient is finite, and its squares where they count."""
    with np.errstate(over="ignore", invalid="ignore"):
        if table.config.optimizer.kind in SUMS_SQUARES:
            return bool(np.isfinite(np.sum(g.astype(np.float32) ** 2)))
        return bool(np.isfinite(g.astype(np.float32)).all())


def _storable(key: int) -> bool:
    return key != PADDING and key not in RESERVED


def _read(
    table: ReferenceTable, bags: Bags, initializer: Any
) -> tuple[np.ndarray, dict[int, Row]]:
    """One row for each id: stored, else from `initializer`; padding is zero."""
    distinct, inverse = np.unique(bags.keys, return_inverse=True)
    values = table.initial_values(distinct, initializer)
    rows: dict[int, Row] = {}
    for i, key in enumerate(distinct):
        row = table.get(int(key))
        if row is not None:
            rows[int(key)] = row
            values[i] = row.values
    return np.where(bags.valid[:, None], values[inverse], 0), rows


def _due_decays(table: ReferenceTable, bags: Bags, rows: dict[int, Row]) -> np.ndarray:
    """float64[n, 1], the factor of each id's row; 1 for an id without one."""
    hyper = hyper_parameters(table.config.optimizer, table.step)
    due = {k: due_decay(hyper, table.step + 1, row.state) for k, row in rows.items()}
    return np.array([due.get(int(key), 1.0) for key in bags.keys]).reshape(-1, 1)


def _output(config: Any, bags: Bags, values: np.ndarray, weights: Any) -> np.ndarray:
    return pool(bags, values, weights, config.pooling).astype(config.dtype)


def _limited(config: Any, d_out: np.ndarray) -> np.ndarray:
    limit = config.max_gradient
    return d_out if limit is None else np.clip(d_out, -limit, limit)


def _add_gradients(
    table: ReferenceTable, residual: ReferenceResidual, d_out: Any, sums: dict
) -> None:
    """Adds each position's gradient to the sum of its row, if that still lives."""
    bags = residual.bags
    d_out = np.asarray(d_out, np.float64).reshape(bags.num_bags, table.config.dim)
    d_out = _limited(table.config, d_out)
    factors = position_factors(bags, residual.weights, table.config.pooling)
    distinct, inverse, occurrences = np.unique(
        bags.keys, return_inverse=True, return_counts=True
    )
    totals = np.zeros((len(distinct), table.config.dim))
    np.add.at(totals, inverse, factors[:, None] * of_each_id(bags, d_out))
    for key, total, n in zip(distinct, totals, occurrences, strict=True):
        row = residual.rows.get(int(key))
        if row is None:
            continue  # padding, or refused
        if table.get(int(key)) is not row:
            table.counts["lost_updates"] += int(n)
            continue
        sums[int(key)] = sums.get(int(key), 0) + total
