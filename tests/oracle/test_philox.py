# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Philox4x32 of the oracle against the known answers of Random123."""

import numpy as np
import pytest

import oracle

KNOWN = [  # counter, key, words after 7 and after 10 rounds
    (
        [0, 0, 0, 0],
        (0, 0),
        [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48],
        [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
    ),
    (
        [0xFFFFFFFF] * 4,
        (0xFFFFFFFF, 0xFFFFFFFF),
        [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662],
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
    ),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "seven", "ten"), KNOWN)
def test_known_answers(counter: list, key: tuple, seven: list, ten: list):
    counters = np.array(counter, np.uint32)
    got = [oracle.philox4x32(counters, key, rounds) for rounds in (7, 10)]
    np.testing.assert_array_equal(got, np.array([seven, ten], np.uint32))
    np.testing.assert_array_equal(oracle.philox4x32(counters, key), got[1])


def test_counters_of_any_shape():
    counters = np.array([counter for counter, *_ in KNOWN], np.uint32)
    got = oracle.philox4x32(counters.reshape(3, 1, 4), (7, 8))
    assert got.shape == (3, 1, 4)
    for i in range(3):
        alone = oracle.philox4x32(counters[i], (7, 8))
        np.testing.assert_array_equal(got[i, 0], alone)
