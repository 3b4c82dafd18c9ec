# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every optimizer in frozen tables, without new rows, with clipped and bad gradients.

Dims: just more columns than a warp takes in one step, and many more.
"""

import numpy as np
import pytest

import jax_dynemb as jde
from optimizer_kinds import KINDS, LOOSE
from support import Twins, export, gradients, stat

TUNED = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "adam": jde.optim.adam(0.01),
}
ALL = TUNED | KINDS
DIMS = (129, 1_024)


def twins_of(dim, **options):
    """A table of each optimizer, all with the same options."""
    return Twins(
        *(jde.TableConfig(n, dim, 256, optimizer=o, **options) for n, o in ALL.items())
    )


def step(twins, ids, seed, spoil=None, size=1.0, **flags):
    """Looks up the same ids in all tables, and applies other gradients in each."""
    _, residuals = twins.lookup(dict.fromkeys(ALL, np.asarray(ids)), **flags)
    d_rows = {}
    for i, name in enumerate(ALL):
        dim = twins.coll.tables[name].dim
        d_rows[name] = size * gradients((len(ids), dim), seed + 100 * i)
        if spoil is not None:
            spoil(d_rows[name])
    twins.apply(residuals, d_rows)


@pytest.mark.parametrize("dim", DIMS)
def test_frozen_tables_stay_as_they_are(platform, dim):
    twins = twins_of(dim, trainable=False)
    step(twins, [1, 2, 2, -1], 0)
    before = {name: export(twins.coll, twins.state, name) for name in ALL}
    step(twins, [1, 2, 2, 3], 1)
    twins.check()
    for name in ALL:
        after = export(twins.coll, twins.state, name)
        assert set(after) == {1, 2, 3}
        for key, row in before[name].items():
            np.testing.assert_array_equal(after[key].values, row.values)


@pytest.mark.parametrize("dim", DIMS)
def test_ids_without_a_row_are_not_trained(platform, dim):
    """The gradients of ids that get no row go nowhere."""
    twins = twins_of(dim)
    step(twins, [1, 2, 2, -1], 0)
    step(twins, [1, 7, 7, 8], 1, insert=False)
    twins.check(LOOSE)
    for name in ALL:
        assert set(export(twins.coll, twins.state, name)) == {1, 2}


@pytest.mark.parametrize("dim", DIMS)
def test_clipped_gradients_beside_bad_ones(platform, dim):
    """An infinity is clipped to the limit; a NaN stays one, and its row is skipped."""
    twins = twins_of(dim, max_gradient=0.25)

    def spoil(d):
        d[0, dim - 1], d[1, 0] = np.inf, np.nan

    step(twins, [1, 2, 3, 4], 0)
    step(twins, [1, 2, 3, 2], 1, spoil, size=4.0)
    twins.check(LOOSE)
    for name in ALL:
        assert stat(twins, f"{name}/nonfinite") == 1


@pytest.mark.parametrize("dim", DIMS)
def test_rows_with_bad_gradients_keep_their_values(platform, dim):
    twins = twins_of(dim)

    def spoil(d):
        d[0, dim - 1], d[1, 0], d[3, 128] = np.inf, np.nan, -np.inf

    step(twins, [1, 2, 3, 4, 5], 0)
    before = {name: export(twins.coll, twins.state, name) for name in ALL}
    step(twins, [1, 2, 3, 4, 5], 1, spoil)
    twins.check(LOOSE)
    for name in ALL:
        after = export(twins.coll, twins.state, name)
        for key in (1, 2, 4):
            np.testing.assert_array_equal(after[key].values, before[name][key].values)
            for leaf, state in before[name][key].state.items():
                np.testing.assert_array_equal(after[key].state[leaf], state)
        assert stat(twins, f"{name}/nonfinite") == 3
