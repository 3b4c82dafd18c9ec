# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""In a shard_map that checks over which axes arrays vary, as it does by default.

Batches are so large that ids may take further rounds: the loop is in the program.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

import jax_dynemb as jde
from jax_dynemb.lifecycle import Rule
from meshes import grid

N = 512
SPLIT = PartitionSpec(("data", "model"))
adam = jde.optim.adam(0.1)
few = {"capacity": 512, "optimizer": adam}
RULE = jde.admission.Frequency(2, jde.admission.Sketch(2**12))
TIER = jde.tiers.host(hbm_fraction=0.25)
CONFIGS = [
    jde.TableConfig("plain", dim=4, **few),
    jde.TableConfig("shared", dim=4, **few),
    jde.TableConfig("bags", dim=4, pooling="mean", **few),
    jde.TableConfig("left", dim=8, sharding="table_wise", **few),
    jde.TableConfig("right", dim=8, sharding="table_wise", **few),
    jde.TableConfig("columns", dim=32, sharding="column_wise", **few),
    jde.TableConfig("copies", dim=4, sharding="replicated", **few),
    jde.TableConfig("optax", dim=4, capacity=512, optimizer=optax.adam(0.1)),
    jde.TableConfig("sketch", dim=4, admission=RULE, **few),
    jde.TableConfig("scored", dim=4, score_strategy="lfu", **few),
    jde.TableConfig("tier", dim=4, tier=TIER, **(few | {"capacity": 2048})),
]
OPTIONS = {
    "rows": {"exchange_pooled": "rows", "exchange_factor": 0.3},
    "sums": {"exchange_pooled": "sums"},
    "hosts": {"exchange_pooled": "rows", "devices_per_host": 2},
}


def _ids(coll: jde.Tables, seed: int) -> dict[str, jax.Array]:
    draw = np.random.default_rng(seed)
    shapes = {
        f: (N, 2) if coll.tables[t].pooling else N for f, t in coll.features.items()
    }
    return {f: jde.ids(draw.integers(0, 900, shape)) for f, shape in shapes.items()}


def _mapped(coll: jde.Tables, function, outputs, checked: bool):
    specs = coll.partition_specs()
    return jax.jit(
        jax.shard_map(
            function,
            mesh=grid(),
            in_specs=(specs, SPLIT),
            out_specs=outputs,
            check_vma=checked,
        )
    )


def _run(tables, options, checked: bool) -> list[np.ndarray]:
    coll = jde.Tables(tables, grid(), **options)
    specs, state = coll.partition_specs(), coll.init(0)

    def several(state, ids):
        def body(state, ids):
            rows, residual, state = coll.lookup(state, ids)
            return state, (rows, residual)

        rows, residual, state = coll.lookup(state, ids)
        halves = {f: jnp.stack([x, x[::-1]]) for f, x in ids.items()}
        state, (others, more) = jax.lax.scan(body, state, halves)
        state = coll.apply_gradients(state, [residual, more], [rows, others])
        return rows, state

    def find(state, ids):
        rows, found, state = coll.find(state, ids, touch=True)
        return rows, found, state

    rows, state = _mapped(coll, several, (SPLIT, specs), checked)(state, _ids(coll, 7))
    found = _mapped(coll, find, (SPLIT, SPLIT, specs), checked)(state, _ids(coll, 3))
    return [np.asarray(x) for x in jax.tree.leaves([rows, found[:2]])]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_checks_change_no_result(name):
    tables = CONFIGS if name == "rows" else CONFIGS[1:4]
    plain = _run(tables, OPTIONS[name], checked=False)
    checked = _run(tables, OPTIONS[name], checked=True)
    for one, other in zip(plain, checked, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_rows_are_erased_by_rank():
    (scored,) = [config for config in CONFIGS if config.name == "scored"]
    coll = jde.Tables([scored], grid())
    specs = coll.partition_specs()
    ids = {"scored": jde.ids(np.random.default_rng(1).integers(0, 900, N))}

    def erase(state, ids):
        *_, state = coll.lookup(state, ids)
        return coll.erase_where(state, {"scored": Rule(keep_at_most=60)})[1]

    state = _mapped(coll, erase, specs, checked=True)(coll.init(0), ids)
    assert coll.stats(state)["scored/rows"] == 60
