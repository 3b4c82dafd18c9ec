# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which table a state is: the run, its segments, and what a restore makes of them.

Moments and nonces are written by the kernel of a training lookup, see core/lineage.h.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jax_dynemb._src import ffi as _ffi

_GOLDEN = 0x9E3779B97F4A7C15
_COUNTED = itertools.count(1)
_DRAWN = ("stamp", "stamp_high", "segment")


def new_run(shared: bool = False, traced: bool = False) -> np.ndarray:
    """Draws a run and its first segment for all tables of an ``init``: uint32[3, 2].

    Processes that share a state call it together, and the first one draws. Where a
    program is traced they cannot communicate, and count their calls instead.
    """
    several = shared and jax.process_count() > 1
    if several and traced:
        own = next(_COUNTED) * np.arange(1, 4, dtype=np.uint64) * np.uint64(_GOLDEN)
        return own.view(np.uint32).reshape(3, 2)
    drawn = np.frombuffer(secrets.token_bytes(24), np.uint32).reshape(3, 2)
    if not several:
        return drawn
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(drawn))


def run_places() -> list[int]:
    """Return where a row of counters has what ``new_run`` draws."""
    return [_ffi.code("counters", name) for name in _DRAWN]


def lineage_places() -> slice:
    """Return where a row of counters has its lineage, but for ``stamp``."""
    return slice(_ffi.code("counters", "stamp_high"), None)


def moment_places() -> slice:
    """Return where a row of counters has its moment and the nonces of the latest."""
    return slice(_ffi.code("counters", "moment"), None)


def extended(counters: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Begins the next segment of a restored table, from counters uint32[rows, n, 2].

    Residuals of before are of another history, so no nonce stays. Counters of an
    earlier version have no run: it becomes the drawn one.
    """
    numbers = np.array(counters).view(np.uint64)[..., 0]
    stamp, high, segment = run_places()
    first, random = numbers[0], np.ascontiguousarray(drawn).view(np.uint64)[:, 0]
    at, moment = (_ffi.code("counters", name) for name in ("ancestors", "moment"))
    ancestors = np.zeros(moment - at, np.uint64)
    if first[high]:
        before = first[[segment, _ffi.code("counters", "clock")]]
        ancestors = np.concatenate([before, first[at : moment - 2]])
    new = first.copy()
    new[[stamp, high]] = [first[stamp] or random[0], first[high] or random[1]]
    new[segment] = random[2]
    new[at:moment] = ancestors
    new[moment] += np.uint64(1)
    new[moment + 1 :] = 0
    for places in (stamp, lineage_places()):
        numbers[:, places] = new[places]
    return numbers[..., None].view(np.uint32)


def extended_numbers(
    counters: Mapping[str, int], drawn: np.ndarray | None
) -> dict[str, int]:
    """Returns a refilled table's lineage by counter; without counters it is new."""
    names = _ffi.constants()["counters"]
    whole = np.array([[counters.get(name, 0) for name in names]], np.uint64)
    words = whole[..., None].view(np.uint32)
    new = extended(words, new_run() if drawn is None else drawn).view(np.uint64)[0]
    tail = range(len(names))[lineage_places()]
    return {names[n]: int(new[n, 0]) for n in (_ffi.code("counters", "stamp"), *tail)}


def is_shared(array: Any) -> bool:
    """Tell whether other processes have parts of an array."""
    return isinstance(array, jax.Array) and not array.is_fully_addressable
