# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The assertions themselves: good steps pass, bad ones hear what is wrong."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.testing import large_instructions

TABLE = jde.TableConfig("t", 8, 1 << 15, optimizer=jde.optim.sgd(0.1))
COLL = jde.Tables([TABLE])
donating = functools.partial(jax.jit, donate_argnums=0)


@pytest.fixture(scope="module")
def state():
    return COLL.init(0)


@pytest.fixture(scope="module")
def ids():
    return jde.ids(np.arange(64))


def train(state, ids):
    rows, residual, state = COLL.lookup(state, {"t": ids})
    return COLL.apply_gradients(state, residual, rows)


def with_values(state, change):
    values = change(state["t"].values)
    return {"t": dataclasses.replace(state["t"], values=values)}


def test_a_good_step_passes(state, ids):
    jde.testing.assert_in_place(donating(train), state, ids)
    size = state["t"].values.nbytes
    jde.testing.assert_in_place(donating(train), state, ids, table_bytes=size)

    def loop(state, ids):
        return jax.lax.scan(lambda s, i: (train(s, i), None), state, ids)[0]

    jde.testing.assert_in_place(donating(loop), state, ids.reshape(4, 16, 2))


def test_a_step_that_does_not_donate(state, ids):
    with pytest.raises(AssertionError, match="Donate them: @jde.nnx.jit"):
        jde.testing.assert_in_place(jax.jit(train), state, ids)


def test_reading_an_old_table(state, ids):
    def step(state, ids):
        new = train(state, ids)
        return new, state["t"].values[0]

    with pytest.raises(AssertionError, match=r"copy '.*An old value of the table"):
        jde.testing.assert_in_place(donating(step), state, ids)


def test_arithmetic_on_a_table(state, ids):
    def step(state, ids):
        return train(with_values(state, lambda v: v * 0.99), ids)

    with pytest.raises(AssertionError, match="must not be reshaped, sliced, cast"):
        jde.testing.assert_in_place(donating(step), state, ids)


def test_a_wanted_operation_can_be_allowed(state, ids):
    def step(state, ids):
        return with_values(train(state, ids), lambda v: v.at[0].set(0.0))

    opcodes = ("fusion", "scatter", "dynamic-update-slice")
    jde.testing.assert_in_place(donating(step), state, ids, allow=opcodes)


def test_a_table_is_needed():
    with pytest.raises(ValueError, match="table_bytes"):
        jde.testing.assert_in_place(jax.jit(jnp.sin), jnp.ones(3))


def test_fusion_bodies_are_not_arrays():
    text = """HloModule step

%fused_computation.1 (p: f32[1024]) -> f32[] {
  %p = f32[1024]{0} parameter(0)
  %inner = f32[1024]{0} multiply(%p, %p)
  ROOT %sum = f32[] reduce(%inner), to_apply=%add
}

ENTRY %main (a: f32[1024]) -> (f32[], bf16[2048]) {
  %a = f32[1024]{0} parameter(0)
  %small = f32[] fusion(%a), kind=kLoop, calls=%fused_computation.1
  %all = (bf16[2048]{0}, u32[]) all-gather(%a), dimensions={0}
  ROOT %out = (f32[], bf16[2048]{0}) tuple(%small, %all)
}
"""
    found = {(name, size) for name, opcode, size in large_instructions(text, 4096)}
    assert found == {("a", 4096), ("all", 4096), ("out", 4096)}


def test_no_recompilation():
    step = jax.jit(lambda x: x + 1)
    jde.testing.assert_no_recompilation(step, [(np.ones(3),), (np.zeros(3),)])
    with pytest.raises(AssertionError, match=r"call 2 compiled .*lambda"):
        jde.testing.assert_no_recompilation(
            step, [(np.ones(4),), (np.ones(4),), (np.ones(5),)]
        )
