# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Files: what is in them, what is mapped, what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from jax_dynemb_torch import (
    DamagedFileError,
    DynamicEmbedding,
    load,
    table_names,
)
from known import (
    DIM,
    GOLDEN,
    KEYS,
    UNCHECKED,
    UNKNOWN,
    look_up,
    mixed_ids,
    table,
)

EARLIER = Path(__file__).parent / "earlier"
BASE = GOLDEN / "float32" / "items.safetensors"
FIELDS = {"jax_dynemb": json.dumps({"format_version": 1})}


def test_bfloat16_is_exact_where_its_bits_suffice(device):
    ids = np.concatenate([KEYS, UNKNOWN, [-1]])
    module = DynamicEmbedding(GOLDEN / "bfloat16").to(device)
    rows = module(torch.tensor(ids, device=device)).cpu()
    np.testing.assert_array_equal(rows, look_up(table(), ids))


@pytest.mark.parametrize(("dtype", "levels"), [("int8", 127), ("int4", 7)])
def test_integers_are_off_by_half_a_step(device, dtype, levels):
    ids = np.concatenate([KEYS, UNKNOWN, [-1]])
    module = DynamicEmbedding(GOLDEN / dtype).to(device)
    rows = module(torch.tensor(ids, device=device)).cpu().numpy()
    exact = look_up(table(), ids)
    step = np.abs(exact).max(axis=1, keepdims=True) / levels
    assert (np.abs(rows - exact) <= 0.5001 * step).all()
    np.testing.assert_array_equal(rows[len(KEYS) :], exact[len(KEYS) :])


def test_rows_are_mapped_and_not_copied():
    base = load(BASE).snapshot.base
    # Its storage is the part of the file that it needs.
    assert base.rows.untyped_storage().nbytes() == (len(KEYS) + 3) * DIM * 4
    assert base.rows.data_ptr() - base.keys.data_ptr() < BASE.stat().st_size
    assert base.rows.shape == (len(KEYS) + 3, DIM)  # with the extra rows, in one piece
    assert str(BASE) in mapped_files()


def test_an_index_of_another_layout_is_not_read(tmp_path):
    """Files from before pilots had words of another meaning, and offsets."""
    tensors = load_file(BASE)
    tensors["index_offsets"] = tensors.pop("index_pilots").int()
    tensors["index_words"].zero_()
    save_file(tensors, tmp_path / "items.safetensors", FIELDS)
    ids = mixed_ids(200)
    rows = DynamicEmbedding(tmp_path)(torch.tensor(ids))
    np.testing.assert_array_equal(rows, look_up(table(), ids))


def test_an_export_of_an_earlier_version():
    """Its index was built in another order; what it says is what counts."""
    ids = mixed_ids(200)
    rows = DynamicEmbedding(EARLIER)(torch.tensor(ids))
    np.testing.assert_array_equal(rows, look_up(table(), ids))
    index = load_file(EARLIER / "items.safetensors")["index_words"]
    assert torch.equal(load(EARLIER).snapshot.base.words, index)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_keys_without_a_hash_are_searched(device, tmp_path, dtype):
    """In whatever order they lie."""
    tensors = load_file(GOLDEN / dtype / "items.safetensors")
    kept = {n: each for n, each in tensors.items() if not n.startswith("index_")}
    for folder, written in {"with": tensors, "without": kept}.items():
        (tmp_path / folder).mkdir()
        save_file(written, tmp_path / folder / "items.safetensors", FIELDS)
    ids = np.concatenate([KEYS, UNKNOWN, [-1, -2, -(2**63), 2**63 - 1], mixed_ids(200)])
    ids = torch.tensor(ids, device=device)
    searched = DynamicEmbedding(tmp_path / "without").to(device)
    assert load(tmp_path / "without").snapshot.base.words is None
    hashed = DynamicEmbedding(tmp_path / "with").to(device)
    assert torch.equal(searched(ids), hashed(ids))
    assert searched(ids[:0]).shape == (0, DIM)
    program = torch.export.export(searched, (ids,))
    assert torch.equal(program.module()(ids), hashed(ids))


def test_keys_and_rows_are_enough(tmp_path):
    tensors = {name: load_file(BASE)[name] for name in ("keys", "rows")}
    save_file(tensors, tmp_path / "items.safetensors", FIELDS)
    ids = mixed_ids(200)
    rows = DynamicEmbedding(tmp_path)(torch.tensor(ids))
    np.testing.assert_array_equal(rows, look_up(table(), ids, default=0.0))


@pytest.mark.parametrize("dtype", ["float32", "int8", "int4"])
def test_an_empty_table(device, tmp_path, dtype):
    stored = {"int8": torch.int8, "int4": torch.uint8}.get(dtype, torch.float32)
    tensors = {
        "keys": torch.empty(0, dtype=torch.int64),
        "rows": torch.empty(0, 2, dtype=stored),
        "extra_keys": torch.tensor([-1, -2]),
        "extra_rows": torch.tensor([[0.0, 0.0], [3.0, 4.0]]),
    }
    save_file(tensors, tmp_path / "t.safetensors", FIELDS)
    module = DynamicEmbedding(tmp_path).to(device)
    rows = module(torch.tensor([5, -1], device=device))
    assert rows.tolist() == [[3.0, 4.0], [0.0, 0.0]]


def test_a_file_with_its_extra_rows_in_the_old_order(tmp_path):
    tensors = load_file(BASE)
    tensors["extra_keys"] = tensors["extra_keys"].flip(0)
    save_file(tensors, tmp_path / "items.safetensors", FIELDS)
    with pytest.raises(ValueError, match="older version. Export the table again"):
        load(tmp_path)


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_dynamicemb_dump(device, ranks):
    ids = np.concatenate([KEYS, mixed_ids(100)])
    folder = GOLDEN / f"dump{ranks}"
    assert table_names(folder) == ["cities", "items"]
    module = DynamicEmbedding(folder, "items").to(device)
    rows = module(torch.tensor(ids, device=device)).cpu()
    np.testing.assert_array_equal(rows, look_up(table(), ids, default=0.0))
    if device == "cuda":
        return  # the mapping may go when the rows have been copied
    values = folder / "items_emb_values.rank_0.world_size_1"
    assert (str(values) in mapped_files()) == (ranks == 1)


def mapped_files() -> str:
    """What the system says is mapped into this process."""
    return Path("/proc/self/maps").read_text()


def copied(folder, target, but=()):
    for file in folder.iterdir():
        if file.name not in but:
            (target / file.name).write_bytes(file.read_bytes())
    return target


def test_a_dump_with_a_missing_rank(tmp_path):
    name = "items_emb_keys.rank_2.world_size_4"
    copied(UNCHECKED / "dump4", tmp_path, but=(name,))
    with pytest.raises(ValueError, match=r"not complete: it has the ranks \[0, 1, 3\]"):
        load(tmp_path, "items")


def test_a_dump_with_stale_files(tmp_path):
    copied(UNCHECKED / "dump4", copied(UNCHECKED / "dump1", tmp_path))
    with pytest.raises(ValueError, match="Dump it again into an empty directory"):
        load(tmp_path, "items")


def test_a_dump_with_missing_or_short_values(tmp_path):
    name = "items_emb_values.rank_0.world_size_1"
    copied(UNCHECKED / "dump1", tmp_path, but=(name,))
    with pytest.raises(ValueError, match="is missing"):
        load(tmp_path, "items")
    (tmp_path / name).write_bytes((UNCHECKED / "dump1" / name).read_bytes()[:-8])
    with pytest.raises(ValueError, match="the dump is damaged"):
        load(tmp_path, "items")


def test_a_dump_of_rank_local_keys(tmp_path):
    copied(UNCHECKED / "dump4", tmp_path)
    text = json.dumps({"dist_type": "continuous"})
    (tmp_path / "items_opt_args.json").write_text(text)
    with pytest.raises(ValueError, match="Dump with 'roundrobin'"):
        load(tmp_path, "items")


def test_a_dump_with_reserved_keys(tmp_path):
    np.array([7, -3]).tofile(tmp_path / "t_emb_keys.rank_0.world_size_1")
    np.ones((2, 3), np.float32).tofile(tmp_path / "t_emb_values.rank_0.world_size_1")
    with pytest.raises(ValueError, match="1 of the reserved keys"):
        load(tmp_path)


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_truncated_file(tmp_path, kept):
    (tmp_path / "items.safetensors").write_bytes(BASE.read_bytes()[:kept])
    with pytest.raises(DamagedFileError) as raised:
        load(tmp_path)
    assert raised.value.path == str(tmp_path / "items.safetensors")


@pytest.mark.parametrize("version", [None, 3, "1"])
def test_a_file_of_another_format(tmp_path, version):
    metadata = {"jax_dynemb": json.dumps({"format_version": version})}
    save_file({"keys": torch.ones(1)}, tmp_path / "t.safetensors", metadata)
    with pytest.raises(ValueError, match="format_version"):
        load(tmp_path)


def test_a_path_that_holds_no_table(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="holds no table"):
            load(path)
    with pytest.raises(ValueError, match="say which: .'cities', 'items'."):
        load(GOLDEN / "float32")
    with pytest.raises(ValueError, match="holds no table 'item', but"):
        load(GOLDEN / "float32", "item")
    with pytest.raises(ValueError, match="give deltas to apply_delta"):
        save_file({"keys": torch.ones(1)}, tmp_path / "t.safetensors", FIELDS)
        load(tmp_path)
