# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of tiered tables are copied on a GPU, where XLA would record calls again."""

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from tiered import TIER


def copies(coll, platform):
    """Counts the operations that copy ids in a program for a platform."""
    state, ids = coll.init(0), {"t": jde.ids(np.arange(5))}

    @jax.jit
    def step(state, ids, following):
        rows, residual, state = coll.lookup(state, ids)
        if coll.tables["t"].tier is not None:
            state = coll.prefetch(state, following)
        return coll.apply_gradients(state, residual, rows)

    traced = step.trace(state, ids, ids)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    return text.count("stablehlo.xor")


@pytest.mark.parametrize(
    ("tier", "platform", "count"),
    [(TIER, "cuda", 2), (TIER, "cpu", 0), (None, "cuda", 0)],
)
def test_ids_are_copied(tier, platform, count):
    table = jde.TableConfig("t", 4, 256, optimizer=jde.optim.sgd(0.1), tier=tier)
    assert copies(jde.Tables([table]), platform) == count
