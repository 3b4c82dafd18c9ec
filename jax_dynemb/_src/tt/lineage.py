# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which moment of which run a tensor train is: the words behind its counters.

They say what the counters of any table say (core/lineage.h). No kernel draws a nonce
here: it is a chain of hashes of what lookups and updates were given, see ``digest``.
Words are written by operations on all of them, element by element. XLA fuses those of
a step, where each concatenation would be a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.ops import Latest

# Counters come first; a later version may have more of them.
_COUNTED, _RING = 8, 16
_RUN = slice(_COUNTED, _COUNTED + 4)
_MOMENT, _CHAIN, _NONCES = _RUN.stop, _RUN.stop + 1, _RUN.stop + 2
WORDS = _NONCES + 2 * _RING


@jax.jit
def first_counters(run: Any, seed: Any) -> jax.Array:
    """Makes counters uint32[WORDS] of a run uint32[3, 2] and a seed uint32[2].

    A compiled ``init`` has one run for all of its seeds.
    """
    words, seed = jnp.asarray(run).reshape(6), jnp.asarray(seed)
    chain = _mixed(words[4] ^ seed[0] * 3 ^ seed[1] * 5)
    counted = jnp.zeros(_COUNTED, jnp.uint32)
    rest = jnp.zeros(WORDS - _CHAIN - 1, jnp.uint32)
    moment = jnp.zeros(1, jnp.uint32)
    return jnp.concatenate([counted, words[:4], moment, chain[None], rest])


def added(counters: jax.Array, counts: Mapping[int, jax.Array]) -> jax.Array:
    """Adds numbers, uint32[], to counters by their places."""
    place = jnp.arange(WORDS)
    for n, count in counts.items():
        counters = counters + jnp.where(place == n, count, jnp.uint32(0))
    return counters


def latest(counters: Any) -> Latest:
    """Returns the run and the latest lookups of a state, to compare stamps with."""
    low, high = counters[_MOMENT], counters[_MOMENT] & 0
    xp = np if isinstance(counters, np.ndarray) else jnp
    run = counters[_RUN.start : _RUN.start + 2]
    return Latest(run, xp.stack([low, high]), counters[_NONCES:].reshape(_RING, 2))


def digest(*arrays: jax.Array | None) -> jax.Array:
    """Hashes arrays of 32-bit numbers, uint32[]; equal ones in another order differ."""
    return jnp.sum(_terms(arrays), dtype=jnp.uint32)


def digest_and_count(
    flags: jax.Array, *arrays: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Returns ``digest`` of the arrays and how many flags bool[n] are set, uint32[].

    No array has fewer numbers than the flags. Both sums are one kernel of a GPU.
    """
    terms, zero = _terms(arrays), jnp.uint32(0)
    ones = _padded(flags.astype(jnp.uint32), terms.shape[0])
    return jax.lax.reduce((terms, ones), (zero, zero), _both_added, (0,))


def _both_added(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """Adds pairs; one function, since outside of jit JAX compiles for each new one."""
    return a[0] + b[0], a[1] + b[1]


def _terms(arrays: Sequence[jax.Array | None]) -> jax.Array:
    """Weighs each number by its place; those of all arrays are added, uint32[n]."""
    words = [
        jax.lax.bitcast_convert_type(array, jnp.uint32).reshape(-1)
        for array in arrays
        if array is not None
    ]
    sizes = [each.shape[0] for each in words]
    place, total = jnp.arange(max(sizes), dtype=jnp.uint32), jnp.uint32(0)
    for n, each in enumerate(words):  # padded, since one sum is one kernel
        odd = 2 * (place + jnp.uint32(sum(sizes[:n]))) + 1
        total = total + _padded(each, max(sizes)) * odd
    return jnp.broadcast_to(total, place.shape)


def _padded(words: jax.Array, size: int) -> jax.Array:
    return jnp.pad(words, (0, size - words.shape[0]))


@jax.jit
def looked_up(counters: jax.Array, given: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Counts a training lookup by its digest: stamp uint32[1, 8] and counters."""
    earlier = counters[_MOMENT]
    moment, chain = earlier + 1, _mixed(counters[_CHAIN] + given)
    before = jax.lax.dynamic_slice(counters, [_place(earlier)], [2])
    nonce = jnp.stack([moment, jnp.uint32(0), chain, moment])
    stamp = jnp.concatenate([counters[_RUN][:2], nonce, before])
    place, at = jnp.arange(WORDS), _place(moment)
    counters = jnp.where((place == _CHAIN) | (place == at), chain, counters)
    counters = jnp.where((place == _MOMENT) | (place == at + 1), moment, counters)
    return stamp[None], counters


@jax.jit
def updated(counters: jax.Array, given: jax.Array) -> jax.Array:
    """Counts an update by a digest: later lookups differ from those without it."""
    chain = _mixed(counters[_CHAIN] + ~given)
    return jnp.where(jnp.arange(WORDS) == _CHAIN, chain, counters)


def cleared(counters: jax.Array) -> jax.Array:
    """Makes the counters of the same run with initial cores: no lookup fits them."""
    moment = counters[_MOMENT : _MOMENT + 1] + 1
    chain = _mixed(counters[_CHAIN : _CHAIN + 1] + moment)
    ring = jnp.zeros(2 * _RING, jnp.uint32)
    counted = jnp.zeros(_COUNTED, jnp.uint32)
    return jnp.concatenate([counted, counters[_RUN], moment, chain, ring])


def restored(counters: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Begins the next segment of counters uint32[WORDS]; ``drawn`` is of ``new_run``.

    Those of an earlier version have zeros for their run: it becomes the drawn one.
    """
    new, words = np.array(counters), np.ascontiguousarray(drawn).reshape(6)
    if not new[_RUN].any():
        new[_RUN] = words[:4]
    new[_MOMENT] += np.uint32(1)
    new[_CHAIN] = words[4]
    new[_NONCES:] = 0
    return new


def _place(moment: jax.Array) -> jax.Array:
    """Finds the nonce of a moment, of two words, int32[]."""
    return _NONCES + 2 * (moment % _RING).astype(jnp.int32)


def _mixed(word: jax.Array) -> jax.Array:
    """Mixes the bits of a word, as the end of MurmurHash3 does."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        word = (word ^ (word >> shift)) * jnp.uint32(factor)
    return word ^ (word >> 16)
