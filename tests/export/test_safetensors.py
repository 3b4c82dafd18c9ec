# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.export.safetensors: what the library of that name reads in its files."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

import jax_dynemb as jde
from jax_dynemb._src.files.safetensors.perfect_hash import perfect_hash
from jax_dynemb._src.files.safetensors.tensors import row_format
from support import export

DIM = 7


def filled(rows: int, **options):
    """A table and its state; ids all over the range."""
    config = {"dim": DIM, "capacity": 8192, "pooling": "sum"} | options
    coll = jde.Tables([jde.TableConfig(name="t", **config)])
    keys = np.random.default_rng(rows).integers(-(2**62), 2**62, rows)
    state = coll.init(seed=1)
    feature = next(iter(coll.features))
    _, _, state = coll.lookup(state, {feature: jde.ids(keys)})
    return coll, state


def write(path, coll, state, **options):
    jde.export.safetensors(path, coll, state, quiet=True, **options)
    return path / "t.safetensors"


@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16", "float16"])
def test_every_row_under_its_key(tmp_path, param_dtype):
    coll, state = filled(1000, param_dtype=param_dtype)
    tensors = load_file(write(tmp_path / "x", coll, state))
    expected = export(coll, state, "t")
    assert np.array_equal(tensors["keys"], sorted(expected))
    for key, row in zip(tensors["keys"].tolist(), tensors["rows"], strict=True):
        assert np.array_equal(row, np.asarray(expected[key].values, np.float32))


def test_metadata(tmp_path):
    coll, state = filled(10, feature_names=("a", "b"))
    path = write(tmp_path / "x", coll, state, dtype=jnp.bfloat16)
    with safetensors.safe_open(path, "numpy") as file:
        fields = json.loads(file.metadata()["jax_dynemb"])
    assert fields["format_version"] == 1 and fields["kind"] == "table"
    assert (fields["table"], fields["dim"], fields["dtype"]) == ("t", DIM, "bfloat16")
    assert fields["until"] == coll.get_score(state)["t"]
    assert fields["step"] == 0 and isinstance(fields["seed"], int)
    assert fields["config"]["config"]["feature_names"] == ["a", "b"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_rows_that_pass_through_files_are_the_same(tmp_path, dtype):
    coll, state = filled(2000)
    whole = write(tmp_path / "whole", coll, state, dtype=dtype)
    small = write(tmp_path / "small", coll, state, dtype=dtype, sort_bytes=3000)
    assert whole.read_bytes() == small.read_bytes()
    names = sorted(each.name for each in (tmp_path / "small").iterdir())
    assert names == ["t.manifest.json", "t.safetensors"]


rows = st.lists(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=DIM, max_size=DIM),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize(("dtype", "levels"), [("int8", 127), ("int4", 7)])
@given(rows)
def test_integers_are_the_nearest(dtype, levels, rows):
    exact = np.array(rows, np.float32)
    encoded = row_format(dtype).encode(exact)
    stored = encoded["rows"]
    if dtype == "int4":
        pairs = np.stack([stored & 15, stored >> 4], -1).astype(np.int8) - 8
        stored = pairs.reshape(len(exact), -1)[:, :DIM]
    assert np.abs(stored.astype(int)).max() <= levels
    read = stored * encoded["scales"][:, None].astype(np.float64)
    half = np.abs(exact).max(axis=1, keepdims=True) / levels / 2
    assert (np.abs(read - exact) <= half * 1.0001 + 1e-30).all()


def test_unknown_ids_and_padding(tmp_path):
    constant = jde.initializers.constant(0.5)
    coll, state = filled(3, eval_initializer=constant)
    tensors = load_file(write(tmp_path / "x", coll, state))
    assert tensors["extra_keys"].tolist() == [-1, -2]
    assert tensors["extra_rows"].tolist() == [[0.0] * DIM, [0.5] * DIM]
    assert tensors["first_row"].tolist() == [[0.5] * DIM]
    given = load_file(write(tmp_path / "y", coll, state, default_row=np.arange(DIM)))
    assert given["extra_rows"][1].tolist() == list(range(DIM))
    coll, state = filled(3, eval_initializer=jde.initializers.normal())
    with pytest.raises(ValueError, match="Say what they should read: default_row=0.0"):
        write(tmp_path / "z", coll, state)
    assert not (tmp_path / "z").exists()


def test_an_empty_table_and_a_file_without_index(tmp_path):
    coll, state = filled(0)
    tensors = load_file(write(tmp_path / "x", coll, state, index=False))
    assert tensors["keys"].shape == (0,) and tensors["rows"].shape == (0, DIM)
    assert set(tensors) == {"keys", "rows", "extra_keys", "extra_rows", "first_row"}


def test_what_is_refused(tmp_path):
    coll, state = filled(3)
    with pytest.raises(ValueError, match="dtype must be one of"):
        write(tmp_path / "x", coll, state, dtype="float8")
    with pytest.raises(ValueError, match=r"tables \['u'\] are not among \['t'\]"):
        write(tmp_path / "x", coll, state, tables=["u"])
    write(tmp_path / "x", coll, state)
    with pytest.raises(FileExistsError):
        write(tmp_path / "x", coll, state)


def test_nothing_is_left_of_an_export_that_fails(tmp_path, monkeypatch):
    coll, state = filled(300)

    def chunks(*_, **__):
        yield next(whole)
        raise OSError("the device is gone")

    whole = coll.export(state, "t", chunk_buckets=1)
    monkeypatch.setattr(type(coll), "export", chunks)
    with pytest.raises(OSError, match="the device is gone"):
        write(tmp_path / "x", coll, state)
    assert not list(tmp_path.iterdir())


int64 = st.integers(-(2**63), 2**63 - 1)


def signed(number: int) -> int:
    """Returns the lowest 64 bits as a signed number."""
    number %= 2**64
    return number - (number >> 63 << 64)


@given(st.sets(int64, min_size=1, max_size=200), st.lists(int64, max_size=30))
def test_the_hash_as_its_docstring_reads_it(keys, others):
    keys = list(keys)
    numbers, words, pilots = (a.tolist() for a in perfect_hash(np.array(keys)))
    multiplier, bits, group_bits, shift, folded = numbers
    assert bits <= shift <= 64 - bits
    for key in [*keys, *others]:
        y = signed((key ^ ((key % 2**64) >> 32) if folded else key) * multiplier)
        top = y >> shift
        group = top % 2**group_bits
        place = words[(y ^ top ^ pilots[group]) % 2**bits] ^ y
        assert (1 <= place < 2**bits) == (key in keys)
        if key in keys:
            assert place == keys.index(key) + 1
