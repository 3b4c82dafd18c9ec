# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows that move during the dense part change no bit of the plain loop."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch
from meshes import mesh_of
from support import assert_same_rows, export
from tiered import ADAM, TIER

WEIGHTS = jnp.asarray(np.random.default_rng(0).normal(size=(64, 64)), jnp.float32)


def dense(rows):
    """Products, and gradients that wait for them but round in one way only."""
    total = jnp.float32(0)
    for each in jax.tree.leaves(rows):
        x = jnp.resize(each.astype(jnp.float32), (64, 64))
        total += jnp.tanh(x @ WEIGHTS).sum()
    factor = jnp.where(jnp.isfinite(total), 0.5, 0.0)
    return jax.tree.map(lambda each: factor.astype(each.dtype) * each, rows), total


class Loops:
    """An untiered table in a plain loop, beside its tiered twin that prefetches."""

    def __init__(self, *configs, tier=TIER, **placement):
        far = [dataclasses.replace(config, tier=tier) for config in configs]
        self.plain = jde.Tables(configs, **placement)
        self.tiered = jde.Tables(far, **placement)
        self.states = [self.plain.init(3), self.tiered.init(3)]
        self.compile()

    def compile(self):
        @functools.partial(jax.jit, donate_argnums=0)
        def plain(state, ids):
            rows, residual, state = self.plain.lookup(state, ids)
            d_rows, loss = dense(rows)
            return self.plain.apply_gradients(state, residual, d_rows), loss

        @functools.partial(jax.jit, donate_argnums=0)
        def tiered(state, ids, coming):
            rows, residual, state = self.tiered.lookup(state, ids)
            d_rows, loss, state = self.tiered.prefetch_during(
                state, coming, dense, rows
            )
            return self.tiered.apply_gradients(state, residual, d_rows), loss

        self.steps = plain, tiered

    def train(self, ids, coming):
        plain, tiered = self.steps
        self.states[0], expected = plain(self.states[0], ids)
        self.states[1], loss = tiered(self.states[1], ids, coming)
        np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)

    def check(self):
        plain = self.plain.stats(self.states[0])
        tiered = self.tiered.stats(self.states[1])
        assert {name: tiered[name] for name in plain} == plain
        for name in self.plain.tables:
            assert_same_rows(
                export(self.tiered, self.states[1], name),
                export(self.plain, self.states[0], name),
            )


def drawn(rng, shared, before, size=96, most=900):
    """Ids of which a share was in the batch before."""
    ids = rng.integers(0, most, size)
    same = rng.random(size) < shared
    return np.where(same, before, ids) if before is not None else ids


@pytest.mark.parametrize("shared", [0.0, 0.25, 1.0])
@pytest.mark.parametrize(
    "optimizer",
    [ADAM, jde.optim.rowwise_adagrad(0.1), optax.adam(0.01)],
    ids=["adam", "rowwise_adagrad", "optax"],
)
def test_a_loop_is_the_plain_loop(platform, optimizer, shared):
    loops = Loops(jde.TableConfig("t", 8, 256, optimizer=optimizer))
    rng, before, batches = np.random.default_rng(1), None, []
    for _ in range(9):
        before = drawn(rng, shared, before)
        batches.append({"t": jde.ids(before)})
    for ids, coming in zip(batches, batches[1:], strict=False):
        loops.train(ids, coming)
    loops.check()
    stats = loops.tiered.stats(loops.states[1])
    if shared < 1.0:
        assert stats["t/evicted"] > 0 and stats["t/prefetched"] > 0


def test_another_batch_than_announced_is_slow_and_right(platform):
    loops = Loops(jde.TableConfig("t", 8, 512, optimizer=ADAM))
    rng = np.random.default_rng(2)
    for _ in range(6):
        ids, other = (jde.ids(rng.integers(0, 900, 96)) for _ in range(2))
        loops.train({"t": ids}, {"t": other})
    loops.check()


def test_several_tables_bags_and_lookups_of_a_part(platform):
    loops = Loops(
        jde.TableConfig("a", 4, 256, ("x", "y"), optimizer=ADAM, pooling="mean"),
        jde.TableConfig("b", 8, 256, optimizer=jde.optim.sgd(0.1)),
    )
    rng = np.random.default_rng(3)

    def batch():
        lengths = rng.integers(0, 5, 20)
        values = rng.integers(0, 600, 80)
        return {
            "x": jde.Jagged(jde.ids(values), jnp.asarray(lengths, jnp.int32)),
            "y": jde.ids(rng.integers(-1, 600, (20, 3))),
            "b": jde.ids(rng.integers(0, 600, (20, 2))),
        }

    batches = [batch() for _ in range(6)]
    for ids, coming in zip(batches, batches[1:], strict=False):
        loops.train(ids, {"x": coming["x"], "b": coming["b"]})
    loops.check()


def test_tables_without_a_tier_stay_where_they_are(platform):
    configs = [jde.TableConfig(n, 4, 256, optimizer=ADAM) for n in "ab"]
    configs[0] = dataclasses.replace(configs[0], tier=TIER)
    tt = jde.TTConfig("c", 4, 100, 2, optimizer=jde.optim.sgd(0.1))
    coll = jde.Tables([*configs, tt])

    def step(state, ids, during):
        rows, residual, state = coll.lookup(state, ids)
        if during:
            d_rows, loss, state = coll.prefetch_during(state, ids, dense, rows)
        else:
            d_rows, loss = dense(rows)
        return coll.apply_gradients(state, residual, d_rows), loss

    ids = {name: jde.ids(np.arange(50)) for name in "abc"}
    run = jax.jit(step, static_argnums=2)
    losses = []
    for during in (False, True):
        state = coll.init(0)
        for _ in range(3):
            state, loss = run(state, ids, during)
        losses.append(float(loss))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_growth_and_erasure_between_steps(platform):
    loops = Loops(
        jde.TableConfig(
            "t",
            8,
            256,
            optimizer=ADAM,
            admission=Frequency(2, Sketch(bytes=1 << 11)),
        )
    )
    rng = np.random.default_rng(4)
    batches = [{"t": jde.ids(rng.integers(0, 700, 96))} for _ in range(9)]
    for n, (ids, coming) in enumerate(zip(batches, batches[1:], strict=False)):
        loops.train(ids, coming)
        if n == 3:
            loops.plain, loops.states[0] = loops.plain.grow(loops.states[0], {"t": 512})
            loops.tiered, loops.states[1] = loops.tiered.grow(
                loops.states[1], {"t": 512}
            )
            loops.compile()
        if n == 5:
            gone = {"t": jde.ids(np.arange(200))}
            loops.states[0] = loops.plain.erase(loops.states[0], gone)
            loops.states[1] = loops.tiered.erase(loops.states[1], gone)
    loops.check()


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["row_wise", "table_wise"])
@pytest.mark.skipif(
    jax.__version_info__[:2] == (0, 11), reason="see tests/tiers/test_mesh.py"
)
def test_on_a_mesh(sharding):
    configs = [
        jde.TableConfig(n, 4, 1024, optimizer=ADAM, sharding=sharding) for n in "ab"
    ]
    loops = Loops(*configs, mesh=mesh_of(4))
    rng = np.random.default_rng(5)
    batches = [{n: jde.ids(rng.integers(0, 900, 120)) for n in "ab"} for _ in range(5)]
    for ids, coming in zip(batches, batches[1:], strict=False):
        loops.train(ids, coming)
    loops.check()


def test_a_scan_of_steps(platform):
    coll = jde.Tables([jde.TableConfig("t", 4, 256, optimizer=ADAM, tier=TIER)])
    ids = jde.ids(np.random.default_rng(6).integers(0, 600, (5, 96)))

    def step(state, both, during=True):
        rows, residual, state = coll.lookup(state, {"t": both[0]})
        if during:
            coming = {"t": both[1]}
            d_rows, loss, state = coll.prefetch_during(state, coming, dense, rows)
        else:
            d_rows, loss = dense(rows)
        return coll.apply_gradients(state, residual, d_rows), loss

    pairs = ids, jnp.roll(ids, -1, axis=0)
    scanned, losses = jax.jit(lambda s: jax.lax.scan(step, s, pairs))(coll.init(0))
    state, plain = coll.init(0), jax.jit(functools.partial(step, during=False))
    for n in range(5):
        state, loss = plain(state, (ids[n], ids[n]))
        np.testing.assert_allclose(loss, losses[n], rtol=1e-5, atol=1e-5)
    assert_same_rows(export(coll, scanned, "t"), export(coll, state, "t"))


def test_a_state_that_is_not_donated_stays_as_it_was(platform):
    """XLA copies the tables first, and the records go to the copy."""
    coll = jde.Tables([jde.TableConfig("t", 8, 256, optimizer=ADAM, tier=TIER)])
    rng = np.random.default_rng(7)

    def step(state, ids, coming):
        rows, residual, state = coll.lookup(state, ids)
        d_rows, _, state = coll.prefetch_during(state, coming, dense, rows)
        return coll.apply_gradients(state, residual, d_rows)

    batches = [{"t": jde.ids(rng.integers(0, 500, 96))} for _ in range(6)]
    copying, donating = jax.jit(step), jax.jit(step, donate_argnums=0)
    kept, state = coll.init(0), coll.init(0)
    for ids, coming in zip(batches, batches[1:], strict=False):
        before = [np.asarray(leaf) for leaf in jax.tree.leaves(kept)]
        new = copying(kept, ids, coming)
        for leaf, old in zip(jax.tree.leaves(kept), before, strict=True):
            np.testing.assert_array_equal(leaf, old)
        kept, state = new, donating(state, ids, coming)
        assert_same_rows(export(coll, kept, "t"), export(coll, state, "t"))


def test_outside_of_jit_rows_come_first(platform):
    loops = Loops(jde.TableConfig("t", 8, 256, optimizer=ADAM))
    rng, tiered = np.random.default_rng(8), loops.tiered

    def step(state, ids, coming):
        rows, residual, state = tiered.lookup(state, ids)
        d_rows, loss, state = tiered.prefetch_during(state, coming, dense, rows)
        return tiered.apply_gradients(state, residual, d_rows), loss

    state = loops.states[1]
    for _ in range(3):
        ids, coming = ({"t": jde.ids(rng.integers(0, 400, 96))} for _ in range(2))
        state, _ = step(state, ids, coming)
        loops.states[0], _ = loops.steps[0](loops.states[0], ids)
    # One by one, operations of the dense part round as they like.
    assert tiered.stats(state)["t/prefetched"] > 0
    assert tiered.stats(state)["t/step"] == loops.plain.stats(loops.states[0])["t/step"]


def test_an_exception_in_the_dense_part_leaves_the_state(platform):
    coll = jde.Tables([jde.TableConfig("t", 8, 256, optimizer=ADAM, tier=TIER)])
    ids = {"t": jde.ids(np.arange(96))}

    def fails(rows):
        raise ZeroDivisionError("of the dense part")

    def step(state, compute):
        rows, residual, state = coll.lookup(state, ids)
        d_rows, _, state = coll.prefetch_during(state, ids, compute, rows)
        return coll.apply_gradients(state, residual, d_rows)

    state = jax.jit(functools.partial(step, compute=dense))(coll.init(0))
    rows = export(coll, state, "t")
    with pytest.raises(ZeroDivisionError):
        jax.jit(functools.partial(step, compute=fails))(state)
    assert_same_rows(export(coll, state, "t"), rows)


def test_a_callback_that_raises_while_rows_move(platform, tmp_path):
    """XLA ends the program and frees its arrays, to which nothing may write then."""
    raises = False

    def look(first):
        if raises:
            raise RuntimeError("stop here")
        return first

    def with_callback(rows):
        d_rows, total = dense(rows)
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        return d_rows, total + 0 * jax.pure_callback(look, scalar, rows["t"][0, 0])

    config = jde.TableConfig("t", 1024, 16_384, optimizer=ADAM)
    twins = [
        config,
        dataclasses.replace(config, tier=jde.tiers.host(hbm_fraction=1 / 3)),
    ]
    plain, tiered = (jde.Tables([each]) for each in twins)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids, coming):
        rows, residual, state = tiered.lookup(state, ids)
        d_rows, loss, state = tiered.prefetch_during(state, coming, with_callback, rows)
        return tiered.apply_gradients(state, residual, d_rows), loss

    @functools.partial(jax.jit, donate_argnums=0)
    def plain_step(state, ids):
        rows, residual, state = plain.lookup(state, ids)
        return plain.apply_gradients(state, residual, dense(rows)[0])

    rng = np.random.default_rng(0)
    batches = [{"t": jde.ids(rng.permutation(14_000)[:4000])} for _ in range(8)]
    state, expected = tiered.init(3), plain.init(3)
    for ids, coming in zip(batches[:4], batches[1:], strict=False):
        (state, _), expected = step(state, ids, coming), plain_step(expected, ids)
    jde.checkpoint.save(tmp_path, 0, state, tables=tiered)
    raises = True
    with pytest.raises(Exception, match="stop here"):
        jax.block_until_ready(step(state, batches[4], batches[5]))
    others = [np.full(1 << 20, 7, np.uint8) for _ in range(200)]  # in freed memory
    raises = False
    state = jde.checkpoint.restore(tmp_path, tiered.init(0), tables=tiered).tree
    for ids, coming in zip(batches[4:-1], batches[5:], strict=True):
        (state, _), expected = step(state, ids, coming), plain_step(expected, ids)
    assert_same_rows(export(tiered, state, "t"), export(plain, expected, "t"))
    assert all((each == 7).all() for each in others)


@pytest.mark.parametrize("result", [None, (1, 2, 3), [1, 2]])
def test_what_compute_must_return(result):
    coll = jde.Tables([jde.TableConfig("t", 8, 256, optimizer=ADAM, tier=TIER)])
    state, ids = coll.init(0), {"t": jde.ids(np.arange(8))}
    with pytest.raises(TypeError, match=r"such as \(d_rows, loss\)"):
        coll.prefetch_during(state, ids, lambda rows: result, {})


def test_the_dense_part_lies_between_the_calls(platform):
    """XLA may order only by data: rows and their gradients pass through the calls."""
    coll = jde.Tables([jde.TableConfig("t", 64, 8192, optimizer=ADAM, tier=TIER)])

    def step(state, ids):
        rows, residual, state = coll.lookup(state, {"t": ids})
        d_rows, loss, state = coll.prefetch_during(state, {"t": ids}, dense, rows)
        return coll.apply_gradients(state, residual, d_rows), loss

    ids = jax.ShapeDtypeStruct((64, 2), jnp.uint32)
    lowered = jax.jit(step, donate_argnums=0).lower(coll.init(0), ids)
    text = lowered.compile().as_text()
    assert text is not None
    entry = text.split("\nENTRY ")[1]
    lines = entry.splitlines()
    begin = next(n for n, line in enumerate(lines) if "dynemb_begin_swap" in line)
    end = next(n for n, line in enumerate(lines) if "dynemb_end_swap" in line)
    computes = re.compile(r" (dot|fusion|call|custom-call)\(.*(dot_general|reduce_sum)")
    products = [n for n, line in enumerate(lines) if computes.search(line)]
    assert products and all(begin < n < end for n in products), entry


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_thousand_steps_with_everything_in_between(platform, seed, tmp_path):
    """250 steps for each seed; batches share 0, 25 or 100 % of their ids."""
    rng = np.random.default_rng(seed)
    admission = Frequency(2, Sketch(bytes=1 << 11)) if seed % 2 else None
    options = {} if admission is None else {"admission": admission}
    loops = Loops(jde.TableConfig("t", 8, 256, optimizer=ADAM, **options))
    batch = {"t": jde.ids(rng.integers(0, 600, 96))}
    saved = capacity = 0

    def both(call):
        loops.states = [
            call(coll, state)
            for coll, state in zip(
                (loops.plain, loops.tiered), loops.states, strict=True
            )
        ]

    def grow():
        nonlocal capacity
        capacity = 512 if capacity == 0 else 1024
        loops.plain, plain = loops.plain.grow(loops.states[0], {"t": capacity})
        loops.tiered, tiered = loops.tiered.grow(loops.states[1], {"t": capacity})
        loops.states = [plain, tiered]
        loops.compile()

    def through_a_checkpoint():
        nonlocal saved
        saved += 1
        names = {id(loops.plain): "plain", id(loops.tiered): "tiered"}

        def resumed(coll, state):
            folder = tmp_path / names[id(coll)]
            jde.checkpoint.save(folder, saved, state, tables=coll, wait=True)
            return jde.checkpoint.restore(folder, coll.init(9), tables=coll).tree

        both(resumed)

    gone = {"t": jde.ids(np.arange(64))}
    between = [
        lambda: both(lambda coll, state: coll.erase(state, gone)),
        lambda: both(lambda coll, state: coll.find(state, gone)[2]),
        lambda: both(lambda coll, state: coll.prefetch(state, gone)),
        lambda: both(lambda coll, state: coll.flush(state)),
        through_a_checkpoint,
    ]
    for step in range(250):
        share = (0.0, 0.25, 1.0)[rng.integers(3)]
        before = np.asarray(batch["t"]).view(np.int64)[:, 0]
        following = {"t": jde.ids(drawn(rng, share, before, most=600))}
        announced = (
            {"t": gone["t"].repeat(2, axis=0)[:96]} if rng.random() < 0.1 else following
        )
        loops.train(batch, announced)
        if rng.random() < 0.1:
            between[rng.integers(len(between))]()
        if step in (80, 160):
            grow()
        if step % 50 == 49:
            loops.check()
        batch = following
    loops.check()
