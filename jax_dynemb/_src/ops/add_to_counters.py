# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Adds numbers to counters of several tables, in one call for all of them.

XLA would take two launches for each array of counters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from jax_dynemb._src.ffi import code, constants
from jax_dynemb._src.ops.call import Call
from jax_dynemb._src.ops.state import TableState
from jax_dynemb._src.spec import TableSpec

_MOST_NUMBERS = 128  # of a call: core/args.h


def add_to_counters(
    counter: str,
    states: Mapping[str, TableState],
    numbers: Sequence[tuple[TableSpec, jax.Array]],
) -> dict[str, TableState]:
    """Adds numbers to one counter of each table, in the first row of a table.

    Args:
      counter: its name.
      states: of the tables; other states may be there.
      numbers: uint32[1] for a table, which may have several.

    Returns:
      The states that have changed.
    """
    new: dict[str, TableState] = {}
    for first in range(0, len(numbers), _MOST_NUMBERS):
        some = numbers[first : first + _MOST_NUMBERS]
        new |= _one_call(code("counters", counter), {**states, **new}, some)
    return new


def _one_call(
    counter: int,
    states: Mapping[str, TableState],
    numbers: Sequence[tuple[TableSpec, jax.Array]],
) -> dict[str, TableState]:
    names = list(dict.fromkeys(table.state_name for table, _ in numbers))
    of_row = len(constants()["counters"])
    places = [
        (names.index(table.state_name), table.first_row * of_row + counter)
        for table, _ in numbers
    ]
    call = Call("add_to_counters", (), places=np.array(places, np.int64).reshape(-1))
    call.operand(*(number for _, number in numbers))
    call.update(*(states[name].counters for name in names))
    results = call.run()
    return {
        name: dataclasses.replace(states[name], counters=next(results))
        for name in names
    }
