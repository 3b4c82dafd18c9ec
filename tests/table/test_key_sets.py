# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of keys are those of Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jax_dynemb._src.rows import among, distinct

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
