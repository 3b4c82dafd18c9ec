# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Grown tables are restored by a process that starts from the configured sizes."""

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from jax_dynemb.admission import Exact, Frequency
from meshes import mesh_of
from support import assert_same_rows, compiled, export, gradients, without_identity

ZEROS = jde.initializers.zeros()


def tables(place: str) -> jde.Tables:
    configs = [
        jde.TableConfig("a", 4, 1024, score_strategy="no_eviction", initializer=ZEROS),
        jde.TableConfig("b", 4, 1024, log_removed=500, initializer=ZEROS),
        jde.TableConfig(
            "c",
            4,
            1024,
            sharding="replicated",
            admission=Frequency(2, Exact(2048)),
            initializer=ZEROS,
        ),
    ]
    if place == "mesh":
        return jde.Tables(configs, mesh=mesh_of(8))
    return jde.Tables(configs, share_arrays=place == "shared")


def step(coll: jde.Tables, state, seed: int):
    rng, jit = np.random.default_rng(seed), compiled(coll)
    ids = {name: jde.ids(rng.integers(0, 5000, 800)) for name in coll.tables}
    rows, residual, state = jit.lookup(state, ids, None, None)
    d_rows = {name: gradients(x.shape, seed) for name, x in rows.items()}
    return jit.apply_gradients(state, residual, d_rows, None)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["one", "shared", "mesh"])
def test_a_grown_run_goes_on(place, tmp_path):
    small = tables(place)
    state = step(small, small.init(0), 0)
    coll, state = small.grow(state, {"a": 4096, "b": 2048, "c": 2048})
    for seed in range(1, 5):
        state = step(coll, state, seed)
    jde.checkpoint.save(tmp_path, 7, state, tables=coll, wait=True)

    sizes = jde.checkpoint.capacities(tmp_path)
    assert sizes == {"a": 4096, "b": 2048, "c": 2048}
    assert jde.checkpoint.capacities(tmp_path, 7) == sizes
    again, new = small.grow(small.init(5), sizes)
    assert again == coll
    restored = jde.checkpoint.restore(tmp_path, new, tables=again)
    assert restored.notes == ()
    for name in coll.tables:
        rows = export(coll, state, name)
        assert_same_rows(export(coll, restored.tree, name), rows)
    assert len(export(coll, state, "a")) > 1024
    for x, y in zip(
        jax.tree.leaves(step(coll, restored.tree, 9)),
        jax.tree.leaves(step(coll, state, 9)),
        strict=True,
    ):
        np.testing.assert_array_equal(without_identity(x), without_identity(y))


def test_a_flax_model_goes_on(tmp_path):
    config = jde.TableConfig("cat", 4, 256, initializer=ZEROS)
    models = [jde.nnx.EmbeddingCollection([config], rngs=nnx.Rngs(s)) for s in (0, 1)]
    models[0].grow({"cat": 2048})
    rows = models[0]({"cat": jde.ids(np.arange(1000))})
    jde.checkpoint.save(tmp_path, 3, models[0], wait=True)
    models[1].grow(jde.checkpoint.capacities(tmp_path))
    assert jde.checkpoint.restore(tmp_path, models[1]).notes == ()
    models[1].eval()
    np.testing.assert_array_equal(
        models[1]({"cat": jde.ids(np.arange(1000))})["cat"], rows["cat"]
    )
    assert models[1].stats()["cat/rows"] == 1000


def test_mistakes(tmp_path):
    with pytest.raises(FileNotFoundError, match="no complete checkpoint in"):
        jde.checkpoint.capacities(tmp_path)
    coll = tables("one")
    jde.checkpoint.save(tmp_path, 2, coll.init(0), tables=coll, wait=True)
    with pytest.raises(FileNotFoundError, match="of step 5"):
        jde.checkpoint.capacities(tmp_path, 5)
    with pytest.raises((TypeError, ValueError), match="step"):
        jde.checkpoint.capacities(tmp_path, -1)
    two = {"x": coll.init(0), "y": coll.init(0)}
    jde.checkpoint.save(tmp_path, 3, two, tables=coll, wait=True)
    with pytest.raises(ValueError, match="two models of this checkpoint"):
        jde.checkpoint.capacities(tmp_path)


def test_an_id_that_is_padding_now(tmp_path):
    """Its row is left out, for which no advice about room is given."""
    coll = jde.Tables([jde.TableConfig("t", 4, 1024)])
    ids = {"t": jde.ids(np.arange(9))}
    jde.checkpoint.save(tmp_path, 1, coll.lookup(coll.init(0), ids)[2], tables=coll)
    larger = jde.Tables([jde.TableConfig("t", 4, 4096, padding_id=0)])
    restored = jde.checkpoint.restore(tmp_path, larger.init(1), tables=larger)
    assert sorted(export(larger, restored.tree, "t")) == list(range(1, 9))
    notes = [note for note in restored.notes if "inserted again" not in note]
    assert notes == [
        "Table 't': the row of id 0 was left out, because that id is padding now."
    ]
