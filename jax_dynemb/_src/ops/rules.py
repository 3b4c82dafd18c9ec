# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A rule about the rows of a table: counts them, or removes them in place."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.ops.call import OF_REMOVAL, Call
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.spec import TableSpec

_INDEX = ("index", "counters")


def rule_fields(*names: str) -> int:
    """Returns the attribute of a rule with these comparisons, see core/rule.h."""
    return sum(1 << _ffi.code("rule_fields", name) for name in names)


class RankCounts(NamedTuple):
    """Counts rows by a digit of their rank; sums over shards are counts as well."""

    # Rows that the comparisons do not select, and those that they do, by digit.
    bins: UInt32[Array, "2 bins"]
    # Of each bit of the score, not 0 if any of the rows has it.
    any_one: UInt32[Array, " 64"]
    any_zero: UInt32[Array, " 64"]  # the same if any of the rows lacks it


def count_rule(
    table: TableSpec,
    state: TableState,
    fields: int,
    numbers: UInt32[Array, " words"],
    norms: Float32[Array, " slots"] | None,
) -> RankCounts:
    """Counts rows by a digit of their rank. Only reads: nothing is aliased.

    ``fields`` is of ``rule_fields``. ``numbers`` has the words of core/rule.h:
    comparisons and window. ``norms`` is by slot; None if the rule compares none.
    """
    call = Call("count_rule", [table], fields=np.int64(fields))
    call.read(*call.arrays({table.state_name: state}, _INDEX))
    call.operand(numbers, norms)
    bins = 1 << _ffi.constants()["rule_digit_bits"]
    call.result((2 * bins + 4,), jnp.uint32)
    (words,) = call.run()
    one, zero = (_bits(words[at : at + 2]) for at in (2 * bins, 2 * bins + 2))
    return RankCounts(words[: 2 * bins].reshape(2, bins), one, zero)


def _bits(words: UInt32[Array, " 2"]) -> UInt32[Array, " 64"]:
    """Spreads a number of two words; the lowest bit comes first."""
    places = jnp.arange(32, dtype=jnp.uint32)
    return (words[:, None] >> places[None] & 1).reshape(-1)


def erase_rule(
    table: TableSpec,
    state: TableState,
    fields: int,
    numbers: UInt32[Array, " words"],
    norms: Float32[Array, " slots"] | None,
) -> tuple[UInt32[Array, ""], TableState]:
    """Removes and counts rows up to limits of rank, with which ``numbers`` end."""
    call = Call("erase_rule", [table], fields=np.int64(fields))
    states = {table.state_name: state}
    call.update(*call.arrays(states, OF_REMOVAL))
    call.operand(numbers, norms)
    call.result((1,), jnp.uint32)
    results = call.run()
    new = call.take_tables(results, states, OF_REMOVAL)[table.state_name]
    return next(results)[0], new


def decay(table: TableSpec, state: TableState, factor: jax.Array) -> TableState:
    """Multiplies the counts of an LFU table by float32[], see ``Tables.decay``."""
    call = Call("decay", [table])
    states = {table.state_name: state}
    call.update(*call.arrays(states, ("index",)))
    call.operand(factor.reshape(1))
    return call.take_tables(call.run(), states, ("index",))[table.state_name]
