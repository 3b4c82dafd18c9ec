# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The linen recipe of the documentation learns, in place and within its 20 lines."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

PAGE = Path(__file__).resolve().parents[2] / "docs/concepts/linen.md"
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
)


@pytest.fixture
def page():
    """Returns what the blocks of the page define."""
    namespace = {"__name__": "page"}
    with jax.numpy_dtype_promotion("standard"):  # optax.adam does not keep strict
        exec("\n".join(BLOCKS), namespace)
        yield namespace


def test_the_step_is_twenty_lines():
    recipe = BLOCKS[0][BLOCKS[0].index("class Tower") :]
    code = [line for line in recipe.splitlines() if line.strip()]
    assert len(code) <= 20


def test_the_recipe_learns(page):
    assert page["coll"].stats(page["state"])["user/rows"] == 3
    draw = np.random.default_rng(0)
    carry, losses = [page[name] for name in ("state", "params", "opt_state")], []
    for _ in range(60):
        user, item = draw.integers(-50, -10, (2, 32))
        ids = {"user": jde.ids(user), "item": jde.ids(item)}
        label = jnp.asarray((user % 2) | (item % 3 == 0), jnp.float32)
        *carry, loss = page["train_step"](*carry, ids, label)
        losses.append(float(loss))
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    state, probability = page["predict"](carry[0], carry[1], ids)
    assert np.mean((np.asarray(probability) > 0.5) == np.asarray(label)) > 0.8
    jde.testing.assert_in_place(page["train_step"], state, *carry[1:], ids, label)
