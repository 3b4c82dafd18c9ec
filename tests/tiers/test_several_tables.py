# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Several tiered tables in one call: the bits of untiered ones, and few calls."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from support import gradients
from tiered import ADAM, Both, batch

SMALL = jde.tiers.host(hbm_fraction=4 / 128, spill_rows=20)
WIDE = jde.tiers.host(hbm_fraction=9 / 128, spill_rows=500)


def train(both, widths, count, seeds):
    """Trains on random batches of each table."""
    for seed in seeds:
        ids = {name: batch(count, seed + 7 * i) for i, name in enumerate(widths)}
        d_rows = {
            name: jnp.asarray(gradients((count, dim), seed))
            for name, dim in widths.items()
        }
        both.train(ids, d_rows)
    both.check()


def tiered_as(configs, tiers):
    """Both, with a tier for each table by name."""
    both = Both(*configs)
    given = [dataclasses.replace(c, tier=tiers[c.name]) for c in configs]
    both.colls[1] = jde.Tables(given)
    both.states[1] = both.colls[1].init(3)
    both.steps[1] = both.compile(both.colls[1])
    return both


@pytest.mark.slow
def test_more_tables_than_one_call_takes(platform):
    widths = {f"t{i}": 2 + i % 3 for i in range(35)}
    configs = [
        jde.TableConfig(name, dim, 128 * (1 + dim % 2), optimizer=jde.optim.sgd(0.1))
        for name, dim in widths.items()
    ]
    train(Both(*configs), widths, 40, range(3))


def test_threads_share_the_lists_of_all_tables(platform):
    """Some tables have several parts of a list, another has none."""
    widths = {"wide": 64, "none": 16, "odd": 65, "narrow": 64}
    adagrad = jde.optim.rowwise_adagrad(0.1)
    configs = [
        jde.TableConfig(name, dim, 16_384 if dim > 16 else 256, optimizer=optimizer)
        for (name, dim), optimizer in zip(
            widths.items(), [ADAM, ADAM, ADAM, adagrad], strict=True
        )
    ]
    both = tiered_as(configs, dict.fromkeys(widths, WIDE))
    for seed in range(5):
        ids = {
            name: np.random.default_rng(seed).integers(0, 6_000, 1_500)
            if dim > 16
            else batch(64, seed)
            for name, dim in widths.items()
        }
        d_rows = {
            name: jnp.asarray(gradients((len(ids[name]), dim), seed))
            for name, dim in widths.items()
        }
        both.train(ids, d_rows)
    both.check()
    assert both.colls[1].stats(both.states[1])["wide/written_back"] > 300


def test_tables_of_one_round_and_of_several(platform):
    """Some tables are ready after one round, others take three; one has no tier."""
    tiers = {"short": WIDE, "long": SMALL, "longer": SMALL, "none": None}
    widths = {"short": 4, "long": 6, "longer": 3, "none": 5}
    configs = [
        jde.TableConfig(name, dim, 256, optimizer=ADAM) for name, dim in widths.items()
    ]
    both = tiered_as(configs, tiers)
    train(both, widths, 64, range(4))
    stats = both.colls[1].stats(both.states[1])
    assert stats["long/updated_home"] > 4 * 20  # more than one round a step


def test_a_step_has_one_call_of_each_kind(platform):
    configs = [
        jde.TableConfig(f"t{i}", 4 + i, 256, optimizer=ADAM, tier=WIDE)
        for i in range(10)
    ]
    coll = jde.Tables(configs)

    def step(state, ids, d_rows):
        _, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, d_rows)

    state = coll.init(0)
    ids = {c.name: jde.ids(np.arange(50)) for c in configs}
    d_rows = {c.name: jnp.ones((50, c.dim)) for c in configs}
    text = jax.jit(step, donate_argnums=0).lower(state, ids, d_rows).as_text()
    calls = re.findall(r"@dynemb_(\w+)", text)
    expected = ["lookup", "promote", "swap_rows", "settle", "tier_rows"]
    assert calls == [*expected, "fetch", "update", "write_back"]


@pytest.mark.parametrize("tier", [WIDE, SMALL], ids=["one round", "several rounds"])
def test_arrays_of_several_tables_stay_in_place(platform, tier):
    configs = [
        jde.TableConfig(f"t{i}", 4, 8192, optimizer=ADAM, tier=tier) for i in range(3)
    ]
    coll = jde.Tables(configs)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        state = coll.prefetch(state, {name: x[::-1] for name, x in ids.items()})
        state = coll.apply_gradients(state, residual, rows)
        return coll.flush(state)

    ids = {c.name: jde.ids(batch(64, i)) for i, c in enumerate(configs)}
    jde.testing.assert_in_place(step, coll.init(0), ids)
