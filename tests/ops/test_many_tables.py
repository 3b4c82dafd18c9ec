# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""More tables and features than one call of a kernel takes."""

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.call_batches import call_batches
from jax_dynemb._src.spec import TableSpec
from support import Twins

LIMITS = _ffi.constants()


def test_more_tables_than_a_call_takes(platform):
    count = LIMITS["max_tables"] + 6
    names = [f"t{i}" for i in range(count)]
    rules = (jde.optim.sgd(0.5), jde.optim.adagrad(0.5), jde.optim.adam(0.1))
    twins = Twins(
        *(
            jde.TableConfig(name, 1 + i % 5, 256, optimizer=rules[i % 3])
            for i, name in enumerate(names)
        )
    )
    order = np.random.default_rng(0).permutation(count)  # features in no order
    rows, residuals = twins.lookup({names[i]: [i, i + 1, i] for i in order})
    twins.apply(residuals, {f: np.ones(x.shape) for f, x in rows.items()})
    twins.check()


def test_features_beyond_a_call(platform):
    """Tables with several features each, some of which must wait for the next call."""
    most = LIMITS["max_features"]
    configs = [
        jde.TableConfig(name, 4, 256, tuple(f"{name}{i}" for i in range(most // 2 + 1)))
        for name in ("a", "b")
    ]
    together, alone = jde.Tables(configs), [jde.Tables([c]) for c in configs]
    ids = {f: jde.ids([i % 9, i % 4]) for i, f in enumerate(together.features)}

    def train(coll, ids):
        rows, residual, state = coll.lookup(coll.init(0), ids)
        state = coll.apply_gradients(state, residual, rows)
        return rows, coll.find(state, ids)[:2], coll.stats(state)

    whole = jax.tree.map(np.asarray, train(together, ids))
    for coll in alone:
        rows, (found_rows, found), stats = train(
            coll, {f: ids[f] for f in coll.features}
        )
        for feature in coll.features:
            np.testing.assert_array_equal(whole[0][feature], rows[feature])
            np.testing.assert_array_equal(whole[1][0][feature], found_rows[feature])
            np.testing.assert_array_equal(whole[1][1][feature], found[feature])
        assert stats == {name: whole[2][name] for name in stats}


def test_too_many_features_of_one_table():
    names = tuple(f"f{i}" for i in range(LIMITS["max_features"] + 1))
    coll = jde.Tables([jde.TableConfig("a", 4, 256, names)])
    with pytest.raises(ValueError, match="look them up in two calls"):
        coll.lookup(coll.init(0), {name: jde.ids([1]) for name in names})


def test_call_batches_hold_everything_once():
    tables = [TableSpec.of(jde.TableConfig(f"t{i}", 4, 256)) for i in range(150)]
    rng = np.random.default_rng(0)
    table_of = [f"t{i}" for i in rng.integers(0, 150, 700)]
    cut = list(call_batches(tables, table_of))
    assert [t for some, _ in cut for t in some] == list(range(150))
    assert sorted(f for _, features in cut for f in features) == list(range(700))
    for some, features in cut:
        assert len(some) <= LIMITS["max_tables"]
        assert len(features) <= LIMITS["max_features"]
        assert {table_of[f] for f in features} <= {tables[t].name for t in some}
