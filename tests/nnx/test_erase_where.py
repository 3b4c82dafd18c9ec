# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A rule removes rows of a module, between two steps and inside jit."""

import numpy as np
from flax import nnx

import jax_dynemb as jde
from jax_dynemb.lifecycle import Rule


def sparse(**options) -> jde.nnx.EmbeddingCollection:
    config = jde.TableConfig("cat", 4, 256, **options)
    return jde.nnx.EmbeddingCollection([config], rngs=nnx.Rngs(0))


def test_between_two_steps():
    model = sparse()
    for first in range(3):
        model({"cat": jde.ids(np.arange(first * 10, first * 10 + 20))})
    rule = {"cat": Rule(unused_for=1)}
    assert int(model.erase_where(rule, dry_run=True)["cat"]) == 10
    assert model.stats()["cat/rows"] == 40
    assert int(model.erase_where(rule)["cat"]) == 10
    stats = model.stats()
    assert stats["cat/rows"] == 30 and stats["cat/removed_by_rule"] == 10


def test_inside_jit():
    model = sparse(score_strategy="lfu")

    @jde.nnx.jit
    def step(model, ids, rule):
        model({"cat": ids})
        model.decay({"cat": 0.5})
        return model.erase_where({"cat": rule})["cat"]

    ids = jde.ids(np.array([1, 1, 1, 1, 2, 3]))
    for most in (5, 2):
        removed = step(model, ids, Rule(count_below=2, keep_at_least=most))
        assert int(removed) == (0 if most == 5 else 1)
    assert model.stats()["cat/rows"] == 2
