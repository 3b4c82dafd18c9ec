# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table of ten million rows is mapped: memory holds what was looked up."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from jax_dynemb_torch import DynamicEmbedding

ROWS, WIDTH = 10_000_000, 64
BITS = 24
FIRST = 1000  # of the ids


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """2.6 GB in a sparse file: ten million ids, of which every 100,000th has a row.

    With a multiplier of one the slot of such a key is the key. The extra keys, -1 and
    -2, have the slots 0 and 1.
    """
    slots = 1 << BITS
    sizes = {
        "keys": ("I64", [ROWS]),
        "extra_keys": ("I64", [2]),
        "index_numbers": ("I64", [5]),
        "index_words": ("I64", [slots]),
        "index_pilots": ("U8", [8]),
        "first_row": ("F32", [1, WIDTH]),
        "rows": ("F32", [ROWS, WIDTH]),
        "extra_rows": ("F32", [2, WIDTH]),
    }
    fields = {"format_version": 1, "kind": "table", "table": "large"}
    header, begin = {"__metadata__": {"jax_dynemb": json.dumps(fields)}}, 0
    for name, (dtype, shape) in sizes.items():
        end = begin + int(np.prod(shape)) * int(dtype.lstrip("FIU")) // 8
        offsets = [begin, end]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    path = tmp_path_factory.mktemp("large") / "large.safetensors"
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + begin)
    places = {n: 8 + len(text) + header[n]["data_offsets"][0] for n in sizes}

    def mapped(name, dtype, shape):
        return np.memmap(path, dtype, "r+", places[name], shape)

    keys = np.arange(FIRST, FIRST + ROWS)
    mapped("keys", np.int64, ROWS)[:] = keys
    mapped("extra_keys", np.int64, 2)[:] = [-1, -2]
    mapped("index_numbers", np.int64, 5)[:] = [1, BITS, 3, 64 - BITS, 0]
    words = mapped("index_words", np.int64, slots)
    words[:] = np.arange(slots)
    words[keys] ^= np.arange(1, ROWS + 1)
    words[0] = -1 ^ (ROWS + 1)
    words[1] = -2 ^ (ROWS + 2)
    rows = mapped("rows", np.float32, (ROWS, WIDTH))
    rows[::100_000] = np.arange(0, ROWS, 100_000)[:, None] + np.arange(WIDTH)
    yield path
    path.unlink()


def anonymous_memory() -> int:
    """Bytes of this process that no file stands behind."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not say")


def test_nothing_is_copied(large):
    before = anonymous_memory()
    module = DynamicEmbedding(large)
    places = torch.arange(0, ROWS, 100_000)
    unknown = torch.tensor([-1, 5, FIRST + ROWS])
    rows = module(torch.cat([places + FIRST, unknown]))
    assert anonymous_memory() - before < 16 << 20  # the keys alone are 80 MB
    assert torch.equal(rows[:-3], places[:, None] + torch.arange(float(WIDTH)))
    assert not rows[-3:].any()
    base = module.snapshot.base
    assert base.rows.untyped_storage().nbytes() == (ROWS + 3) * WIDTH * 4
