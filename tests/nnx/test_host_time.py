# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The time of the host, counts and scores in modules."""

import time

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of
from support import export


def scores_of(module) -> dict[int, int]:
    rows = export(module.coll, module.get_state(), next(iter(module.coll.tables)))
    return {key: row.score for key, row in rows.items()}


def test_counts_of_a_collection():
    config = jde.TableConfig("t", 4, 256, ("a",), score_strategy="lfu")
    sparse = jde.nnx.EmbeddingCollection([config], rngs=nnx.Rngs(0))
    sparse({"a": jde.ids([5, 6, 5])}, counts={"a": np.array([2, 1, 3])})
    assert {k: s >> 32 for k, s in scores_of(sparse).items()} == {5: 5, 6: 1}


def test_scores_of_one_table():
    embed = jde.nnx.DynamicEmbed(
        features=4, capacity=256, score_strategy="customized", rngs=nnx.Rngs(0)
    )
    embed(jde.ids([5, 6]), scores=np.array([3, 9]))
    embed(jde.ids([7]), scores=np.uint32(4))
    assert scores_of(embed) == {5: 3, 6: 9, 7: 4}


def timed(mesh=None, **options):
    return jde.nnx.DynamicEmbed(
        features=4,
        capacity=1024,
        score_strategy="timestamp",
        rngs=nnx.Rngs(0),
        mesh=mesh,
        **options,
    )


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("options", [{}, {"donate_argnames": ()}], ids=["fast", "nnx"])
def test_a_step_brings_its_time(devices, options):
    embed = timed(mesh_of(8) if devices == 8 else None)
    traces = []

    @jde.nnx.jit(**options)
    def step(embed, ids):
        traces.append(None)
        return embed(ids).sum()

    times = []
    for first in range(0, 48, 16):
        before = time.time_ns()
        step(embed, jde.ids(np.arange(first, first + 16)))
        scores = scores_of(embed)
        (now,) = {scores[key] for key in range(first, first + 16)}
        assert before <= now <= time.time_ns()  # devices did not read their clocks
        times.append(now)
    assert times == sorted(set(times))
    assert len(traces) <= 3  # one that asked for the time; one to see what is only read


def test_lowering_brings_the_time_too():
    step = jde.nnx.jit(lambda embed, ids: embed(ids).sum())
    text = step.lower(timed(), jde.ids([1, 2])).as_text()
    assert "dynemb_lookup" in text


def test_eager_lookups_read_the_clock_of_the_host():
    embed, before = timed(), time.time_ns()
    embed(jde.ids([1, 2]))
    (now,) = set(scores_of(embed).values())
    assert before <= now <= time.time_ns()


def test_flax_jit_leaves_the_clock_to_the_device():
    embed, before = timed(), time.time_ns()
    nnx.jit(lambda embed, ids: embed(ids).sum())(embed, jde.ids([1, 2]))
    (now,) = set(scores_of(embed).values())
    assert now >= before
    jax.block_until_ready(embed.get_state())


def test_a_module_pins_rows():
    embed = timed()
    embed(jde.ids([1, 2]))
    embed.pin({"embedding": jde.ids([1, 2])})
    embed.unpin({"embedding": jde.ids([2])})
    assert embed.stats()["embedding/pinned"] == 1
