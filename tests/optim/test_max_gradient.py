# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts what ``max_gradient`` costs in the compiled step: passes over gradients."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

N, DIM, HIDDEN = 512, 32, 8
# An operation of the program itself, not one inside a fusion, that writes gradients.
WRITES = re.compile(rf"= f32\[{N},(?:{DIM}|{2 * DIM})\]\S* (\w[\w-]*)\(")
NO_WORK = {"parameter", "bitcast", "get-tuple-element"}


def losses(weights, target):
    """Losses whose gradients come out of operations of three kinds."""

    def elementwise(rows):
        return sum(jnp.sum((x - target) ** 2) for x in rows.values())

    def sliced(rows):  # features side by side, as most models have them
        x = jnp.concatenate(list(rows.values()), axis=1)
        return jnp.sum(jnp.tanh(x @ weights) ** 2)

    def product(rows):  # one feature straight into a matrix
        return sum(jnp.sum(jnp.tanh(x @ weights[:DIM]) ** 2) for x in rows.values())

    return {"elementwise": elementwise, "sliced": sliced, "product": product}


def passes(source: str, limit: float | None) -> int:
    """Counts the operations of a compiled step that write an array of gradients."""
    optimizer = jde.optim.adam(0.1)
    coll = jde.Tables(
        jde.TableConfig(n, DIM, 4_096, optimizer=optimizer, max_gradient=limit)
        for n in "ab"
    )

    def step(state, ids, weights, target, given):
        rows, residual, state = coll.lookup(state, ids)
        d_rows = given
        if source != "given":
            d_rows = jax.grad(losses(weights, target)[source])(rows)
        return coll.apply_gradients(state, residual, d_rows)

    ids = {n: jde.ids(np.arange(N)) for n in "ab"}
    of_row = jnp.ones((N, DIM))
    arguments = ids, jnp.ones((2 * DIM, HIDDEN)), of_row, dict.fromkeys("ab", of_row)
    run = jax.jit(step, donate_argnums=0)
    text = run.lower(coll.init(0), *arguments).compile().as_text() or ""
    entry = text[text.index("ENTRY") :]
    return len([op for op in WRITES.findall(entry) if op not in NO_WORK])


@pytest.mark.parametrize(
    ("source", "more"),
    [("elementwise", 0), ("sliced", 0), ("product", 2), ("given", 2)],
)
def test_clipping_is_part_of_what_makes_the_gradients(source, more):
    """It is fused where XLA makes them itself; else it is one pass a feature."""
    assert passes(source, 0.1) - passes(source, None) == more
