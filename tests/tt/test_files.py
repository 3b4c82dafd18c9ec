# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of tensor trains in the files and programs that dynamic tables have."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_dynemb as jde
from meshes import mesh_of
from oracle import tt_table

ROWS, DIM, RATE = 320, 8, 0.25
ITEM = jde.TTConfig(
    "item", DIM, ROWS, (3, 3), optimizer=jde.optim.sgd(RATE), compute_dtype="float32"
)
HOT = dataclasses.replace(ITEM, residual=1024)
USER = jde.TableConfig("user", DIM, 1024, optimizer=jde.optim.sgd(0.5))
HOT_IDS = np.array([3, 9, 9, 319])


def trained(item: jde.TTConfig, devices: int | None) -> tuple[jde.Tables, Any]:
    """Every gradient is one."""
    mesh = None if devices is None else mesh_of(devices)
    coll = jde.Tables([item, USER], mesh=mesh)
    state = coll.init(0)
    items = HOT_IDS if item.pooling is None else HOT_IDS[:, None]
    ids = {"item": jde.ids(items), "user": jde.ids([5, 2**40, 7, 5])}
    rows, residual, state = coll.lookup(state, ids)
    d_rows = jax.tree.map(jnp.ones_like, rows)
    return coll, coll.apply_gradients(state, residual, d_rows)


def rows_of(item: jde.TTConfig, state: Any) -> np.ndarray:
    """Reads as lookups do: the table of the cores, and what the residual has learnt."""
    table = tt_table([np.asarray(core) for core in state["item"].cores])[:ROWS]
    if item.residual is not None:
        table = table - RATE * np.bincount(HOT_IDS, minlength=ROWS)[:, None]
    return table


@pytest.mark.slow
@pytest.mark.parametrize("devices", [None, 4])
@pytest.mark.parametrize("item", [ITEM, HOT], ids=["cores", "residual"])
def test_exported_rows_are_those_of_lookups(tmp_path, item, devices):
    coll, state = trained(item, devices)
    wanted = rows_of(item, state)
    chunks = list(coll.export(state, "item"))
    np.testing.assert_array_equal(
        np.concatenate([c.keys for c in chunks]), np.arange(ROWS)
    )
    got = np.concatenate([c.rows for c in chunks])
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    jde.export.safetensors(tmp_path / "x", coll, state, quiet=True)
    file = load_file(tmp_path / "x/item.safetensors")
    np.testing.assert_array_equal(file["keys"], np.arange(ROWS))
    np.testing.assert_array_equal(file["rows"], got)
    again = jde.Tables([jde.TableConfig("item", DIM, 1024), USER])
    filled = jde.import_.safetensors(tmp_path / "x", again).state
    read, _, _ = again.find(filled, {"item": jde.ids(np.arange(ROWS))})
    np.testing.assert_array_equal(read["item"], got)


def test_dynamicemb_reads_rows_without_states(tmp_path):
    coll, state = trained(ITEM, None)
    with pytest.raises(ValueError, match="optimizer=False"):
        jde.export.dynamicemb(tmp_path / "y", coll, state, quiet=True)
    reports = jde.export.dynamicemb(
        tmp_path / "x", coll, state, optimizer=False, quiet=True
    )
    assert reports["item"].rows == ROWS
    again = jde.Tables([jde.TableConfig("item", DIM, 1024), USER])
    filled = jde.import_.dynamicemb(tmp_path / "x", again).state
    read, _, _ = again.find(filled, {"item": jde.ids(np.arange(ROWS))})
    np.testing.assert_allclose(read["item"], rows_of(ITEM, state), atol=1e-6)


def test_hashed_ids_have_no_rows_to_export(tmp_path):
    coll, state = trained(dataclasses.replace(ITEM, ids="hash"), None)
    with pytest.raises(ValueError, match=r"Export its cores with jde\.tt\.to_torch"):
        jde.export.safetensors(tmp_path / "x", coll, state, quiet=True)
    jde.export.safetensors(tmp_path / "x", coll, state, tables=["user"], quiet=True)


@pytest.mark.parametrize("dtype", [None, "int8"])
@pytest.mark.parametrize("devices", [None, 4])
@pytest.mark.parametrize("item", [ITEM, HOT], ids=["cores", "residual"])
def test_frozen_tables_read_the_same_rows(item, devices, dtype):
    """Cores stay float32 beside packed rows; tables of a mesh come to one device."""
    coll, state = trained(item, devices)
    served, states = jde.export.frozen(coll, state, dtype=dtype)
    ids = {"item": jde.ids(np.arange(ROWS)), "user": jde.ids([5, 2**40, 7, 99])}
    wanted = coll.find(state, ids)[0]
    got, _, _ = jax.jit(served.find)(states, ids)
    tolerance = 1e-6 if dtype is None else 0.02  # of rows that int8 has rounded
    for name, rows in got.items():
        assert len(rows.devices()) == 1
        np.testing.assert_allclose(rows, wanted[name], atol=tolerance)
    assert not jax.tree.leaves(states["item"].optimizer)


@pytest.mark.parametrize("shapes", [None, (None, "b, ...")], ids=["static", "any"])
@pytest.mark.parametrize("pooling", [None, "sum", "mean"])
def test_a_frozen_program_has_cores_as_arguments(pooling, shapes):
    """A batch of any size, where shapes have a symbolic dimension."""
    coll, state = trained(dataclasses.replace(HOT, pooling=pooling), None)
    served, states = jde.export.frozen(coll, state)

    def serve(states, ids):
        return served.find(states, {"item": ids})[0]["item"]

    ids = jde.ids(np.arange(24).reshape(12, 2))
    limits = [] if shapes is None else ["b <= 512"]
    data = jde.export.program(serve, states, ids, shapes=shapes, constraints=limits)
    program = jax.jit(jde.export.load_program(data).call)
    for size in (12,) if shapes is None else (12, 1, 300):
        some = jde.ids(np.arange(2 * size).reshape(size, 2) % (ROWS + 3))
        wanted = coll.find(state, {"item": some})[0]["item"]
        np.testing.assert_allclose(program(states, some), wanted, atol=1e-6)


def test_a_frozen_program_of_jagged_bags():
    coll, state = trained(dataclasses.replace(ITEM, pooling="sum"), None)
    served, states = jde.export.frozen(coll, state)
    bags = jde.Jagged(jde.ids(np.arange(9)), jnp.array([3, 0, 4, 2]))
    data = jde.export.program(
        lambda states, bags: served.find(states, {"item": bags})[0]["item"],
        states,
        bags,
    )
    wanted = coll.find(state, {"item": bags})[0]["item"]
    got = jde.export.load_program(data).call(states, bags)
    np.testing.assert_allclose(got, wanted, atol=1e-6)
