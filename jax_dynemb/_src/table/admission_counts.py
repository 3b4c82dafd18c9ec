# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what a table counts: ids without a row, and losses to warn of."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.admission import Frequency
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines import LookupEngine, States, shard
from jax_dynemb._src.ops import scores_of_index
from jax_dynemb._src.table.by_kind import hash_of


def admission_counts(
    engine: LookupEngine, state: States, arrays: str, table: TableConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Reads the keys and counts of ``Tables.admission_counts``."""
    rule = table.admission
    if not isinstance(rule, Frequency) or not rule.counts_keys:
        raise ValueError(
            f"Table '{table.name}' does not count ids by key; set admission="
            "jde.admission.Frequency(n, jde.admission.Exact(capacity))"
        )
    sketch, words = state[arrays].sketch, _ffi.constants()["bucket_words"]
    assert sketch is not None  # check_arrays
    keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.uint32)]
    for first in range(0, rule.block_words, words):
        # One bucket for each of the table's: what an index looks like.
        index = _with_scores(table, sketch[:, first : first + words])
        read = {arrays: dataclasses.replace(state[arrays], index=index)}
        for some, scores in engine.index({**state, **read}, table.name):
            there = some != -1  # the score of an admitted key stays
            keys.append(some[there])
            counts.append(scores[there].astype(np.uint32))
    ids = np.concatenate(keys)
    order = np.argsort(ids)
    return ids[order], np.concatenate(counts)[order]


def _with_scores(table: TableConfig, index: jax.Array) -> jax.Array:
    """The buckets of an index of this table: its scores where it would have them."""
    if table.score_strategy != "customized":
        return index
    scores = jnp.stack(scores_of_index(index), axis=-1)
    return jnp.concatenate([index, scores.reshape(index.shape[0], -1)], axis=1)


def warn_of_losses(engine: LookupEngine, state: States, table: Any) -> None:
    """Warns of a table that was never updated, or that has refused ids.

    Args:
      engine: of the tables.
      state: the tables.
      table: which one; a tensor train does not count its lookups.
    """
    dynamic = table.name in engine.catalog.dynamic
    arrays = state[engine.state_name(table.name)]
    if dynamic and arrays.counters.is_fully_addressable:
        own = np.asarray(hash_of(engine).with_own_counters(state, table.name).counters)
        shard.warn_of_losses(table, shard.counter_totals(own))
