# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's row bytes: equal to those of the real operators, and within their bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import jax_dynemb as jde
from golden.load_golden import op_cases

GOLDEN = [case for case in op_cases("ops") if case.op in ("q8", "qn")]
DIMS = (1, 2, 3, 5, 16, 130)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_bytes_are_those_of_fbgemm(case):
    rows, bits = case.input["x"], case.input.get("bits", 8)
    if case.op == "qn" and bits == 8:
        pytest.skip("8 bits with a float16 scale: no table of FBGEMM stores it")
    data = jde.export.fbgemm_rows(rows, bits)
    np.testing.assert_array_equal(data, case.expect["q"])
    back = jde.import_.fbgemm_rows(case.expect["q"], rows.shape[1], bits)
    np.testing.assert_array_equal(back, case.expect["dq"])


def test_the_golden_cases_are_there():
    assert sorted((c.op, c.input.get("bits", 8)) for c in GOLDEN) == [
        ("q8", 8),
        ("qn", 2),
        ("qn", 4),
        ("qn", 8),
    ]


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 5), st.sampled_from(DIMS)),
        elements=st.floats(-6e4, 6e4, width=32),
    ),
    st.sampled_from((8, 4, 2)),
)
def test_errors_are_bounded(rows, bits):
    data = jde.export.fbgemm_rows(rows, bits)
    dim, tail = rows.shape[1], 8 if bits == 8 else 4
    assert data.shape == (len(rows), -(-dim * bits // 8) + tail)
    back = jde.import_.fbgemm_rows(data, dim, bits)
    assert back.shape == rows.shape and back.dtype == np.float32
    if not len(rows):
        return
    number = np.float32 if bits == 8 else np.float16
    numbers = np.ascontiguousarray(data[:, -tail:]).view(number).astype(np.float64)
    scale, bias = numbers[:, :1], numbers[:, 1:]
    least, most = rows.min(1, keepdims=True), rows.max(1, keepdims=True)
    # Half a step; what float16 has rounded off the bias, and off the scale at most.
    half = 0 if bits == 8 else 2.0**-11 * (most - least + abs(least - bias))
    half = half + abs(bias - least) + 2**-18 * np.maximum(abs(least), abs(most)) + 2e-7
    assert (abs(back.astype(np.float64) - rows) <= scale / 2 + half).all()


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("value", [0.0, 1.5, -0.25])
def test_constant_rows_are_exact(bits, dim, value):
    rows = np.full((3, dim), value, np.float32)
    data = jde.export.fbgemm_rows(rows, bits)
    np.testing.assert_array_equal(jde.import_.fbgemm_rows(data, dim, bits), rows)


def test_the_first_code_is_in_the_low_bits():
    rows = np.array([[0, 1, 2, 3, 3]], np.float32)
    assert jde.export.fbgemm_rows(rows, 2)[0, :2].tolist() == [0b11100100, 0b11]
    rows = np.array([[0, 15, 1]], np.float32)
    assert jde.export.fbgemm_rows(rows, 4)[0, :2].tolist() == [0xF0, 0x01]


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_rows_that_do_not_fit_are_refused(bits, value):
    rows = np.zeros((3, 4), np.float32)
    rows[1, 2], rows[1, 3] = value, -value
    with pytest.raises(ValueError, match=r"row 1 .* clip the rows"):
        jde.export.fbgemm_rows(rows, bits)


@pytest.mark.parametrize("bits", [0, 1, 3, 16, True, "8", None])
def test_other_bits_are_refused(bits):
    with pytest.raises(ValueError, match="bits must be one of"):
        jde.export.fbgemm_rows(np.zeros((1, 4)), bits)
    with pytest.raises(ValueError, match="bits must be one of"):
        jde.import_.fbgemm_rows(np.zeros((1, 12), np.uint8), 4, bits)


@pytest.mark.parametrize("shape", [(), (4,), (2, 0), (2, 2, 2)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="dim"):
        jde.export.fbgemm_rows(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("data", "dim"),
    [
        (np.zeros((2, 11), np.uint8), 4),
        (np.zeros((2, 12), np.int8), 4),
        (np.zeros(12, np.uint8), 4),
        (np.zeros((2, 8), np.uint8), 0),
    ],
)
def test_bytes_of_another_width_are_refused(data, dim):
    with pytest.raises(ValueError, match="give the dim and bits"):
        jde.import_.fbgemm_rows(data, dim)


@given(hnp.arrays(np.uint8, (3, 12)), st.sampled_from((8, 4, 2)))
def test_any_bytes_are_read(data, bits):
    dim = {8: 4, 4: 16, 2: 32}[bits]
    assert jde.import_.fbgemm_rows(data, dim, bits).shape == (3, dim)
