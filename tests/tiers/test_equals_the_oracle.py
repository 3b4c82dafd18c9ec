# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A tiered table is the reference's table, whatever its cache does."""

import numpy as np
import pytest

import jax_dynemb as jde
from support import Twins

OPTIMIZERS = {
    "sgd": jde.optim.sgd(0.1),
    "adam": jde.optim.adam(0.01),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
}
# There is room for so few rows on their way home that most updates take several rounds.
SPILL = 40


def tiered(frames: int, **options) -> jde.TableConfig:
    fields = {"dim": 6, "capacity": 512} | options
    tier = jde.tiers.host(hbm_fraction=frames / 128, spill_rows=SPILL)
    return jde.TableConfig("t", tier=tier, **fields)


def walk(twins: Twins, steps: int, seed: int = 0, size: int = 96) -> None:
    """Random calls, each compared with the oracle's."""
    rng = np.random.default_rng(seed)

    def ids() -> list[int]:
        few = rng.integers(0, 40, size)
        many = rng.integers(0, 2000, size)
        return np.where(rng.random(size) < 0.3, few, many).tolist()

    for step in range(steps):
        twins.train({"t": ids()}, seed=step)
        twins.find({"t": ids()})
        if step % 3 == 1:
            twins.erase({"t": ids()})
        if step % 3 == 2:
            rows = rng.normal(size=(size, twins.coll.tables["t"].dim))
            twins.insert({"t": ids()}, {"t": rows})
        if step % 2 == 1:
            twins.state = twins.coll.prefetch(twins.state, {"t": jde.ids(ids())})
        if step % 4 == 3:
            twins.state = twins.coll.flush(twins.state)


@pytest.mark.parametrize("frames", [4, 8, 64])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_random_walk(platform, optimizer, frames):
    twins = Twins(tiered(frames, optimizer=OPTIMIZERS[optimizer]))
    walk(twins, 6)
    twins.check()
    stats = twins.coll.stats(twins.state)
    assert stats["t/written_back"] > 0 and stats["t/prefetched"] > 0
    assert stats["t/bypassed"] > 0 or frames > 4


def test_frequencies_choose_frames_too(platform):
    twins = Twins(tiered(4, optimizer=OPTIMIZERS["adam"], score_strategy="lfu"))
    walk(twins, 6)
    twins.check()
