# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Feeds the library and the oracle with the same calls, for all tests."""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb.lifecycle import Rule
from oracle import ReferenceTables

# This is the golden numbers' tolerance for float32 arithmetic.
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}
# Two units in the last place, for rows that were rounded to the storage type.
STORAGE_RTOL = {"float32": 0.0, "bfloat16": 2.0**-6, "float16": 2.0**-9}


@dataclasses.dataclass(frozen=True)
class HostJagged:
    """`jde.Jagged` with int64 ids in NumPy."""

    values: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, bags: Sequence[Sequence[int]], capacity: int) -> "HostJagged":
        """Makes one from lists of ids; the rest of `capacity` is junk ids."""
        values = np.full(capacity, 987_654_321, np.int64)
        flat = [key for bag in bags for key in bag]
        values[: len(flat)] = flat
        return cls(values, np.array([len(bag) for bag in bags], np.int32))


TRAIN_WORDS = 46


def without_identity(counters: Any) -> np.ndarray:
    """Returns counters with zeros for what differs between two runs of one program.

    Arrays of another shape are returned as they are, so leaves of any tree may come.
    """
    result = np.array(counters)
    names = _ffi.constants()["counters"]
    if result.shape == (TRAIN_WORDS,) and result.dtype == np.uint32:
        result[8:] = 0  # of a tensor train
    if result.shape[1:] != (len(names), 2):
        return result
    result[:, [names.index("stamp"), *range(names.index("stamp_high"), len(names))]] = 0
    return result


def to_device(ids: Any) -> Any:
    """Host ids to what the library takes."""
    if isinstance(ids, HostJagged):
        return jde.Jagged(jde.ids(ids.values), jnp.asarray(ids.lengths))
    return jde.ids(np.asarray(ids, np.int64))


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The jitted operations of a collection; each donates the state."""

    lookup: Callable
    find: Callable
    apply_gradients: Callable
    weight_gradients: Callable
    insert: Callable
    erase: Callable
    erase_where: Callable


@functools.cache
def compiled(coll: jde.Tables) -> Compiled:
    """One set of jitted operations for equal collections, so equal programs."""

    def lookup(
        state, ids, weights, scores, counts=None, now=None, touch=True, insert=True
    ):
        return coll.lookup(
            state,
            ids,
            weights,
            scores,
            counts=counts,
            now=now,
            touch=touch,
            insert=insert,
        )

    def find(state, ids, weights):
        return coll.find(state, ids, weights=weights)

    def apply_gradients(state, residual, d_rows, learning_rate):
        return coll.apply_gradients(
            state, residual, d_rows, learning_rate=learning_rate
        )

    def insert(state, ids, rows, optimizer_state, scores, unique_ids=False):
        return coll.insert(
            state,
            ids,
            rows,
            optimizer_state=optimizer_state,
            scores=scores,
            unique_ids=unique_ids,
        )

    jit = functools.partial(jax.jit, donate_argnums=0)
    return Compiled(
        lookup=jit(lookup, static_argnames=("touch", "insert")),
        find=jit(find),
        apply_gradients=jit(apply_gradients),
        weight_gradients=jit(coll.weight_gradients),
        insert=jit(insert, static_argnums=5),
        erase=jit(coll.erase),
        erase_where=jit(coll.erase_where),
    )


class Twins:
    """One collection and its oracle. Every call goes to both and is compared.

    Attributes:
        coll: the collection.
        state: its state, replaced by every call.
        oracle: the reference.
    """

    def __init__(self, *tables: jde.TableConfig, seed: int = 0, **placement: Any):
        """Makes empty tables on the default device, or on a mesh."""
        self.coll = jde.Tables(tables, **placement)
        self.jit = compiled(self.coll)
        self.state = self.coll.init(seed)
        self.oracle = ReferenceTables(tables, seed)

    def lookup(
        self,
        ids: Mapping[str, Any],
        weights: Any = None,
        scores: Any = None,
        counts: Any = None,
        now: int | None = None,
        **flags: bool,
    ) -> tuple[dict[str, np.ndarray], tuple[Any, Any]]:
        """Looks up for training and returns the rows and both residuals."""
        words = None if now is None else np.array([now], np.uint64).view(np.uint32)
        on_device = (
            _map(to_device, ids),
            _floats(weights),
            _words(scores),
            counts,
            words,
        )
        rows, residual, self.state = self.jit.lookup(self.state, *on_device, **flags)
        expected, expected_residual = self.oracle.lookup(
            ids, weights, scores, counts=counts, now=now, **flags
        )
        self.assert_rows(rows, expected)
        return _host(rows), (residual, expected_residual)

    def find(
        self, ids: Mapping[str, Any], weights: Any = None
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Looks up for serving and returns the rows and what was found."""
        rows, found, self.state = self.jit.find(
            self.state, _map(to_device, ids), _floats(weights)
        )
        expected, expected_found = self.oracle.find(ids, weights)
        self.assert_rows(rows, expected)
        assert found.keys() == expected_found.keys()
        for feature in found:
            np.testing.assert_array_equal(found[feature], expected_found[feature])
        return _host(rows), _host(found)

    def apply(
        self, residuals: tuple[Any, Any], d_rows: Any, learning_rate: Any = None
    ) -> None:
        """Updates both by the gradients of the rows."""
        residual, expected_residual = residuals
        rate = None if learning_rate is None else jnp.float32(learning_rate)
        self.state = self.jit.apply_gradients(
            self.state, residual, self._cotangents(d_rows), rate
        )
        self.oracle.apply_gradients(
            expected_residual, d_rows, learning_rate=learning_rate
        )

    def train(self, ids: Mapping[str, Any], weights: Any = None, *, seed: int) -> None:
        """One step with random gradients."""
        rows, residuals = self.lookup(ids, weights)
        self.apply(residuals, {f: gradients(x.shape, seed) for f, x in rows.items()})

    def weight_gradients(
        self, residuals: tuple[Any, Any], d_rows: Any
    ) -> dict[str, np.ndarray]:
        """The gradients of the weights."""
        residual, expected_residual = residuals
        got, self.state = self.jit.weight_gradients(
            self.state, residual, self._cotangents(d_rows)
        )
        expected = self.oracle.weight_gradients(expected_residual, d_rows)
        assert got.keys() == expected.keys()
        for feature in got:
            np.testing.assert_allclose(got[feature], expected[feature], **TOLERANCE)
        return _host(got)

    def insert(
        self,
        ids: Mapping[str, Any],
        rows: Mapping[str, Any],
        optimizer_state: Any = None,
        scores: Any = None,
        unique_ids: bool = False,
    ) -> None:
        """Writes rows into both."""
        rows = _floats(rows)
        self.state = self.jit.insert(
            self.state,
            _map(to_device, ids),
            rows,
            optimizer_state,
            None if scores is None else _map(score_words, scores),
            unique_ids,
        )
        self.oracle.insert(ids, rows, optimizer_state=optimizer_state, scores=scores)

    def erase(self, ids: Mapping[str, Any]) -> None:
        """Erases from both."""
        self.state = self.jit.erase(self.state, _map(to_device, ids))
        self.oracle.erase(ids)

    def erase_where(self, rules: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Removes rows by rule from both, and says how many left."""
        given = {name: Rule(**fields) for name, fields in rules.items()}
        foreseen, _ = self.coll.erase_where(self.state, given, dry_run=True)
        removed, self.state = self.jit.erase_where(self.state, given)
        expected = self.oracle.erase_where(rules)
        assert _map(int, foreseen) == _map(int, removed) == expected
        return expected

    def check(self, tolerance: Mapping[str, float] = TOLERANCE) -> None:
        """Compares everything that both hold."""
        want, got = self.oracle.stats(), self.coll.stats(self.state)
        if self.coll.placement is not None:
            for table in [t for t in self.coll.tables if self._counts_once(t)]:
                names = [f"{table}/hits", f"{table}/misses"]
                assert sum(got[n] for n in names) == sum(want[n] for n in names)
                assert got[names[1]] <= want[names[1]]
                for name in names:
                    del want[name]
        assert_stats(got, want)
        for name in self.coll.tables:
            self.assert_table(name, tolerance)

    def _counts_once(self, table: str) -> bool:
        """Whether an owner sees an id once, however often a device has it."""
        config = self.coll.tables[table]
        splits = config.sharding in ("row_wise", "table_wise")
        return splits and config.admission is None

    def assert_rows(self, rows: Any, expected: Any) -> None:
        """Compares what a lookup gave."""
        assert rows.keys() == expected.keys()
        for feature, got in rows.items():
            want = expected[feature]
            assert got.shape == want.shape, feature
            config = self.coll.tables[self.coll.features[feature]]
            assert got.dtype == config.dtype, feature
            assert_close(got, want, config.param_dtype, config.dtype)

    def assert_table(self, name: str, tolerance: Mapping[str, float]) -> None:
        """Compares one table's rows, whatever their slots are."""
        got = Rows.of(export(self.coll, self.state, name))
        want = Rows.of(self.oracle.export(name))
        np.testing.assert_array_equal(got.keys, want.keys)
        config = self.coll.tables[name]
        assert_close(got.values, want.values, config.param_dtype, tolerance=tolerance)
        assert got.state.keys() == want.state.keys()
        for leaf in got.state:
            np.testing.assert_allclose(got.state[leaf], want.state[leaf], **tolerance)
        if (
            config.score_strategy is not jde.ScoreStrategy.TIMESTAMP
        ):  # those are the host's clock
            np.testing.assert_array_equal(got.scores, want.scores)

    def _cotangents(self, d_rows: Any) -> Any:
        if isinstance(d_rows, list):  # of several lookups
            return [self._cotangents(each) for each in d_rows]
        return {
            feature: jnp.asarray(d, self.coll.tables[self.coll.features[feature]].dtype)
            for feature, d in d_rows.items()
        }


@dataclasses.dataclass(frozen=True)
class HostRow:
    """One exported row."""

    values: np.ndarray
    state: dict[str, np.ndarray]
    score: int


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a table in the order of their ids; one comparison is for all."""

    keys: np.ndarray
    values: np.ndarray
    state: dict[str, np.ndarray]
    scores: np.ndarray

    @classmethod
    def of(cls, rows: Mapping[int, Any]) -> "Rows":
        """Makes one from what ``export`` or the oracle's returned."""
        keys = sorted(rows)
        ordered = [rows[key] for key in keys]
        leaves = {leaf for row in ordered for leaf in row.state}
        return cls(
            np.array(keys, np.int64),
            np.array([row.values for row in ordered]),
            {leaf: np.array([row.state[leaf] for row in ordered]) for leaf in leaves},
            np.array([row.score for row in ordered], np.uint64),
        )


def export(
    coll: jde.Tables, state: Any, name: str, **options: Any
) -> dict[int, HostRow]:
    """All rows of a table under their ids; a key in two chunks is an error."""
    out: dict[int, HostRow] = {}
    for chunk in coll.export(state, name, **options):
        assert chunk.keys.dtype == np.int64 and chunk.scores.dtype == np.uint64
        states = chunk.optimizer_state
        scores = chunk.scores.tolist()
        for i, key in enumerate(chunk.keys.tolist()):
            assert key not in out
            leaves = {leaf: x[i] for leaf, x in states.items()}
            out[key] = HostRow(chunk.rows[i], leaves, scores[i])
    return out


def assert_same_rows(got: Mapping[int, HostRow], want: Mapping[int, HostRow]) -> None:
    """Compares what ``export`` returned, bit by bit."""
    assert got.keys() == want.keys()
    ours, theirs = Rows.of(got), Rows.of(want)
    np.testing.assert_array_equal(ours.values, theirs.values)
    np.testing.assert_array_equal(ours.scores, theirs.scores)
    for name in ours.state:
        np.testing.assert_array_equal(ours.state[name], theirs.state[name])


def assert_close(
    got: Any,
    want: Any,
    *dtypes: Any,
    tolerance: Mapping[str, float] = TOLERANCE,
) -> None:
    """Compares rows to the tolerance of the coarsest type they went through."""
    rtol = max(tolerance["rtol"], *(STORAGE_RTOL[str(np.dtype(d))] for d in dtypes))
    np.testing.assert_allclose(
        np.asarray(got, np.float64),
        np.asarray(want, np.float64),
        rtol=rtol,
        atol=max(tolerance["atol"], rtol / 4 if rtol > 1e-3 else 0),
    )


def came_back(oracle: ReferenceTables, residual: Any) -> set[int]:
    """The keys whose rows left after a lookup, and which were stored again.

    The new row may lie in the old slot or in another: whether the update reaches it is
    not defined.
    """
    return {
        key
        for feature, r in residual.items()
        for key, row in r.rows.items()
        if oracle.tables[oracle.features[feature]].get(key) not in (row, None)
    }


def assert_stats(got: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """Compares the counters that the oracle knows."""
    assert {key: got[key] for key in want} == dict(want)


def assert_optax_equals_one_device(tables: Sequence[jde.TableConfig], mesh: Any):
    """Trains tables "a" and "b", not both in each step; the oracle knows no optax."""
    trained = []
    for coll in (jde.Tables(tables), jde.Tables(tables, mesh=mesh)):
        state, jit = coll.init(0), compiled(coll)
        for step, names in enumerate(["a", "ab", "a"]):
            ids = {name: jde.ids(np.arange(step, 20)) for name in names}
            rows, residual, state = jit.lookup(state, ids, None, None)
            d_rows = {name: gradients(x.shape, step) for name, x in rows.items()}
            state = jit.apply_gradients(state, residual, d_rows, None)
        trained.append({name: export(coll, state, name) for name in "ab"})
    for name in "ab":
        alone, ours = (each[name] for each in trained)
        assert alone.keys() == ours.keys() and len(alone) > 0
        want, got = Rows.of(alone), Rows.of(ours)
        assert_close(got.values, want.values, "float32")
        assert got.state.keys() == want.state.keys() != set()
        for leaf, value in got.state.items():
            assert_close(value, want.state[leaf], "float32")


def stat(twins: Twins, name: str) -> Any:
    """One of the counters of the library."""
    return twins.coll.stats(twins.state)[name]


def score_words(scores: Any) -> np.ndarray:
    """uint64 scores as the library takes them: pairs of 32-bit words."""
    return np.asarray(scores, np.uint64)[..., None].view(np.uint32)


def random_batch(seed: int = 0, size: int = 32) -> dict[str, jax.Array]:
    """Ids of a feature "a", of a padded "b", and of bags."""
    rng = np.random.default_rng(seed)
    shapes = {"a": (size,), "b": (size, 2), "bag": (size, 3)}
    return {f: jde.ids(rng.integers(-1, 10**9, shape)) for f, shape in shapes.items()}


def train_step(coll: jde.Tables, state: Any, ids: Mapping[str, Any]) -> Any:
    """A lookup, and an update that makes its rows smaller."""
    rows, residual, state = coll.lookup(state, ids)
    d_rows = jax.grad(lambda rows: sum(jnp.sum(x**2) for x in rows.values()))(rows)
    return coll.apply_gradients(state, residual, d_rows)


def gradients(shape: Sequence[int], seed: int) -> np.ndarray:
    """Multiples of 1/16, so that sums of thousands of them are exact in float32."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-16, 17, tuple(shape)) / 16).astype(np.float32)


def _map(function: Callable, values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: function(value) for key, value in values.items()}


def _words(scores: Any) -> Any:
    """Scores of 64 bits as jit takes them."""
    if scores is None:
        return None

    def one(x: Any) -> Any:
        wide = not isinstance(x, jax.Array) and np.asarray(x).dtype.itemsize == 8
        return jde.scores(x) if wide else x

    return {name: one(x) for name, x in scores.items()}


def _floats(values: Mapping[str, Any] | None) -> dict[str, np.ndarray] | None:
    if values is None:
        return None
    return {key: np.asarray(value, np.float32) for key, value in values.items()}


def _host(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {key: np.asarray(value) for key, value in values.items()}


def zipf(seed: int, size: int, ids: int = 400) -> np.ndarray:
    """Ids as a stream has them, with some padding."""
    rng = np.random.default_rng(seed)
    drawn = rng.zipf(1.2, size) % ids
    return np.where(rng.random(size) < 0.05, -1, drawn).astype(np.int64)


def stored(twins: Twins) -> set[int]:
    """The ids that table "t" has rows of."""
    return set(export(twins.coll, twins.state, "t"))


def advised_capacity(error: BaseException) -> int:
    """The capacity that a sentence tells a user to declare."""
    found = re.search(r"capacity=(\d+)", str(error))
    assert found is not None, error
    return int(found[1])
