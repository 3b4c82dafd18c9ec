# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables go through the host in pieces: a dump needs little memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.engines.shard import export_rows as _export
from jax_dynemb._src.files.dynamicemb import dump as _dynamicemb
from jax_dynemb._src.table import chunks as _chunks
from processes import run_job
from support import compiled

COLL = jde.Tables(
    [jde.TableConfig("t", dim=64, capacity=1 << 16, optimizer=jde.optim.adagrad(0.1))]
)


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(_export, "_CHUNK_BYTES", 1 << 20)
    monkeypatch.setattr(_chunks, "_BATCH_BYTES", 1 << 20)
    monkeypatch.setattr(_dynamicemb, "BLOCK_ROWS", 2048)


def traced(function) -> int:
    """Measures the most host memory of numpy and Python at one time, in bytes."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_dump_and_its_import_are_streamed(tmp_path, small_pieces):
    keys = np.random.default_rng(0).integers(0, 2**62, 40_000)
    ids = {"t": jde.ids(keys)}
    _, _, state = compiled(COLL).lookup(COLL.init(0), ids, None, None)
    table = 40_000 * (64 * 8 + 16)  # 21 MB of rows and states

    def dump(name: str):
        jde.export.dynamicemb(tmp_path / name, COLL, state, quiet=True)

    def load():
        jde.import_.dynamicemb(tmp_path / "dump", COLL)

    dump("first")  # programs are compiled here
    assert traced(lambda: dump("dump")) < table / 4
    load()
    assert traced(load) < table / 4
    written = sum(f.stat().st_size for f in (tmp_path / "dump").iterdir())
    assert table <= written < table + 1000


@pytest.mark.slow
def test_resident_memory_does_not_grow_with_the_table(tmp_path):
    """As the system counts it: what JAX and the allocator hold too."""
    script = Path(__file__).with_name("resident_memory.py")
    (said,) = run_job(script, 1, tmp_path)
    most = said["table"] / 8  # 26 MB; pieces are 1 MB
    assert said["dynamicemb"] < most
    assert said["import"] < most
    assert said["safetensors"] < most
    assert said["with its index"] < most + 60 * 200_000  # as its docstring says
