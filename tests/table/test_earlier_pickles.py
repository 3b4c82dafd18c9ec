# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Pickles made when modules had other names load, and hold what they held."""

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb import torchrec

DATA = json.loads(Path(__file__).with_name("earlier_pickles.json").read_text())


def loaded(name: str) -> list[Any]:
    return pickle.loads(base64.b85decode(DATA[name]))  # noqa: S301 (a file of ours)


def test_configs_equal_those_of_now():
    o, a = jde.optim, jde.admission
    assert loaded("optimizers") == [
        o.sgd(0.1),
        o.adam(0.1, weight_decay=0.1),
        o.rowwise_adagrad(0.1),
        o.rmsprop(0.1),
        o.ftrl(0.1),
        o.none(),
    ]
    counting = a.Frequency(2, a.Sketch(bytes=1 << 14))
    normal = jde.initializers.normal(0.1)
    exact = a.Frequency(2, a.Exact(capacity=1024))
    tier = jde.tiers.host(hbm_fraction=1 / 8)
    adam = o.adam(0.1)
    first = {"optimizer": adam, "initializer": normal, "admission": counting}
    assert loaded("tables") == [
        jde.TableConfig("t", 8, 1024, **first),
        jde.TableConfig("e", 8, 1024, admission=exact),
        jde.TableConfig("h", 8, 4096, tier=tier),
    ]
    cores = {"initializer": jde.tt.orthogonal(), "optimizer": o.adagrad(0.1)}
    assert loaded("tensor_trains") == [jde.TTConfig("t", 8, 1000, (4, 4), **cores)]
    (rule,) = loaded("rule")
    assert repr(rule) == repr(jde.lifecycle.Rule(count_below=2))  # it has no ==
    (bag,) = loaded("configs")
    assert (bag.name, bag.num_embeddings, bag.feature_names) == ("t", 100, ["a"])


def test_batches_equal_those_of_now():
    (bags,) = loaded("ragged")
    assert isinstance(bags, jde.Jagged)
    np.testing.assert_array_equal(bags.lengths, [1, 2])
    (kjt,) = loaded("keyed")
    ones = jnp.ones(4, jnp.int32)
    same = torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=["a", "b"], values=jde.ids(np.arange(4)), lengths=ones
    )
    assert torchrec.kjt_is_equal(kjt, same)
    assert jax.tree.structure(loaded("metric")[0]) == jax.tree.structure(
        jde.metrics.NE.empty()
    )
    assert isinstance(loaded("error")[0], jde.DamagedFileError)


def test_a_state_trains_on():
    """It has five rows after one step of Adagrad; the rows beside it are its own."""
    coll = jde.Tables([jde.TableConfig("t", 4, 128, optimizer=jde.optim.adagrad(0.1))])
    state = jax.tree.map(jnp.asarray, loaded("state")[0])
    rows, found, state = coll.find(state, {"t": jde.ids(np.arange(5))})
    assert np.asarray(found["t"]).all()
    (chunk,) = loaded("rows")
    kept = dict(zip(chunk.keys.tolist(), chunk.rows, strict=True))
    for key, row in enumerate(np.asarray(rows["t"])):
        np.testing.assert_array_equal(row, kept[key])
    for _ in range(3):
        rows, residual, state = coll.lookup(state, {"t": jde.ids(np.arange(5))})
        state = coll.apply_gradients(state, residual, rows)
    assert coll.stats(state)["t/step"] == 1 + 3
    assert coll.stats(state)["t/lost_updates"] == 0


def test_a_tier_says_where_rows_lie():
    """Its ``location`` had another name."""
    (tier,) = loaded("tier")
    np.testing.assert_array_equal(tier.location, [0, 1, 2])
    np.testing.assert_array_equal(jax.tree.leaves(tier)[0], [0, 1, 2])
