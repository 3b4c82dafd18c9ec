# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""save, restore and latest: a run goes on from them as if nothing had happened."""

import errno
import json
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import pieces as _pieces
from jax_dynemb._src.files.checkpoint import read_pieces as _read_pieces
from jax_dynemb._src.files.checkpoint import write_pieces as _write_pieces
from jax_dynemb._src.files.checkpoint.arrays import StoredArray
from jax_dynemb._src.files.integrity import FORMAT_VERSION
from support import without_identity

IDS = np.random.default_rng(0).integers(-(2**62), 2**62, 400)


class Model(nnx.Module):
    def __init__(self, seed: int, capacity: int = 1024, optimizer=None):
        rngs = nnx.Rngs(seed)
        tables = [
            jde.TableConfig(
                "cat", dim=4, capacity=capacity, optimizer=optimizer or optax.adam(0.1)
            ),
            jde.TableConfig("word", dim=3, capacity=256, optimizer=jde.optim.adam(0.1)),
        ]
        self.sparse = jde.nnx.EmbeddingCollection(tables, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(7, 1, rngs=rngs)])
        self.dropout = nnx.Dropout(0.25, rngs=rngs)  # has a key and a count

    def __call__(self, ids):
        rows = self.sparse({"cat": ids, "word": ids})
        return self.layers[0](self.dropout(jnp.concatenate([*rows.values()], -1)))


def parts(seed: int, **options) -> dict:
    model = Model(seed, **options)
    return {
        "model": model,
        "optimizer": jde.nnx.Optimizer(model, optax.adam(1e-2)),
    }


@jde.nnx.jit
def train(model, optimizer, ids):
    def loss_fn(model, ids):
        return (model(ids) ** 2).mean() + model(ids).sum()

    loss, grads = jde.nnx.value_and_grad(loss_fn)(model, ids)
    optimizer.update(model, grads)
    return loss


def steps(run: dict, first: int, count: int) -> list[float]:
    losses = []
    for step in range(first, first + count):
        ids = jde.ids(IDS[step * 20 : step * 20 + 60])
        losses.append(float(train(run["model"], run["optimizer"], ids)))
    return losses


def leaves(tree) -> list[np.ndarray]:
    state = nnx.state(tree) if isinstance(tree, nnx.Pytree) else tree
    return [
        without_identity(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for leaf in jax.tree.leaves(state)
    ]


def is_key(leaf) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(
        leaf.dtype, jax.dtypes.prng_key
    )


def assert_same(a, b) -> None:
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_run_goes_on_where_it_was_saved(tmp_path):
    run = parts(0)
    steps(run, 0, 3)
    jde.checkpoint.save(tmp_path, 3, run)
    # The files are written while training goes on and changes the arrays in place.
    expected = steps(run, 3, 3)
    jde.checkpoint.wait(tmp_path)
    again = parts(1)
    restored = jde.checkpoint.restore(tmp_path, again)
    assert restored.step == 3 and restored.notes == ()
    assert restored.tree["model"] is again["model"]
    assert steps(again, 3, 3) == expected
    for name in run:
        assert_same(run[name], again[name])
    assert again["model"].sparse.stats() == run["model"].sparse.stats()


def test_an_abstract_model_takes_no_memory_before(tmp_path):
    run = parts(0)
    steps(run, 0, 2)
    jde.checkpoint.save(tmp_path, 2, run["model"], wait=True)
    model = nnx.eval_shape(lambda: Model(0))
    assert jde.checkpoint.restore(tmp_path, model).tree is model
    assert_same(model, run["model"])


def test_plain_states_and_parameters(tmp_path):
    coll = jde.Tables([jde.TableConfig("cat", dim=4, capacity=300)])
    _, _, state = coll.lookup(coll.init(0), {"cat": jde.ids(IDS)})
    params = {"w": jnp.arange(3.0), "layers": [(jnp.ones(2), 7)]}
    tx = optax.adam(0.1).init(params["w"])
    tree = {"tables": state, "params": params, "tx": tx}
    with pytest.raises(ValueError, match=r"'tables/cat' has no known config.*tables="):
        jde.checkpoint.save(tmp_path, 0, tree)
    jde.checkpoint.save(tmp_path, 0, tree, tables=coll, wait=True)
    blank = jax.tree.map(lambda x: x * 0, tree)
    restored = jde.checkpoint.restore(tmp_path, blank, tables=coll)
    assert jax.tree.structure(restored.tree) == jax.tree.structure(tree)
    assert_same(restored.tree, tree)
    assert restored.tree["params"]["layers"][0][1] == 7


def test_old_checkpoints_are_deleted_and_steps_only_grow(tmp_path):
    assert jde.checkpoint.latest(tmp_path / "none") is None
    assert jde.checkpoint.latest(tmp_path) is None
    with pytest.raises(FileNotFoundError, match="no complete checkpoint in"):
        jde.checkpoint.restore(tmp_path, {"x": jnp.ones(3)})
    for step in (1, 5, 6, 20):
        tree = {"x": jnp.full(3, float(step))}
        jde.checkpoint.save(tmp_path, step, tree, keep=2)
    jde.checkpoint.wait()
    assert jde.checkpoint.steps(tmp_path) == [6, 20]
    assert jde.checkpoint.latest(tmp_path) == 20
    with pytest.raises(ValueError, match="step 20, so step 20 can not be saved"):
        jde.checkpoint.save(tmp_path, 20, tree)
    old = jde.checkpoint.restore(tmp_path, tree, step=6)
    np.testing.assert_array_equal(old.tree["x"], np.full(3, 6.0))
    with pytest.raises(FileNotFoundError, match=r"step 7 in .*there are \[6, 20\]"):
        jde.checkpoint.restore(tmp_path, tree, step=7)


@pytest.mark.parametrize("keep", [0, -1, 1.5, True])
def test_a_save_keeps_its_own_checkpoint(tmp_path, keep):
    with pytest.raises(ValueError, match=r"keep must be .* 1 or more.*None keeps all"):
        jde.checkpoint.save(tmp_path, 1, {"x": jnp.ones(3)}, keep=keep)


def test_what_can_not_be_saved(tmp_path):
    coll = jde.Tables([jde.TableConfig("cat", dim=4, capacity=300)])
    state = coll.init(0)
    for nothing in (None, {}, []):
        with pytest.raises(ValueError, match=r"The tree has no arrays\. Pass what to"):
            jde.checkpoint.save(tmp_path, 1, nothing)
    with pytest.raises(TypeError, match=r"tables must be the jde\.Tables that made"):
        jde.checkpoint.save(tmp_path, 1, state, tables=[coll])  # pyright: ignore
    with pytest.raises(TypeError, match=r"cannot stand inside jax\.jit"):
        jax.jit(lambda s: jde.checkpoint.save(tmp_path, 1, s, tables=coll))(state)


def test_tables_of_before_a_growth_are_refused(tmp_path):
    coll = jde.Tables([jde.TableConfig("cat", dim=4, capacity=300)])
    _, _, state = coll.lookup(coll.init(0), {"cat": jde.ids(IDS)})
    grown, state = coll.grow(state, {"cat": 2_000})
    fix = r"'cat' belongs to other tables than tables=: .*grow returns new ones"
    with pytest.raises(ValueError, match=fix):
        jde.checkpoint.save(tmp_path, 1, state, tables=coll)
    jde.checkpoint.save(tmp_path, 1, state, tables=grown, wait=True)
    with pytest.raises(ValueError, match=fix):
        jde.checkpoint.restore(tmp_path, grown.init(0), tables=coll)
    restored = jde.checkpoint.restore(tmp_path, grown.init(0), tables=grown)
    assert_same(restored.tree, state)


# Python 3.12.0 to 3.12.2 start no threads when a program ends (cpython#113964).
NO_THREADS = (3, 12) <= sys.version_info < (3, 12, 3)
SCRIPT = """
import sys, jax.numpy as jnp, jax_dynemb as jde
jde.checkpoint.save(sys.argv[1], 3, {"x": jnp.arange(1 << 22)})
"""


def test_a_script_that_ends_finishes_its_last_checkpoint(tmp_path):
    command = [sys.executable, "-P", "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if NO_THREADS and jde.checkpoint.latest(tmp_path) is None:
        assert "is not complete" in done.stderr
        assert "Call jde.checkpoint.wait() before" in done.stderr
        return
    assert done.returncode == 0 and done.stderr == ""
    tree = {"x": jnp.zeros(1 << 22, jnp.int32)}
    restored = jde.checkpoint.restore(tmp_path, tree)
    np.testing.assert_array_equal(restored.tree["x"], np.arange(1 << 22))


def test_addresses_of_object_stores_are_refused(tmp_path):
    with pytest.raises(ValueError, match="gs://bucket.*orbax itself"):
        jde.checkpoint.save("gs://bucket/run", 0, {"x": jnp.ones(3)})


def test_orbax_reads_what_was_saved(tmp_path):
    coll = jde.Tables([jde.TableConfig("cat", dim=4, capacity=300)])
    _, _, state = coll.lookup(coll.init(0), {"cat": jde.ids(IDS)})
    jde.checkpoint.save(tmp_path, 4, {"tables": state}, tables=coll, wait=True)
    like = {"state": ocp.args.StandardRestore()}
    with ocp.CheckpointManager(tmp_path) as manager:
        assert manager.latest_step() == 4
        read = manager.restore(4, args=ocp.args.Composite(**like))["state"]
    table = read["tables"]["cat"]
    np.testing.assert_array_equal(table["index"], state["cat"].index)
    np.testing.assert_array_equal(table["values"], state["cat"].values)


@pytest.fixture
def large(monkeypatch):
    """Arrays of more than 64 KiB are large, so that small ones test what they do."""
    monkeypatch.setattr(_pieces, "PIECE_BYTES", 1 << 16)


@pytest.fixture(params=["as on a CPU", "as on a GPU"])
def way(request, monkeypatch):
    """How pieces travel: a CPU can do as if its memory were not the host's."""
    if request.param == "as on a CPU":
        return
    for module in (_read_pieces, _write_pieces):
        monkeypatch.setattr(module, "is_host", lambda device: False)

    def unaligned(size: int) -> np.ndarray:
        """A buffer that a CPU device copies, as a GPU does, and does not share."""
        buffer = np.empty(size + 128, np.uint8)
        return buffer[(4 - buffer.ctypes.data) % 64 :][:size]

    monkeypatch.setattr(_read_pieces, "_fresh", unaligned)


def test_large_arrays_are_written_in_pieces_of_whole_rows(tmp_path, large, way):
    coll = jde.Tables([jde.TableConfig("cat", dim=32, capacity=64 * 128)])
    _, _, state = coll.lookup(coll.init(0), {"cat": jde.ids(IDS)})
    jde.checkpoint.save(tmp_path, 0, state, tables=coll, wait=True)
    pieces = list((tmp_path / "0" / "state" / "cat.values").glob("[0-9]*"))
    size = 32 * 4 * coll.tables["cat"].num_slots
    assert [path.stat().st_size for path in pieces] == [1 << 16] * (size >> 16)
    assert (
        b"".join(
            path.read_bytes()
            for path in sorted(pieces, key=lambda path: int(path.name.split(".")[0]))
        )
        == np.asarray(state["cat"].values).tobytes()
    )
    again = jde.checkpoint.restore(tmp_path, coll.init(1), tables=coll)
    assert_same(again.tree, state)
    # What another program reads is the same.
    values = StoredArray(tmp_path / "0", "cat/values")
    np.testing.assert_array_equal(
        values.read(0, values.shape[0])(), state["cat"].values
    )
    with ocp.CheckpointManager(tmp_path) as manager:
        args = ocp.args.Composite(state=ocp.args.StandardRestore())
        read = manager.restore(0, args=args)["state"]
    np.testing.assert_array_equal(read["cat"]["values"], state["cat"].values)
    np.testing.assert_array_equal(read["cat"]["index"], state["cat"].index)


@pytest.mark.parametrize("damage", ["altered", "cut off", "missing"])
def test_damage_in_a_piece(tmp_path, large, damage):
    coll = jde.Tables([jde.TableConfig("cat", dim=32, capacity=64 * 128)])
    _, _, state = coll.lookup(coll.init(0), {"cat": jde.ids(IDS)})
    for step in (0, 1):
        jde.checkpoint.save(tmp_path, step, state, tables=coll, wait=True)
    piece = tmp_path / "1" / "state" / "cat.values" / "3.0"
    data = bytearray(piece.read_bytes())
    data[1000] ^= 1
    if damage == "missing":
        piece.unlink()
    else:
        piece.write_bytes(data if damage == "altered" else data[:-1])
    again = coll.init(1)
    with pytest.raises(ValueError, match=f"{piece} is damaged: "):
        jde.checkpoint.restore(tmp_path, again, tables=coll)
    # The same tree takes another step, though its arrays are gone.
    restored = jde.checkpoint.restore(tmp_path, again, step=0, tables=coll)
    assert_same(restored.tree, state)


def test_a_full_disk_is_told_and_the_next_save_has_its_room(
    tmp_path, large, monkeypatch
):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    tree = {"x": jnp.arange(1 << 17)}
    jde.checkpoint.save(tmp_path, 0, tree, wait=True)
    monkeypatch.setattr(_write_pieces, "os", types.SimpleNamespace(fsync=full))
    with pytest.raises(OSError, match="No space left"):
        jde.checkpoint.save(tmp_path, 1, tree, wait=True)
    monkeypatch.undo()
    assert jde.checkpoint.steps(tmp_path) == [0]
    pieces = list(tmp_path.rglob("x/[0-9]*"))
    assert len(pieces) == 8 and {path.parts[-4] for path in pieces} == {"0"}
    jde.checkpoint.save(tmp_path, 2, tree, wait=True)
    assert_same(jde.checkpoint.restore(tmp_path, {"x": tree["x"] * 0}).tree, tree)


def test_dense_arrays_of_any_shape_in_pieces(tmp_path, large, way):
    rng = np.random.default_rng(0)
    tree = {
        "wide": rng.normal(size=(3, 1 << 15)).astype(np.float32),  # one row is too much
        "prime": rng.normal(size=(40009, 2)).astype(np.float32),  # no divisors
        "three": rng.normal(size=(64, 16, 32)).astype(np.float32),
        "half": rng.normal(size=(1 << 15, 4)).astype(jnp.bfloat16),
        "flat": rng.integers(0, 2**32, 1 << 17, np.uint32),
    }
    tree = jax.tree.map(jnp.asarray, tree)
    jde.checkpoint.save(tmp_path, 0, tree, wait=True)
    fields = json.loads((tmp_path / "0" / "state" / "jax_dynemb.json").read_text())
    assert set(fields["pieces"]) == {"three", "half", "flat"}
    blank = jax.tree.map(lambda x: x * 0, tree)
    assert_same(jde.checkpoint.restore(tmp_path, blank).tree, tree)
    host = jax.tree.map(np.zeros_like, tree)  # a tree of NumPy arrays is read too
    assert_same(jde.checkpoint.restore(tmp_path, host).tree, tree)


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    from jax_dynemb._src.files.checkpoint import save_tree as _save

    monkeypatch.setattr(_save, "FORMAT_VERSION", FORMAT_VERSION + 1)
    tree = {"x": jnp.ones(3)}
    jde.checkpoint.save(tmp_path, 0, tree, wait=True)
    with pytest.raises(
        ValueError, match="format_version is 2, .* or upgrade jax_dynemb"
    ):
        jde.checkpoint.restore(tmp_path, tree)


def test_a_failure_in_the_background_is_raised(tmp_path, monkeypatch):
    from jax_dynemb._src.files.checkpoint import checksums as _checksums

    def full(directory):
        raise OSError("No space left on device")

    tree = {"x": jnp.ones(3)}
    jde.checkpoint.save(tmp_path, 0, tree, wait=True)
    monkeypatch.setattr(_checksums, "write_checksums", full)
    with pytest.raises(OSError, match="No space left"):
        jde.checkpoint.save(tmp_path, 1, tree, wait=True)
    monkeypatch.undo()
    assert jde.checkpoint.latest(tmp_path) == 0
    jde.checkpoint.save(tmp_path, 1, tree, wait=True)
    assert jde.checkpoint.latest(tmp_path) == 1
