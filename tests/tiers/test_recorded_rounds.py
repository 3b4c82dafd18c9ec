# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds of an update in a recorded loop: the same bits, and no wait of the host."""

import dataclasses
import functools
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from jax_dynemb._src.nnx.fast_path.recorded_loops import has_recordable_loops
from meshes import mesh_of
from support import assert_same_rows, export
from tiered import ADAM, TIER

CONFIG = jde.TableConfig("t", 8, 512, optimizer=ADAM)


def compiled_step(coll, loops=True):
    options = jde.compiler_options(loops=loops)

    @functools.partial(jax.jit, donate_argnums=0, compiler_options=options)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        d_rows = jax.tree.map(lambda x: 0.5 * x, rows)
        return coll.apply_gradients(state, residual, d_rows)

    return step


def drawn(seed, size=400):
    return {"t": jde.ids(np.random.default_rng(seed).integers(0, 900, size))}


def test_recorded_rounds_change_no_bit(platform):
    plain = jde.Tables([CONFIG])
    tiered = jde.Tables([dataclasses.replace(CONFIG, tier=TIER)])
    states = {coll: coll.init(3) for coll in (plain, tiered)}
    for coll in states:
        step = compiled_step(coll)
        for seed in range(6):
            states[coll] = step(states[coll], drawn(seed))
    got, want = (export(c, states[c], "t") for c in (tiered, plain))
    assert_same_rows(got, want)
    # The first batch alone has more rows without a place than there are spill rows.
    assert tiered.stats(states[tiered])["t/updated_home"] > 6 * TIER.spill_rows


def waits_of_host(run):
    """Counts what a GPU copied to the host while ``run`` ran: conditions of loops."""
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        try:
            jax.block_until_ready(run())
        finally:
            jax.profiler.stop_trace()
        file = next(Path(folder).rglob("*.xplane.pb"))
        profile = jax.profiler.ProfileData.from_file(str(file))
    planes = [p for p in profile.planes if p.name.startswith("/device:GPU")]
    events = [e.name for p in planes for line in p.lines for e in line.events]
    assert any("pieces_kernel" in name for name in events)  # of an update
    return sum(name.startswith("MemcpyD2H") for name in events)


@pytest.mark.gpu
@pytest.mark.skipif(jax.__version_info__[:2] != (0, 11), reason="only tried there")
@pytest.mark.parametrize("loops", [False, True])
def test_the_host_waits_for_no_round(loops):
    coll = jde.Tables([dataclasses.replace(CONFIG, tier=TIER)])
    step, batches = compiled_step(coll, loops), [drawn(seed) for seed in range(3)]

    def run(state):
        for ids in batches:
            state = step(state, ids)
        return state

    state = jax.block_until_ready(run(coll.init(3)))
    waits = waits_of_host(lambda: run(state))
    assert waits == 0 if loops else waits >= len(batches)


@pytest.mark.parametrize("devices", [None, 2])
def test_rounds_of_a_tier_are_found(devices):
    """On a mesh they are launched as before."""
    mesh = None if devices is None else mesh_of(devices)
    coll = jde.Tables([dataclasses.replace(CONFIG, tier=TIER)], mesh=mesh)

    def train(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    few, many = drawn(0, 40), drawn(0)
    state = coll.init(0)
    found = has_recordable_loops(jax.make_jaxpr(train)(state, many).jaxpr)
    assert found == (devices is None)
    assert not has_recordable_loops(jax.make_jaxpr(train)(state, few).jaxpr)


class Model(nnx.Module):
    def __init__(self, tier):
        table = dataclasses.replace(CONFIG, tier=tier)
        self.tables = jde.nnx.EmbeddingCollection([table], rngs=nnx.Rngs(0))

    def __call__(self, ids):
        return self.tables(ids)["t"]


def trained(tier):
    model = Model(tier)

    @jde.nnx.jit
    def step(model, ids):
        def loss_of(model, ids):
            return (model(ids) ** 2).sum()

        loss, grads = jde.nnx.value_and_grad(loss_of)(model, ids)
        jde.nnx.update_tables(model, grads)
        return loss

    batches = [drawn(seed) for seed in range(5)]
    losses = [float(step(model, ids)) for ids in batches]
    return losses, waits_of_host(lambda: step(model, batches[0]))


@pytest.mark.gpu
@pytest.mark.skipif(jax.__version_info__[:2] != (0, 11), reason="only tried there")
def test_flax_records_rounds_by_itself():
    losses, waits = trained(TIER)
    assert waits == 0
    in_one_round, _ = trained(dataclasses.replace(TIER, spill_rows=512))
    np.testing.assert_array_equal(losses, in_one_round)
