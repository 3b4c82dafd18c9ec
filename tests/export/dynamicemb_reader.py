# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A reader of DynamicEmb dumps, written from the description of the format alone.

It shares no code with the exporter. Every rule that the loaders of DynamicEmb enforce,
or silently rely on, is an assertion here.
"""

import dataclasses
import json
import math
import re
from pathlib import Path

import numpy as np

OPTIMIZER_KEYS = {
    "sgd": ["opt_type", "lr"],
    "adam": ["opt_type", "lr", "iters", "beta1", "beta2", "eps", "weight_decay"],
    "exact_adagrad": ["opt_type", "lr", "eps", "initial_accumulator_value"],
    "exact_row_wise_adagrad": ["opt_type", "lr", "eps", "initial_accumulator_value"],
    "ftrl": [
        *("opt_type", "lr", "learning_rate_power", "ftrl_beta"),
        *("initial_accumulator_value", "l1_reg", "l2_reg"),
    ],
}
COMMON_KEYS = ["evict_strategy", "dist_type", "step_score"]
FILE = re.compile(r"(.*)_(emb_\w+|counter_\w+)\.rank_(\d+)\.world_size_(\d+)")


@dataclasses.dataclass
class Table:
    """A table of a dump, all ranks together."""

    keys: np.ndarray
    values: np.ndarray
    scores: np.ndarray
    states: np.ndarray | None
    counter: dict[int, int]
    metadata: dict


def fmix64(key: int) -> int:
    mask = 2**64 - 1
    key &= mask
    key ^= key >> 33
    key = key * 0xFF51AFD7ED558CCD & mask
    key ^= key >> 33
    key = key * 0xC4CEB9FE1A85EC53 & mask
    return key ^ key >> 33


def owner(key: int, ranks: int, dist_type: str) -> int:
    unsigned = key % 2**64
    return (unsigned if dist_type == "roundrobin" else fmix64(key)) % ranks


def state_width(optimizer: str, dim: int) -> int:
    widths = {"sgd": 0, "adam": 2 * dim, "ftrl": 2 * dim, "exact_adagrad": dim}
    return widths.get(optimizer, 1)


def read(directory: Path, table: str, dim: int, ranks: int, optimizer: str) -> Table:
    """Reads a table that was dumped with optimizer states; checks everything."""
    kinds = {"emb_keys", "emb_values", "emb_scores", "emb_opt_values"}
    present = {}
    for path in directory.iterdir():
        match = FILE.fullmatch(path.name)
        if match and match[1] == table:
            assert int(match[4]) == ranks, "files of another world size"
            present[match[2], int(match[3])] = path
    with_counter = ("counter_keys", 0) in present
    if with_counter:
        kinds |= {"counter_keys", "counter_frequencies"}
    assert set(present) == {(kind, rank) for kind in kinds for rank in range(ranks)}

    text = (directory / f"{table}_opt_args.json").read_text()
    metadata = json.loads(text)
    known = [key for key in metadata if key not in ("updates", "score_columns")]
    assert known == OPTIMIZER_KEYS[optimizer] + COMMON_KEYS
    assert metadata["opt_type"] == optimizer
    assert text == json.dumps(metadata, indent=4)
    for key in set(metadata) - {"opt_type", "evict_strategy", "dist_type"}:
        wanted = int if key in ("iters", "step_score", "updates") else float
        assert type(metadata[key]) is wanted, key

    width = state_width(optimizer, dim)
    parts, counter = [], {}
    for rank in range(ranks):
        raw = {kind: present[kind, rank].read_bytes() for kind in kinds}
        assert len(raw["emb_keys"]) % 8 == 0
        n = len(raw["emb_keys"]) // 8
        assert len(raw["emb_values"]) == 4 * n * dim
        assert len(raw["emb_scores"]) == 8 * n
        assert len(raw["emb_opt_values"]) == 4 * n * width
        keys = np.frombuffer(raw["emb_keys"], "<i8")
        for key in keys.tolist():
            assert owner(key, ranks, metadata["dist_type"]) == rank
        parts.append(
            (
                keys,
                np.frombuffer(raw["emb_values"], "<f4").reshape(n, dim),
                np.frombuffer(raw["emb_scores"], "<i8"),
                np.frombuffer(raw["emb_opt_values"], "<f4").reshape(n, width),
            )
        )
        if with_counter:
            names = np.frombuffer(raw["counter_keys"], "<i8").tolist()
            counts = np.frombuffer(raw["counter_frequencies"], "<i8").tolist()
            assert len(names) == len(counts)
            assert all(owner(k, ranks, metadata["dist_type"]) == rank for k in names)
            counter |= dict(zip(names, counts, strict=True))
    keys, values, scores, states = (
        np.concatenate(each) for each in zip(*parts, strict=True)
    )
    assert len(np.unique(keys)) == len(keys)
    assert not np.isin(keys, [-4, -3, -2, -1]).any()
    assert (scores >= 1).all(), "the inference loader drops rows with a score of 0"
    return Table(keys, values, scores, states, counter, metadata)


def overfull(keys: list[int], capacity: int) -> int:
    """How many of the keys do not fit into the buckets of a table of this capacity."""
    assert capacity % 128 == 0
    counts: dict[int, int] = {}
    for key in keys:
        bucket = (fmix64(key) & 2**63 - 1) % capacity // 128
        counts[bucket] = counts.get(bucket, 0) + 1
    return sum(max(0, count - 128) for count in counts.values())


def smallest_lossless(keys: list[int]) -> int:
    """Finds the capacity by trying every multiple of 128."""
    capacity = max(1, math.ceil(len(keys) / 128)) * 128
    while overfull(keys, capacity):
        capacity += 128
    return capacity
