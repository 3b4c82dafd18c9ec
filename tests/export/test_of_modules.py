# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Exports take a module in place of its tables and their state."""

import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde


@pytest.fixture
def model():
    tables = [jde.TableConfig(name, 4, 256, log_removed=16) for name in ("a", "b")]
    model = nnx.Module()
    model.sparse = jde.nnx.EmbeddingCollection(tables, rngs=nnx.Rngs(0))
    model.sparse({"a": jde.ids([1, 2, 3]), "b": jde.ids([4])})
    return model


def parts(model):
    return model.sparse.coll, model.sparse.get_state()


def test_files_are_those_of_the_state(model, tmp_path):
    for name in ("safetensors", "dynamicemb"):
        write = getattr(jde.export, name)
        write(tmp_path / f"{name}-model", model, quiet=True)
        write(tmp_path / f"{name}-state", *parts(model), quiet=True)
        files = [f for f in (tmp_path / f"{name}-state").rglob("*") if f.is_file()]
        assert files
        for file in files:
            twin = (
                tmp_path
                / f"{name}-model"
                / file.relative_to(tmp_path / f"{name}-state")
            )
            if file.name != "meta.json":
                assert twin.stat().st_size == file.stat().st_size, file
    model.sparse({"a": jde.ids([9])})
    written = jde.export.delta(tmp_path / "safetensors-model", model.sparse)
    assert written["a"] is not None


def test_frozen_tables_and_stores(model, tmp_path):
    served, state = jde.export.frozen(model)
    rows, found, _ = served.find(state, {"a": jde.ids([1, 9])})
    assert np.asarray(found["a"]).tolist() == [True, False]
    coll, before = parts(model)
    np.testing.assert_array_equal(
        rows["a"], coll.find(before, {"a": jde.ids([1, 9])})[0]["a"]
    )
    layout = jde.stores.Layout.of(coll.tables["a"])
    with jde.stores.Log(tmp_path / "log", layout) as log:
        assert jde.export.to_store(model.sparse, stores={"a": log}) == {"a": 3}


def test_what_is_no_collection_is_refused(model, tmp_path):
    twice = nnx.Module()
    twice.left, twice.right = (
        model,
        jde.nnx.DynamicEmbed(features=4, capacity=256, rngs=nnx.Rngs(0)),
    )
    with pytest.raises(ValueError, match=r"collections at \['left.sparse', 'right'\]"):
        jde.export.safetensors(tmp_path / "x", twice)
    with pytest.raises(TypeError, match="a module has its own state"):
        jde.export.frozen(model, parts(model)[1])
    with pytest.raises(TypeError, match="or a module with tables, but got a Tables"):
        jde.export.frozen(parts(model)[0])
    with pytest.raises(ValueError, match="the module has no tables"):
        jde.export.safetensors(tmp_path / "x", nnx.Linear(2, 2, rngs=nnx.Rngs(0)))
