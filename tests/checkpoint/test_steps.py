# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A step is a whole number of 0 or more, whatever type it has."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

TREE = {"x": jnp.ones(3)}


@pytest.mark.parametrize("step", [True, np.True_, 1.0, np.float32(1), "1", None, 1j])
def test_other_types_are_refused(tmp_path, step):
    with pytest.raises(TypeError, match="A step must be a whole number"):
        jde.checkpoint.save(tmp_path / "run", step, TREE)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("step", [-1, np.int64(-7), 2**63, 10**30])
def test_other_numbers_are_refused(tmp_path, step):
    with pytest.raises(ValueError, match="A step must be 0 or more"):
        jde.checkpoint.save(tmp_path / "run", step, TREE)


def test_integers_of_numpy_and_jax_are_numbers(tmp_path):
    for step in (0, np.int32(1), np.uint8(2), jnp.int32(3), np.array(4)):
        jde.checkpoint.save(tmp_path, step, TREE, keep=None, wait=True)
    assert jde.checkpoint.steps(tmp_path) == [0, 1, 2, 3, 4]
    assert jde.checkpoint.restore(tmp_path, TREE, step=np.int64(2)).step == 2
    for step in (True, 1.0, "2"):
        with pytest.raises(TypeError, match="A step must be a whole number"):
            jde.checkpoint.restore(tmp_path, TREE, step=step)
    with pytest.raises(ValueError, match="0 or more"):
        jde.checkpoint.restore(tmp_path, TREE, step=-1)


@pytest.mark.parametrize("name", ["٣", "007", "-1", "1.0", "²"])
def test_other_directories_are_no_steps(tmp_path, name):
    jde.checkpoint.save(tmp_path, 1, TREE, wait=True)
    (tmp_path / "1").rename(tmp_path / name)
    assert jde.checkpoint.steps(tmp_path) == []
    assert jde.checkpoint.latest(tmp_path) is None
