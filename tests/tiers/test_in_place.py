# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""No order of calls in one program makes XLA copy the homes of a table."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.testing import assert_in_place
from tiered import above_store

COLL = jde.Tables([above_store(64, capacity=8192)])
SLOTS = jnp.arange(64, dtype=jnp.int32)


def lookup(state, ids):
    rows, _, state = COLL.lookup(state, {"t": ids})
    return rows, state


def touch(state, ids):
    rows, _, state = COLL.find(state, {"t": ids}, touch=True)
    return rows, state


def find(state, ids):
    rows, _, state = COLL.find(state, {"t": ids})
    return rows, state


def gather(state, ids):
    return COLL.gather(state, {"t": SLOTS})


def flush(state, ids):
    return COLL.flush(state)


def prefetch(state, ids):
    return COLL.prefetch(state, {"t": ids + 100})


def prefetch_during(state, ids):
    rows = {"t": jnp.ones((64, 6))}
    coming = {"t": ids + 100}
    return COLL.prefetch_during(state, coming, lambda rows: (rows, None), rows)


def insert(state, ids):
    return COLL.insert(state, {"t": ids + 100}, {"t": jnp.ones((64, 6))})


@pytest.mark.parametrize("change", [flush, prefetch, prefetch_during, insert])
@pytest.mark.parametrize("read", [lookup, touch, find, gather])
def test_what_is_read_first_is_not_copied(platform, read, change):
    """A change of homes waits for the calls before it, which read them."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        rows, state = read(state, ids)
        return rows, change(state, ids)

    assert_in_place(step, COLL.init(0), jde.ids(np.arange(64)))
