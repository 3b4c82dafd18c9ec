# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ids and slots of several features in one array: the same bits as in their own."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops import find, lookup, slots_of_all
from jax_dynemb._src.ops import update_rows as _update
from jax_dynemb._src.ops.layout import prepare
from jax_dynemb._src.ops.residual import FeatureGradient
from jax_dynemb._src.ops.shared_ids import SharedArray
from jax_dynemb._src.ops.sum_rows import sum_rows
from jax_dynemb._src.spec import TableSpec
from support import gradients

LIMIT = _ffi.constants()["max_tables"]
SIZES = (24, 0, 6, 39)  # a table without ids among them


def configs_of(count: int) -> list[jde.TableConfig]:
    """Copied and pooled rows."""
    poolings = (None, None, "sum", "mean")
    return [
        jde.TableConfig(
            f"t{n}",
            dim=8,
            capacity=256,
            pooling=poolings[n % 4],
            score_strategy="step",
            optimizer=jde.optim.sgd(0.1),
        )
        for n in range(count)
    ]


def inputs_of(tables: list[TableSpec], shares: bool) -> list:
    """Bags of three where rows are pooled; the second last table has its own array."""
    inputs = []
    for n, table in enumerate(tables):
        ids = np.random.default_rng(n).integers(-1, 90, SIZES[n % 4])
        ids = ids.reshape(-1, 3) if table.pooling else ids
        inputs.append(prepare(table, table.name, jde.ids(ids)))
    alone = len(inputs) - 2
    sharing = [given.ids for n, (_, given) in enumerate(inputs) if n != alone]
    whole = jnp.concatenate(sharing) if shares else None
    return [
        (layout, given if n == alone else dataclasses.replace(given, shared=whole))
        for n, (layout, given) in enumerate(inputs)
    ]


def trained(configs: list[jde.TableConfig], shares: bool) -> list[dict[str, jax.Array]]:
    """What a lookup, an update, a find and sums of groups return, by feature."""
    coll = jde.Tables(configs, share_arrays=False)
    tables = [TableSpec.of(config) for config in configs]
    inputs, count = inputs_of(tables, shares), len(tables)
    scores = jnp.zeros((count, 2), jnp.uint32)
    hyper = jnp.tile(jnp.array([[0.1, 0, 0, 0, 0]], jnp.float32), (count, 1))

    @jax.jit
    def step(state):
        looked, state, _ = lookup(tables, state, inputs, scores)
        slots = jnp.zeros(0, jnp.int32)
        if shares:
            pairs = zip(looked, inputs, strict=True)
            own = [x for x, (_, given) in pairs if given.shared is not None]
            slots = slots_of_all(own)
        features = [
            FeatureGradient(
                *(layout, jnp.asarray(gradients((layout.num_bags, 8), n)), given.ids),
                *(output["slots"], None, None, output.get("scale")),
                shared=None if given.shared is None else (given.shared, slots),
            )
            for n, ((layout, given), output) in enumerate(
                zip(inputs, looked, strict=True)
            )
        ]
        state = _update.update(tables, state, features, hyper)
        found, state = find(tables, state, inputs)
        sums = sum_rows(tables, [256] * count, features)
        sums = [
            jnp.where(f.slots[:, None] < 0, 0, s[f.slots])
            for s, f in zip(sums, features, strict=True)
        ]
        return looked, found, sums

    looked, found, sums = step(coll.init(0))
    names = ("rows", "slots", "scale", "found")
    return [
        {f"lookup {k}": x[k] for k in names if k in x}
        | {f"find {k}": y[k] for k in names if k in y}
        | {"sums": z}
        for x, y, z in zip(looked, found, sums, strict=True)
    ]


@pytest.mark.parametrize("count", [4, LIMIT + 4])  # one call, and several
def test_the_same_bits_in_shared_arrays(platform, count):
    configs = configs_of(count)
    own, shared = trained(configs, False), trained(configs, True)
    for one, other in zip(own, shared, strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            # Threads of a GPU take the slots of a bucket in any order.
            if platform == "cpu" or not name.endswith("slots"):
                np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_one_operand_and_one_result_for_all():
    configs = configs_of(4)
    tables = [TableSpec.of(config) for config in configs]
    state = jde.Tables(configs, share_arrays=False).init(0)
    scores = jnp.zeros((4, 2), jnp.uint32)

    def buffers(shares: bool) -> int:
        inputs = inputs_of(tables, shares)
        jaxpr = jax.make_jaxpr(lambda s: lookup(tables, s, inputs, scores)[1])(state)
        (call,) = [e for e in jaxpr.eqns if e.primitive.name == "ffi_call"]
        return len(call.invars) + len(call.outvars)

    assert buffers(False) - buffers(True) == 2  # two features share with a third


def test_more_ids_than_the_array_has_are_refused(platform, monkeypatch):
    configs = configs_of(4)
    tables = [TableSpec.of(config) for config in configs]
    state = jde.Tables(configs, share_arrays=False).init(0)
    inputs, scores = inputs_of(tables, True), jnp.zeros((4, 2), jnp.uint32)

    def claims(self, fields):
        fields[0]["has_uses"] += 2 * 24
        fields[3]["has_uses"] += 2 * 42

    monkeypatch.setattr(SharedArray, "add_counts", claims)
    with pytest.raises(Exception, match="more ids than the array that they share"):
        jax.block_until_ready(lookup(tables, state, inputs, scores)[0])
