# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The exporter writes the files that the tests of jax_dynemb_torch read.

python tests/export/test_golden_files.py    # writes them anew
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde

TORCH_TESTS = Path(__file__).resolve().parents[2] / "jax_dynemb_torch/tests"
sys.path.insert(0, str(TORCH_TESTS))

import known  # noqa: E402

ITEMS = jde.TableConfig(
    name="items",
    dim=known.DIM,
    capacity=1024,
    feature_names=("clicked", "bought"),
    pooling="mean",
    eval_initializer=jde.initializers.constant(known.DEFAULT),
)
CITIES = jde.TableConfig(name="cities", dim=known.DIM, capacity=256)
DTYPES = ("float32", "bfloat16", "int8", "int4")


def write(folder: Path) -> None:
    """All golden files."""
    coll = jde.Tables([ITEMS, CITIES])
    state = _insert(coll, coll.init(seed=11), "items", known.KEYS)
    state = _insert(coll, state, "cities", known.KEYS[:30])
    for dtype in DTYPES:
        tables = ["items", "cities"] if dtype == "float32" else ["items"]
        jde.export.safetensors(
            folder / dtype, coll, state, dtype=dtype, tables=tables, quiet=True
        )
    for ranks in (1, 4):
        jde.export.dynamicemb(
            folder / f"dump{ranks}",
            coll,
            state,
            optimizer=False,
            ranks=ranks,
            now=0,
            quiet=True,
        )
    state = coll.erase(state, {"items": jde.ids(known.REMOVED)})
    state = _insert(coll, state, "items", known.NEW)
    state = _insert(coll, state, "items", known.CHANGED, sign=-1)
    jde.export.delta(folder / "float32", coll, state)


def _insert(coll, state, table, keys, sign=1):
    rows = sign * known.rows_of(keys)
    return coll.insert(state, {table: jde.ids(keys)}, {table: rows})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    write(folder)
    return folder


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_the_same_files(written):
    assert files(written) == files(known.GOLDEN)


@pytest.mark.parametrize(
    "name", sorted(n for n in files(known.GOLDEN) if n.endswith(".safetensors"))
)
def test_the_same_tables(written, name):
    (header, data), (golden, golden_data) = (
        split((folder / name).read_bytes()) for folder in (written, known.GOLDEN)
    )
    assert data == golden_data
    fields, golden_fields = (
        json.loads(each.pop("__metadata__")["jax_dynemb"]) for each in (header, golden)
    )
    assert header == golden
    # What the config says of itself may grow; readers use two of its fields.
    config, golden_config = fields.pop("config", {}), golden_fields.pop("config", {})
    # The run, and in deltas the updates, which older writers did not note.
    # A delta names the file before by a checksum of its header.
    for name in ("identity", "step", "previous"):
        golden_fields[name] = fields.get(name, golden_fields.get(name))
    assert {k: v for k, v in golden_fields.items() if v is not None} == fields
    for used in ("feature_names", "pooling"):
        assert config.get("config", {}).get(used) == golden_config.get(
            "config", {}
        ).get(used)


@pytest.mark.parametrize(
    "name", sorted(n for n in files(known.GOLDEN) if "emb_keys" in n)
)
def test_the_same_dumps(written, name):
    """In whatever order: a dump has its keys as they lie in the table."""
    dump, golden = (by_key(folder, name) for folder in (written, known.GOLDEN))
    for part, each in dump.items():
        np.testing.assert_array_equal(each, golden[part], err_msg=part)


def by_key(folder: Path, name: str) -> dict[str, np.ndarray]:
    """The three arrays of a part of a dump, in order of its keys."""
    dtypes = {"keys": np.int64, "scores": np.uint64, "values": np.uint32}
    parts = {
        part: np.fromfile(folder / name.replace("emb_keys", f"emb_{part}"), dtype)
        for part, dtype in dtypes.items()
    }
    parts["values"] = parts["values"].reshape(-1, known.DIM)
    order = np.argsort(parts["keys"])
    return {part: each[order] for part, each in parts.items()}


def split(file: bytes) -> tuple[dict, bytes]:
    """Header and data, read by the rules of the format."""
    length = int.from_bytes(file[:8], "little")
    return json.loads(file[8 : 8 + length]), file[8 + length :]


def test_keys_ascend_and_rows_belong_to_them(written):
    header, data = split((written / "float32/items.safetensors").read_bytes())
    tensors = {}
    for name in ("keys", "rows"):
        begin, end = header[name]["data_offsets"]
        dtype = np.int64 if name == "keys" else np.float32
        tensors[name] = np.frombuffer(data[begin:end], dtype)
    assert np.array_equal(tensors["keys"], np.sort(known.KEYS))
    rows = tensors["rows"].reshape(-1, known.DIM)
    assert np.array_equal(rows, known.rows_of(np.sort(known.KEYS)))


if __name__ == "__main__":
    shutil.rmtree(known.GOLDEN, ignore_errors=True)
    write(known.GOLDEN)
    print(*sorted(files(known.GOLDEN)), sep="\n")
