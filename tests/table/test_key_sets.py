# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of keys are those of Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jax_dynemb._src.rows import among, distinct, held_last, last_holders

KEYS = st.lists(st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)))


def keys_of(numbers):
    return np.array(numbers, np.int64)


@given(KEYS, KEYS)
def test_distinct_keys_ascend(some, others):
    found = distinct(keys_of(some), keys_of(others))
    assert found.dtype == np.int64 and found.tolist() == sorted({*some, *others})


@given(KEYS, KEYS)
def test_keys_among_others(some, others):
    found = among(keys_of(some), distinct(keys_of(others)))
    assert found.tolist() == [each in set(others) for each in some]


@given(st.lists(KEYS, max_size=5))
def test_the_last_array_that_holds_each_key(lists):
    holder = {key: number for number, keys in enumerate(lists) for key in keys}
    found = last_holders([keys_of(keys) for keys in lists])
    assert found[0].tolist() == sorted(holder)
    assert found[1].tolist() == [holder[key] for key in sorted(holder)]
    for number, keys in enumerate(lists):
        held = held_last(keys_of(keys), number, found)
        assert held.tolist() == [holder[key] == number for key in keys]
