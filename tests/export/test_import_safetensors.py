# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.import_.safetensors: an export, and its deltas, in tables again."""

import dataclasses
import json

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.__main__ import main as command
from support import advised_capacity, compiled, export, gradients

CONFIG = jde.TableConfig("t", dim=5, capacity=2048, optimizer=jde.optim.adam(0.1))
COLL = jde.Tables([CONFIG])
KEYS = np.random.default_rng(0).integers(-(2**62), 2**62, 600)


def trained(state, keys: np.ndarray = KEYS, seed: int = 0):
    rows, residual, state = compiled(COLL).lookup(
        state, {"t": jde.ids(keys)}, None, None
    )
    d_rows = {"t": gradients(rows["t"].shape, seed)}
    return compiled(COLL).apply_gradients(state, residual, d_rows, None)


# A column's error is at most this part of the largest of its row.
ERRORS = {"float32": 0.0, "bfloat16": 2**-8, "int8": 1 / 254, "int4": 1 / 14}


@pytest.mark.parametrize("dtype", ERRORS)
def test_the_rows_come_back(tmp_path, dtype):
    state = trained(COLL.init(0))
    want = export(COLL, state, "t")
    jde.export.safetensors(tmp_path / "x", COLL, state, dtype=dtype, quiet=True)
    imported = jde.import_.safetensors(tmp_path / "x", COLL)
    (note,) = imported.notes
    assert "its optimizer starts fresh: 1 updates came before" in note
    assert imported.counters == {} and COLL.stats(imported.state)["t/step"] == 0
    got = export(COLL, imported.state, "t")
    assert got.keys() == want.keys()
    for key, row in got.items():
        exact = want[key].values
        error = np.abs(row.values.astype(np.float64) - exact).max()
        assert error <= ERRORS[dtype] * np.abs(exact).max() * 1.0001
        assert not row.state["mu"].any()


def test_with_deltas_into_another_table(tmp_path):
    state = trained(COLL.init(0))
    jde.export.safetensors(tmp_path / "x", COLL, state, dtype="int8", quiet=True)
    state = trained(state, KEYS[:50] + 1, seed=1)
    state = COLL.erase(state, {"t": jde.ids(KEYS[:20])})
    jde.export.delta(tmp_path / "x", COLL, state)
    other = jde.Tables(
        [dataclasses.replace(CONFIG, capacity=4096, optimizer=jde.optim.sgd(0.1))]
    )
    old = other.init(0)
    _, _, old = other.lookup(old, {"t": jde.ids(np.arange(9))})  # gives way
    new, _, notes = jde.import_.safetensors(tmp_path / "x", other, old)
    # An optimizer that keeps nothing of rows goes on with its learning rates.
    assert notes == () and other.stats(new)["t/step"] == 2
    assert export(other, new, "t").keys() == export(COLL, state, "t").keys()
    assert other.stats(new)["t/rows"] == 630


def test_what_does_not_fit_is_named(tmp_path):
    jde.export.safetensors(tmp_path / "x", COLL, trained(COLL.init(0)), quiet=True)
    wide = jde.Tables([dataclasses.replace(CONFIG, dim=6)])
    with pytest.raises(ValueError, match="exported with dim 5, but its config has dim"):
        jde.import_.safetensors(tmp_path / "x", wide)
    other = jde.Tables([dataclasses.replace(CONFIG, name="u", feature_names=())])
    with pytest.raises(ValueError, match=r"no table 'u'. Tables there: \['t'\]"):
        jde.import_.safetensors(tmp_path / "x", other)
    small = jde.Tables([dataclasses.replace(CONFIG, capacity=128)])
    state = small.init(0)
    with pytest.raises(ValueError, match=r"of 600 rows would find no place") as raised:
        jde.import_.safetensors(tmp_path / "x", small, state)
    assert small.stats(state)["t/rows"] == 0  # lives on
    with pytest.warns(UserWarning, match="rows found no place in their bucket"):
        *_, note = jde.import_.safetensors(
            tmp_path / "x", small, state, allow_drop=True
        ).notes
    assert "rows found no place in their bucket" in note
    capacity = advised_capacity(raised.value)
    large = jde.Tables([dataclasses.replace(CONFIG, capacity=capacity)])
    found = jde.import_.safetensors(tmp_path / "x", large)
    assert large.stats(found.state)["t/rows"] == 600
    assert not any("no place" in note for note in found.notes)


def test_the_commands_read_integer_rows(tmp_path, capsys):
    state = trained(COLL.init(0))
    jde.export.safetensors(tmp_path / "x", COLL, state, dtype="int4", quiet=True)
    assert command(["inspect", str(tmp_path / "x"), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)["tables"]["t"]
    assert (fields["rows"], fields["dim"], fields["dtype"]) == (600, 5, "int4")
    assert fields["row_bytes"] == 3 + 17
    out = tmp_path / "dump"
    assert command(["convert", str(tmp_path / "x"), str(out), "--to=dynamicemb"]) == 0
    imported = jde.import_.dynamicemb(out, COLL, optimizer=False)
    assert COLL.stats(imported.state)["t/rows"] == 600
