# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Weights of bags count in every public lookup, inside a Jagged and beside it."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_dynemb as jde
from meshes import mesh_of
from support import without_identity

KEYS = np.array([5, 6, 7, 5, 11, 0, 6, 3])
BAGS, DIM = 4, 6
LENGTHS = st.lists(st.integers(0, 3), min_size=BAGS, max_size=BAGS).filter(
    lambda lengths: sum(lengths) <= len(KEYS)
)
WEIGHTS = st.lists(st.integers(-4, 4), min_size=len(KEYS), max_size=len(KEYS))
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
RANKS = {"ranks": (3, 3), "num_embeddings": 20, "compute_dtype": "float32"}
# Of bags and weights to pooled rows, and a row for each key.
Lookup = tuple[Callable[[jde.Jagged, Any], Any], np.ndarray]


def bags(lengths: Any, weights: Any = None) -> jde.Jagged:
    return jde.Jagged(jde.ids(KEYS), lengths, weights)


def dynamic(pooling: str | None = "sum") -> jde.TableConfig:
    return jde.TableConfig("t", DIM, 256, pooling=pooling)


def train(pooling: str | None = "sum") -> jde.TTConfig:
    sgd = jde.optim.sgd(0.5)
    return jde.TTConfig("t", DIM, pooling=pooling, optimizer=sgd, **RANKS)


def rows_of(table: Any, mesh: Any = None) -> tuple[jde.Tables, Any, np.ndarray]:
    """Tables that have the keys, and the rows of the keys without pooling."""
    coll = jde.Tables([table(None)], mesh)
    rows, _, state = coll.lookup(coll.init(3), {"t": jde.ids(KEYS)})
    return coll.with_tables([table()]), state, np.asarray(rows["t"])


def of_tables(table: Any, call: str, mesh: Any = None) -> Lookup:
    coll, state, rows = rows_of(table, mesh)

    def look_up(bag: jde.Jagged, weights: Any) -> Any:
        given = None if weights is None else {"t": weights}
        if call == "route":
            return coll.lookup(state, coll.route({"t": bag}, given))[0]["t"]
        return getattr(coll, call)(state, {"t": bag}, given)[0]["t"]

    return look_up, rows


def of_frozen() -> Lookup:
    coll, state, rows = rows_of(dynamic)
    served, tables = jde.export.frozen(coll, state)

    def look_up(bag: jde.Jagged, weights: Any) -> Any:
        given = None if weights is None else {"t": weights}
        find = functools.partial(_find, served)
        arguments = tables, {"t": bag}, given
        data = jde.export.program(find, *arguments)
        return jde.export.load_program(data).call(*arguments)

    return look_up, rows


def _find(coll: jde.Tables, state: Any, ids: Any, weights: Any) -> Any:
    return coll.find(state, ids, weights)[0]["t"]


def of_cores(call: str) -> Lookup:
    state, whole = jde.tt.init(train(), 3), train(None)
    rows = np.asarray(jde.tt.find(whole, state.cores, jde.ids(KEYS)))

    def look_up(bag: jde.Jagged, weights: Any) -> Any:
        if call == "find":
            return jde.tt.find(train(), state.cores, bag, weights)
        return jde.tt.lookup(train(), state, bag, weights)[0]

    return look_up, rows


def of_tt_module() -> Lookup:
    module = jde.TTEmbeddingBag(20, DIM, (3, 3), rngs=nnx.Rngs(0))
    rows = np.asarray(module(jde.ids(KEYS[:, None])))
    module.eval()
    return lambda bag, weights: module(bag, None, weights), rows


def of_module(call: str, mesh: Any = None) -> Lookup:
    module = jde.nnx.EmbeddingBagCollection([dynamic()], rngs=nnx.Rngs(0), mesh=mesh)
    rows = np.asarray(module({"t": jde.ids(KEYS[:, None])})["t"])
    module.eval()

    def look_up(bag: jde.Jagged, weights: Any) -> Any:
        given = None if weights is None else {"t": weights}
        if call == "route":
            return module(module.route({"t": bag}, given))["t"]
        return module({"t": bag}, given)["t"]

    return look_up, rows


def of_torchrec(call: str) -> Lookup:
    module = jde.torchrec.EmbeddingBagCollection(
        [dynamic()], is_weighted=True, rngs=nnx.Rngs(0)
    )
    ones = {"t": jnp.ones((len(KEYS), 1))}
    rows = module({"t": jde.ids(KEYS[:, None])}, weights=ones)
    module.eval()

    def look_up(bag: jde.Jagged, weights: Any) -> Any:
        given = None if weights is None else {"t": weights}
        batch: Any = {"t": bag}
        if call == "route" and given is None:
            batch = module.route(batch)
        elif call == "jagged_tensor" and given is None:
            jt = jde.torchrec.JaggedTensor
            batch = {"t": jt(bag.values, lengths=bag.lengths, weights=bag.weights)}
        return module(batch, weights=given)["t"]

    return look_up, np.asarray(rows["t"])


LOOKUPS: dict[str, Callable[[], Lookup]] = {
    "Tables.lookup": lambda: of_tables(dynamic, "lookup"),
    "Tables.find": lambda: of_tables(dynamic, "find"),
    "Tables.route": lambda: of_tables(dynamic, "route"),
    "Tables.lookup, mesh": lambda: of_tables(dynamic, "lookup", mesh_of(2)),
    "Tables.route, mesh": lambda: of_tables(dynamic, "route", mesh_of(2)),
    "Tables.lookup, cores": lambda: of_tables(train, "lookup"),
    "Tables.find, cores": lambda: of_tables(train, "find"),
    "frozen, program": of_frozen,
    "tt.lookup": lambda: of_cores("lookup"),
    "tt.find": lambda: of_cores("find"),
    "TTEmbeddingBag": of_tt_module,
    "EmbeddingBagCollection": lambda: of_module("call"),
    "EmbeddingBagCollection, mesh": lambda: of_module("call", mesh_of(2)),
    "EmbeddingBagCollection.route": lambda: of_module("route"),
    "torchrec": lambda: of_torchrec("call"),
    "torchrec, JaggedTensor": lambda: of_torchrec("jagged_tensor"),
    "torchrec.route": lambda: of_torchrec("route"),
}
DIFFERENTIABLE = [name for name in LOOKUPS if not name.startswith(("Tables", "frozen"))]


def beside(look_up: Any, lengths: Any, weights: Any) -> Any:
    return look_up(bags(lengths), weights)


def inside(look_up: Any, lengths: Any, weights: Any) -> Any:
    return look_up(bags(lengths, weights), None)


@functools.cache
def programs(name: str) -> Any:
    look_up, rows = LOOKUPS[name]()
    ways = [functools.partial(way, look_up) for way in (beside, inside)]
    jit = (lambda f: f) if name.startswith("frozen") else jax.jit
    return [jit(way) for way in ways], rows


@functools.cache
def gradients(name: str) -> Any:
    look_up, rows = LOOKUPS[name]()

    def loss(weights: Any, lengths: Any, cotangent: Any, way: Any) -> Any:
        return jnp.sum(way(look_up, lengths, weights) * cotangent)

    grad = jax.jit(jax.grad(loss), static_argnums=3)
    return [functools.partial(grad, way=way) for way in (beside, inside)], rows


def bag_of_each(lengths: list[int]) -> np.ndarray:
    """Finds the bag of each key; BAGS for those behind the last bag."""
    number = np.repeat(np.arange(BAGS), lengths)
    return np.pad(number, (0, len(KEYS) - len(number)), constant_values=BAGS)


@pytest.mark.parametrize("name", LOOKUPS)
@settings(max_examples=4)
@given(lengths=LENGTHS, weights=WEIGHTS)
def test_weights_inside_and_beside_are_factors_of_rows(name, lengths, weights):
    found, rows = programs(name)
    arrays = jnp.array(lengths, jnp.int32), jnp.array(weights, jnp.float32)
    wanted = np.zeros((BAGS + 1, DIM), np.float32)
    np.add.at(wanted, bag_of_each(lengths), rows * np.array(weights)[:, None])
    for way in found:
        np.testing.assert_allclose(way(*arrays), wanted[:BAGS], **CLOSE)


@pytest.mark.filterwarnings("ignore:.* plain nnx.grad")
@pytest.mark.parametrize("name", DIFFERENTIABLE)
@settings(max_examples=4)
@given(lengths=LENGTHS, weights=WEIGHTS)
def test_gradients_of_weights_inside_and_beside(name, lengths, weights):
    found, rows = gradients(name)
    cotangent = np.random.default_rng(sum(lengths)).normal(size=(BAGS, DIM))
    of_key = np.concatenate([cotangent, np.zeros((1, DIM))])[bag_of_each(lengths)]
    wanted = (of_key * rows).sum(axis=1)
    arrays = jnp.array(weights, jnp.float32), jnp.array(lengths, jnp.int32)
    for gradient in found:
        got = gradient(*arrays, jnp.asarray(cotangent, jnp.float32))
        np.testing.assert_allclose(got, wanted, **CLOSE)


@pytest.mark.parametrize("call", ["lookup", "route"])
@pytest.mark.parametrize("table", [dynamic, train], ids=["dynamic", "cores"])
def test_updates_are_those_of_weights_beside(table, call):
    coll, state, _ = rows_of(table)
    lengths, weights = jnp.array([2, 0, 3, 1]), jnp.array([1.0, -2, 3, 0, 0.5, 2, 1, 1])

    @jax.jit
    def step(state: Any, ids: Any, given: Any) -> Any:
        batch, given = (
            (coll.route(ids, given), None) if call == "route" else (ids, given)
        )
        rows, residual, state = coll.lookup(state, batch, given)
        of_weights, state = coll.weight_gradients(state, residual, rows)
        return of_weights, coll.apply_gradients(state, residual, rows)

    def numbers(result: Any) -> Any:
        return jax.tree.map(without_identity, result)

    one = numbers(step(state, {"t": bags(lengths)}, {"t": weights}))
    two = numbers(step(state, {"t": bags(lengths, weights)}, None))
    jax.tree.map(np.testing.assert_array_equal, one, two)


@pytest.mark.parametrize("name", LOOKUPS)
def test_weights_inside_and_beside_at_once_are_refused(name):
    weights = jnp.ones(len(KEYS))
    look_up, _ = LOOKUPS[name]()
    with pytest.raises(ValueError, match="give them once"):
        look_up(bags(jnp.array([1, 2, 0, 1]), weights), weights)


def test_a_table_of_an_id_a_row_takes_the_weights_inside_or_refuses_them():
    lengths, weights = jnp.array([1, 2, 0, 1]), jnp.ones(len(KEYS))
    module = jde.nnx.DynamicEmbed(
        features=DIM, capacity=256, pooling="sum", rngs=nnx.Rngs(0)
    )
    one = module(bags(lengths))
    np.testing.assert_allclose(module(bags(lengths, 2 * weights)), 2 * one, **CLOSE)
    single = jde.nnx.DynamicEmbed(features=DIM, capacity=256, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="does not pool"):
        single(bags(lengths, weights))


def test_torchrec_without_weights_refuses_those_of_a_jagged():
    module = jde.torchrec.EmbeddingBagCollection([dynamic()], rngs=nnx.Rngs(0))
    batch = {"t": bags(jnp.array([1, 2, 0, 1]), jnp.ones(len(KEYS)))}
    for call in (module, module.route):
        with pytest.raises(ValueError, match="is_weighted=True"):
            call(batch)
