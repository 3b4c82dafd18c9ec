# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every optimizer on a mesh of eight devices: the oracle is one device.

Gradients are small multiples of a power of two, so their sums are exact in any order.
Then eight devices give the bits of one: rows, states, and what rounding adds at random.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from optimizer_kinds import KINDS, LOOSE, SUM_ROWS
from support import Twins, assert_same_rows, export

TUNED = {
    "sgd": jde.optim.sgd(0.1),
    "adagrad": jde.optim.adagrad(0.1),
    "rowwise_adagrad": jde.optim.rowwise_adagrad(0.1),
    "adam": jde.optim.adam(0.05, weight_decay=0.1),
}
ALL = TUNED | KINDS
DIM = 32  # four columns a device where a table is column-wise


def table(name: str, kind: str, **options) -> jde.TableConfig:
    return jde.TableConfig(name, 8, 1024, optimizer=KINDS[kind], **options)


def of_every_kind(sharding: str) -> list[jde.TableConfig]:
    """Two tables for each optimizer: float32, and bfloat16 rounded stochastically."""
    own_sums = sharding != "column_wise"
    names = [n for n in ALL if own_sums or n not in {*SUM_ROWS, "rowwise_adagrad"}]
    formats = {"32": {}, "16": {"param_dtype": "bfloat16", "rounding": "stochastic"}}
    return [
        jde.TableConfig(
            f"{name}_{bits}",
            DIM,
            1024,
            optimizer=ALL[name],
            sharding=sharding,
            **options,
        )
        for name in names
        for bits, options in formats.items()
    ]


@functools.partial(jax.jit, static_argnums=0)
def step(coll, state, ids, d_rows):
    _, residual, state = coll.lookup(state, ids)
    return coll.apply_gradients(state, residual, d_rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sharding", ["row_wise", "table_wise", "replicated", "column_wise"]
)
def test_eight_devices_have_the_bits_of_one(sharding):
    tables = of_every_kind(sharding)
    colls = [jde.Tables(tables), jde.Tables(tables, mesh=mesh_of(8), axis="data")]
    states = [coll.init(3) for coll in colls]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        keys = rng.integers(-1, 50, 64)  # most occur on several devices
        d_rows = jnp.asarray(rng.integers(-16, 17, (64, DIM)) / 8, jnp.float32)
        ids = {t.name: jde.ids(keys) for t in tables}
        for i, coll in enumerate(colls):
            states[i] = step(coll, states[i], ids, dict.fromkeys(ids, d_rows))
    for name in colls[0].tables:
        one, eight = (export(c, s, name) for c, s in zip(colls, states, strict=True))
        assert len(one) > 40
        assert_same_rows(eight, one)


@pytest.mark.parametrize("kind", sorted(SUM_ROWS))
def test_sums_over_a_row_need_the_whole_row(kind):
    config = table("t", kind, sharding="column_wise")
    with pytest.raises(ValueError, match=r"'t' is column-wise.*sharding='row_wise'"):
        jde.Tables([config], mesh=mesh_of(2))


def test_frozen_tables_and_clipped_gradients_on_a_mesh():
    tables = [
        table("still", "lion", trainable=False),
        jde.TableConfig("none", 8, 1024, optimizer=jde.optim.none()),
        table("clipped", "momentum", max_gradient=0.1, pooling="mean"),
    ]
    twins = Twins(*tables, mesh=mesh_of(2))
    for seed in range(2):
        rng = np.random.default_rng(seed)
        ids = {t.name: rng.integers(-1, 60, (8, 2)) for t in tables}
        twins.train(ids, seed=seed)
    twins.check(LOOSE)


def test_reduced_rows_of_a_mesh_come_with_their_keys():
    coll = jde.Tables([table("t", "momentum")], mesh=mesh_of(2))
    ids = np.array([5, 6, 5, 7, 9, 9, -1, 5])
    rows, residual, state = coll.lookup(coll.init(0), {"t": jde.ids(ids)})
    d_rows = {"t": np.ones(rows["t"].shape, np.float32)}
    reduced, _ = coll.reduce_gradients(state, residual, d_rows)
    (own,) = reduced.values()
    live = np.asarray(own.slots) >= 0
    keys = np.asarray(own.keys)[live][:, 0].tolist()
    counts = np.asarray(own.grads)[live][:, 0].tolist()
    assert dict(zip(keys, counts, strict=True)) == {5: 3, 6: 1, 7: 1, 9: 2}
