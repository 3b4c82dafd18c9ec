# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows in bytes, compared with the struct module."""

import struct

import ml_dtypes
import numpy as np
import pytest

import jax_dynemb as jde
from stores.conftest import table_config


def chunk_of(count: int, rng, **changes) -> tuple[jde.TableConfig, jde.Exported]:
    config = table_config(**changes)
    states = {
        name: rng.random((count, *spec.shape), np.float32)
        for name, spec in config.states.items()
    }
    dtype = {"bfloat16": ml_dtypes.bfloat16}.get(config.param_dtype, config.param_dtype)
    rows = rng.random((count, config.dim)).astype(dtype)
    scores = rng.integers(0, 2**63, count).astype(np.uint64)
    keys = rng.integers(0, 2**62, count)
    return config, jde.Exported(keys, rows, scores, states)


def test_score_row_and_states_follow_each_other():
    rng = np.random.default_rng(0)
    config, chunk = chunk_of(3, rng)
    layout = jde.stores.Layout.of(config)
    packed = layout.pack(chunk)
    names = sorted(config.states)
    assert len(names) == 2 and {len(config.states[n].shape) for n in names} == {0, 1}
    for i in range(3):
        numbers = [*chunk.rows[i]]
        for name in names:
            numbers += np.ravel(chunk.optimizer_state[name][i]).tolist()
        expected = struct.pack(f"<Q{len(numbers)}f", chunk.scores[i], *numbers)
        assert packed[i].tobytes() == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_there_and_back(dtype, count):
    config, chunk = chunk_of(count, np.random.default_rng(1), param_dtype=dtype)
    layout = jde.stores.Layout.of(config)
    packed = layout.pack(chunk)
    assert packed.shape == (count, layout.row_bytes)
    back = layout.unpack(chunk.keys, packed)
    np.testing.assert_array_equal(back.keys, chunk.keys)
    np.testing.assert_array_equal(back.scores, chunk.scores)
    assert back.rows.dtype == chunk.rows.dtype
    np.testing.assert_array_equal(back.rows, chunk.rows)
    np.testing.assert_array_equal(layout.rows(packed), chunk.rows)
    assert back.optimizer_state.keys() == chunk.optimizer_state.keys()
    for name, state in chunk.optimizer_state.items():
        np.testing.assert_array_equal(back.optimizer_state[name], state)


def test_rows_of_another_shape_are_named():
    config, chunk = chunk_of(4, np.random.default_rng(2))
    layout = jde.stores.Layout.of(config)
    with pytest.raises(ValueError, match=r"row has shape \(4, 4\); the table's is"):
        layout.pack(chunk._replace(rows=chunk.rows[:, :4]))
    with pytest.raises(ValueError, match="row is of float64; the table's is float32"):
        layout.pack(chunk._replace(rows=chunk.rows.astype(np.float64)))
    with pytest.raises(TypeError, match="not of a dict"):
        jde.stores.Layout.of({"dim": 4})
