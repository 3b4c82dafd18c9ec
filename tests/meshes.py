# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Meshes of CPU devices, keys by the shard that owns them, and what a program sends."""

import collections
import functools
import re

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from oracle import bucket_of

COLLECTIVE = re.compile(
    r" (all-to-all|all-gather|all-reduce|reduce-scatter|collective-permute)"
    r"(?:-start)?\("
)


@functools.cache
def mesh_of(devices: int) -> Mesh:
    """A mesh with the one axis "data"."""
    return Mesh(np.array(jax.devices("cpu")[:devices]), ("data",))


@functools.cache
def grid(explicit: bool = False) -> Mesh:
    """A mesh of 4 x 2 with the axes "data" and "model"."""
    kind = AxisType.Explicit if explicit else AxisType.Auto
    devices = jax.devices("cpu")[:8]
    return jax.make_mesh(
        (4, 2), ("data", "model"), axis_types=(kind, kind), devices=devices
    )


@functools.cache
def keys_of_shard(shard: int, shards: int, count: int) -> list[int]:
    """The first ``count`` keys that live on one of ``shards`` shards."""
    keys: list[int] = []
    key = 0
    while len(keys) < count:
        if bucket_of(key, shards) == shard:
            keys.append(key)
        key += 1
    return keys


def collectives(text: str) -> tuple[collections.Counter, collections.Counter]:
    """Counts collectives that always run, and those in the bodies of loops."""
    entry, loops = collections.Counter(), collections.Counter()
    inside = loops
    for line in text.splitlines():
        if line.startswith(("ENTRY", "%", "region")):
            inside = entry if line.startswith("ENTRY") else loops
        if match := COLLECTIVE.search(line):
            inside[match[1]] += 1
    return entry, loops


_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%[\w.\-]+ = (\(.*?\)|\S+) ([\w\-]+)\(")
_FREE = {"parameter", "get-tuple-element", "bitcast", "tuple", "constant"}
_KERNELS = {"custom-call", "while"}


def large_results(text: str, least: int) -> collections.Counter:
    """Counts large results that the program itself writes, not our kernels.

    Args:
      text: of a compiled program; loops and other computations are left out.
      least: bytes.

    Returns:
      How many instructions, by the last name of the operation that they come from.
    """
    entry = text[text.index("\nENTRY") :]
    found = collections.Counter()
    for line in entry[: entry.index("\n}")].splitlines():
        match = _INSTRUCTION.match(line)
        if match and match[2] not in _FREE | _KERNELS and _bytes(match[1]) >= least:
            name = re.search(r'op_name="([^"]*)"', line)
            found[name[1].split("/")[-1] if name else match[2]] += 1
    return found


def _bytes(shape: str) -> int:
    """Returns the bytes of the largest array."""
    sizes = [0]
    for dtype, dims in re.findall(r"(pred|[a-z]+\d+)\[([\d,]*)\]", shape):
        bits = 8 if dtype == "pred" else int(re.sub(r"\D", "", dtype))
        count = int(np.prod([int(n) for n in dims.split(",") if n]))
        sizes.append(count * bits // 8)
    return max(sizes)


def gpus() -> Mesh:
    """All GPUs of this process, at least two."""
    try:
        devices = jax.devices("gpu")
    except RuntimeError:
        devices = []
    if len(devices) < 2:
        pytest.skip("needs two GPUs")
    return Mesh(np.array(devices), ("data",))
