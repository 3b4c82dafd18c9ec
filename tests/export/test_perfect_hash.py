# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the index of an export: any keys, bounded work, always the same."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file

import jax_dynemb as jde
from jax_dynemb._src.files.safetensors import perfect_hash as _perfect_hash
from jax_dynemb._src.files.safetensors.perfect_hash import (
    FOLDED,
    MIXED,
    PLAIN,
    perfect_hash,
)

TORCH_TESTS = Path(__file__).resolve().parents[2] / "jax_dynemb_torch/tests"
sys.path.insert(0, str(TORCH_TESTS))

import key_sets  # noqa: E402

EXTRA = np.array([-1, -2])


def with_extra(keys: np.ndarray) -> np.ndarray:
    """Keys as an export hashes them: with those of padding and of unknown ids."""
    return np.concatenate([np.setdiff1d(keys, EXTRA), EXTRA])


def assert_finds(index, keys: np.ndarray) -> None:
    np.testing.assert_array_equal(
        key_sets.places(keys, *index), np.arange(1, len(keys) + 1)
    )
    some = keys[:: 1 + len(keys) // 20_000]
    bit = np.random.default_rng(0).integers(0, 63, len(some))
    near = np.concatenate([some ^ (1 << bit), some + 1, some - 1, ~some])
    absent = near[~np.isin(near, keys)]
    assert not key_sets.places(absent, *index).any()


@pytest.mark.parametrize("name", key_sets.SETS)
def test_any_keys_and_the_same_hash(name):
    keys = with_extra(key_sets.SETS[name])
    index = perfect_hash(keys)
    assert index is not None
    assert_finds(index, keys)
    assert len(index.words) <= max(4, 3 * len(keys))
    assert key_sets.digest(*index) == key_sets.DIGESTS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", key_sets.LARGE)
def test_a_million_keys(name):
    keys = with_extra(key_sets.LARGE[name]())
    begin = time.perf_counter()
    index = perfect_hash(keys)
    assert time.perf_counter() - begin < 60  # on a busy machine; 1 to 4 on a quiet one
    assert index is not None
    assert_finds(index, keys)


def kind_of(keys: np.ndarray) -> int:
    index = perfect_hash(with_extra(keys))
    assert index is not None
    return int(index.numbers[-1])


def test_the_kinds_in_the_order_of_their_cost():
    assert kind_of(key_sets.SETS["dense"]) == PLAIN
    assert kind_of(key_sets.SETS["times_2_20"]) == FOLDED
    assert kind_of(key_sets.SETS["low_zeros_either_way"]) == MIXED
    # Each fixed multiplier meets two keys that it can not tell apart.
    assert kind_of(key_sets.SETS["crafted"]) == MIXED


def test_multipliers_of_the_last_kind_follow_from_the_keys():
    keys = key_sets.SETS["low_zeros_either_way"]
    first, second = perfect_hash(keys), perfect_hash(keys[:-1])
    assert first is not None and second is not None
    assert first.numbers[-1] == second.numbers[-1] == MIXED
    assert first.numbers[0] != second.numbers[0]


def test_keys_that_are_there_twice_are_refused():
    with pytest.raises(ValueError, match="key 7 is there twice.*np.unique"):
        perfect_hash(np.array([3, 7, 9, 7]))


@pytest.fixture
def no_kind_suits(monkeypatch):
    """Only the unit multiplier is tried, of which 'odd' has no use."""
    monkeypatch.setattr(_perfect_hash, "_MULTIPLIERS", 0)


def exported(tmp_path, keys, **options):
    config = jde.TableConfig(name="t", dim=2, capacity=2 * len(keys))
    coll = jde.Tables([config])
    rows = np.stack([keys % 1009, keys % 97], 1).astype(np.float32)
    state = coll.insert(coll.init(seed=0), {"t": jde.ids(keys)}, {"t": rows})
    path = tmp_path / "x"
    jde.export.safetensors(path, coll, state, quiet=True, **options)
    with safetensors.safe_open(path / "t.safetensors", "numpy") as file:
        fields = json.loads(file.metadata()["jax_dynemb"])
    return path, load_file(path / "t.safetensors"), fields["format_version"]


@pytest.mark.parametrize("name", ["dense_501", "dense", "thousands"])
def test_an_export_ends(tmp_path, name):
    """None of these did."""
    keys = key_sets.SETS[name]
    _, tensors, version = exported(tmp_path, keys)
    index = [tensors[f"index_{each}"] for each in ("numbers", "words", "pilots")]
    np.testing.assert_array_equal(
        key_sets.places(keys, *index), np.arange(1, len(keys) + 1)
    )
    assert version == 1


def test_readers_must_know_the_kind(tmp_path):
    keys = np.unique(key_sets.SETS["low_zeros_either_way"])
    path, tensors, version = exported(tmp_path, keys)
    assert tensors["index_numbers"][-1] == MIXED and version == 2
    coll = jde.Tables([jde.TableConfig(name="t", dim=2, capacity=2 * len(keys))])
    state = jde.import_.safetensors(path, coll, quiet=True).state
    rows, found, _ = coll.find(state, {"t": jde.ids(keys)})
    assert np.asarray(found["t"]).all()
    np.testing.assert_array_equal(np.asarray(rows["t"])[:, 0], keys % 1009)


def test_without_a_hash_the_file_has_no_index(tmp_path, no_kind_suits):
    keys = key_sets.SETS["odd"]
    assert perfect_hash(with_extra(keys)) is None
    _, tensors, version = exported(tmp_path, keys)
    assert not [name for name in tensors if name.startswith("index_")]
    assert version == 1
    np.testing.assert_array_equal(tensors["keys"], keys)
    np.testing.assert_array_equal(tensors["rows"][:, 0], keys % 1009)


@pytest.mark.parametrize("count", [64_000, 130_000])  # of the slots 49 %
def test_few_groups_make_room_for_each_other(count):
    keys = np.unique(np.random.default_rng(count).integers(-(2**63), 2**63, count))
    index = perfect_hash(keys)
    assert index is not None
    assert len(index.pilots) == len(index.words) // 16
    assert_finds(index, keys)


def test_slots_are_few():
    keys = np.unique(np.random.default_rng(0).integers(0, 2**62, 100_000))
    index = perfect_hash(keys)
    assert index is not None
    assert index.words.nbytes + index.pilots.nbytes <= len(keys) * 25
