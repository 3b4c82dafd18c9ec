# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sound files of every format, and every reader of jax_dynemb that reads them."""

from __future__ import annotations

import argparse
import functools
import hashlib
import io
import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from jax_dynemb import DamagedFileError as DamagedFileError
from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.commands import convert, inspect

ADAM = jde.optim.adam(0.25)
COLL = jde.Tables(
    [
        jde.TableConfig("cat", 4, 256, optimizer=ADAM, score_strategy="lfu"),
        jde.TableConfig("word", 4, 256, optimizer=ADAM, pooling="mean"),
    ],
    share_arrays=False,  # the tests damage files of one table
)
LARGER = jde.Tables(
    [
        jde.TableConfig("cat", 4, 1024, optimizer=ADAM, score_strategy="lfu"),
        jde.TableConfig("word", 4, 1024, optimizer=ADAM, pooling="mean"),
    ],
    share_arrays=False,
)
SEED = 5
NOW = 2 * 10**18


class Reader(NamedTuple):
    """Reads a format.

    Attributes:
      corpus: the directory of the sound files.
      read: from a path; returns what can be compared with ``digest``.
    """

    corpus: str
    read: Callable[[Path], Any]


class StateLost(Exception):
    """A failed import has taken the caller's state away."""


@functools.cache
def states() -> list[Any]:
    """The same tables after one, two, three and four steps."""
    rng, found, state = np.random.default_rng(SEED), [], COLL.init(3)
    for _ in range(4):
        keys = rng.integers(10, 2**60, 40) >> rng.integers(0, 56, 40)
        keys = np.maximum(keys, 10)
        ids = {"cat": jde.ids(keys), "word": jde.ids(keys[:15])}
        rows, residual, state = COLL.lookup(state, ids)
        grads = {name: jnp.asarray(each) for name, each in rows.items()}
        state = COLL.apply_gradients(state, residual, grads)
        state = COLL.erase(state, {"cat": jde.ids(keys[:3])})
        found.append(jax.tree.map(jnp.copy, state))
    return found


def write(folder: Path) -> None:
    """All sound files."""
    first, second, third, fourth = states()
    dense = jnp.arange(6, dtype=jnp.float32)
    for step, state in ((3, first), (4, second)):
        tree = {"tables": state, "dense": dense, "epoch": step}
        jde.checkpoint.save(folder / "checkpoint", step, tree, tables=COLL, wait=True)
    jde.checkpoint.save(folder / "later", 4, fourth, tables=COLL, wait=True)
    for dtype in ("float32", "int8"):
        path = folder / f"export_{dtype}"
        jde.export.safetensors(path, COLL, first, dtype=dtype, quiet=True)
        for state in (second, third):
            jde.export.delta(path, COLL, state)
    counter = np.array([5, 9, 2**40]), np.array([1, 2, 3])
    jde.export.dynamicemb(
        folder / "dump",
        COLL,
        fourth,
        ranks=2,
        counters={"cat": counter},
        now=NOW,
        quiet=True,
    )
    with redirect_stderr(io.StringIO()):
        run(convert, folder / "dump", folder / "parquet", "--to", "parquet")
    served, tables = jde.export.frozen(COLL, first)

    def look_up(tables, ids):
        return served.find(tables, {"cat": ids})[0]["cat"]

    (folder / "program").mkdir()
    data = jde.export.program(look_up, tables, jde.ids(np.arange(8)))
    (folder / "program" / "program.bin").write_bytes(data)


def write_unchecked(folder: Path) -> None:
    """The same files without checksums, as other programs write them."""
    write(folder)
    for file in [*folder.glob("*/*.manifest.json"), *folder.glob("*/checksums.json")]:
        file.unlink()
    for file in folder.glob("*/*.safetensors"):
        data = file.read_bytes()
        first = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:first])
        metadata = header["__metadata__"]
        del metadata["jax_dynemb_crc32"]
        fields = json.loads(metadata["jax_dynemb"])
        for name in ("checksums", "previous"):
            fields.pop(name, None)
        metadata["jax_dynemb"] = json.dumps(fields)
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % 64)
        file.write_bytes(len(text).to_bytes(8, "little") + text + data[first:])


def run(command: Any, *arguments: Any) -> None:
    """A command as the command line runs it, but errors are raised."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.main(parser.parse_args([str(each) for each in arguments])) == 0


def _without_identity(array: np.ndarray) -> np.ndarray:
    """Counters without what every restore draws again; other arrays as they are."""
    names = _ffi.constants()["counters"]
    if array.shape[1:] == (len(names), 2):
        array[:, names.index("stamp_high") :] = 0
    return array


def digest(result: Any) -> str:
    """Digests dicts, lists, arrays, numbers and strings."""
    found = hashlib.sha256()

    def add(each: Any) -> None:
        if isinstance(each, dict):
            for name in sorted(each):
                found.update(repr(name).encode())
                add(each[name])
        elif isinstance(each, list | tuple):
            found.update(f"{len(each)}[".encode())
            for inner in each:
                add(inner)
        elif isinstance(each, np.ndarray | jax.Array):
            array = _without_identity(np.array(each))
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(np.ascontiguousarray(array).tobytes())
        else:
            found.update(repr(each).encode())

    add(result)
    return found.hexdigest()


def exported(coll: jde.Tables, state: Any) -> Any:
    """All rows of all tables, in order of their keys."""
    result = {}
    for name in coll.tables:
        chunks = list(coll.export(state, name))
        keys = np.concatenate([chunk.keys for chunk in chunks])
        order = np.argsort(keys)
        result[name] = keys[order], np.concatenate([c.rows for c in chunks])[order]
    return result


def restore(path: Path) -> Any:
    """The checkpoint as it was saved."""
    tree = {"tables": COLL.init(0), "dense": jnp.zeros(6), "epoch": 0}
    try:
        found = jde.checkpoint.restore(path, tree, tables=COLL)
    except Exception:
        check_alive(COLL, tree["tables"])
        raise
    return found.step, jax.tree.leaves(found.tree)


def restore_again(path: Path) -> Any:
    """Restores the checkpoint in larger tables, row by row."""
    tree = {"tables": LARGER.init(0), "dense": jnp.zeros(6), "epoch": 0}
    try:
        found = jde.checkpoint.restore(path, tree, tables=LARGER)
    except Exception:
        check_alive(LARGER, tree["tables"])
        raise
    return found.step, exported(LARGER, found.tree["tables"]), found.notes


def check_alive(coll: jde.Tables, state: Any) -> None:
    """The arrays of a state can be used."""
    try:
        rows, found, _ = coll.find(state, {"cat": jde.ids([1, 2])})
        jax.block_until_ready((rows, found, coll.stats(state)))
    except Exception as error:
        raise StateLost(str(error)) from None


def imported(function: Callable[..., Any], path: Path) -> Any:
    """Rows in tables that held others."""
    state = COLL.init(1)
    _, _, state = COLL.lookup(state, {"cat": jde.ids([1, 2])})
    try:
        result = function(path, COLL, state, quiet=True)
    except Exception:
        check_alive(COLL, state)
        raise
    return exported(COLL, result.state), result.counters, result.notes


@functools.cache
def later(folder: Path) -> Any:
    """The tables after four steps, in the run that wrote the files of a folder."""
    return jde.checkpoint.restore(folder / "later", COLL.init(0), tables=COLL).tree


def next_delta(path: Path) -> Any:
    """One more delta: reads the files that are there."""
    jde.export.delta(path, COLL, later(path.parents[1] / "sound"))
    return imported(jde.import_.safetensors, path)


def inspected(path: Path) -> Any:
    """Returns what ``inspect`` prints, but for the size of the files."""
    output = io.StringIO()
    with redirect_stdout(output):
        run(inspect, path, "--json")
    fields = json.loads(output.getvalue())
    return fields["kind"], json.dumps(fields["tables"])


def converted(path: Path) -> Any:
    """The files that ``convert`` writes."""
    out = path.with_name(f"{path.name}_converted")
    with redirect_stderr(io.StringIO()):
        run(convert, path, out, "--to", "safetensors")
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in out.iterdir()
        if file.suffix == ".safetensors"
    }


def called(path: Path) -> Any:
    """The rows that an exported program finds."""
    program = jde.export.load_program(path / "program.bin")
    _, tables = jde.export.frozen(COLL, states()[0])
    return np.asarray(program.call(tables, jde.ids(np.arange(8))))


import_dump = functools.partial(jde.import_.dynamicemb, now=NOW)
READERS = {
    "restore": Reader("checkpoint", restore),
    "restore again": Reader("checkpoint", restore_again),
    "inspect checkpoint": Reader("checkpoint", inspected),
    "convert checkpoint": Reader("checkpoint", converted),
    "import safetensors": Reader(
        "export_float32", functools.partial(imported, jde.import_.safetensors)
    ),
    "import int8": Reader(
        "export_int8", functools.partial(imported, jde.import_.safetensors)
    ),
    "next delta": Reader("export_float32", next_delta),
    "inspect export": Reader("export_float32", inspected),
    "convert export": Reader("export_int8", converted),
    "import dump": Reader("dump", functools.partial(imported, import_dump)),
    "inspect dump": Reader("dump", inspected),
    "convert dump": Reader("dump", converted),
    "inspect parquet": Reader("parquet", inspected),
    "convert parquet": Reader("parquet", converted),
    "load program": Reader("program", called),
}
