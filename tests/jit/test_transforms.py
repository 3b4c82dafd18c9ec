# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jit, grad, scan, cond, remat and vmap around the operations."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from support import HostJagged, Twins, gradients, without_identity

TABLES = (
    jde.TableConfig(
        name="t", dim=4, capacity=256, optimizer=jde.optim.adagrad(0.5, eps=1e-6)
    ),
    jde.TableConfig(
        name="bag", dim=3, capacity=256, pooling="mean", optimizer=jde.optim.sgd(0.5)
    ),
)
STEPS = 5


def batches(seed: int = 0) -> dict[str, np.ndarray]:
    """int64[STEPS, ...] of each feature."""
    rng = np.random.default_rng(seed)
    return {
        "t": rng.integers(-1, 30, (STEPS, 8)),
        "bag": rng.integers(-1, 30, (STEPS, 8, 3)),
    }


def loss(rows: dict[str, jax.Array]) -> jax.Array:
    """Its gradient with respect to each row is the row itself."""
    return sum(jnp.sum(x * x) / 2 for x in rows.values())


def train_step(coll: jde.Tables, state, ids):
    rows, residual, state = coll.lookup(state, ids)
    value, d_rows = jax.value_and_grad(loss)(rows)
    return coll.apply_gradients(state, residual, d_rows), value


def expect_steps(twins: Twins, inputs: dict[str, np.ndarray]) -> None:
    """The same training by the oracle, its gradients written by hand."""
    for step in range(STEPS):
        rows, residual = twins.oracle.lookup({f: x[step] for f, x in inputs.items()})
        twins.oracle.apply_gradients(residual, rows)


def device(inputs: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    return {f: jde.ids(x) for f, x in inputs.items()}


def test_eager_and_compiled_agree_with_the_oracle(platform):
    inputs = batches()
    for wrap in (lambda f: f, jax.jit):
        twins = Twins(*TABLES)
        step = wrap(functools.partial(train_step, twins.coll))
        for i in range(STEPS):
            ids = device({f: x[i] for f, x in inputs.items()})
            twins.state, _ = step(twins.state, ids)
        expect_steps(twins, inputs)
        twins.check()


def test_scan_that_updates_in_every_micro_batch(platform):
    twins, inputs = Twins(*TABLES), batches()

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state, ids):
        return jax.lax.scan(functools.partial(train_step, twins.coll), state, ids)

    twins.state, losses = run(twins.state, device(inputs))
    assert losses.shape == (STEPS,)
    expect_steps(twins, inputs)
    twins.check()


def test_scan_that_collects_and_one_update(platform):
    twins, inputs = Twins(*TABLES), batches(1)

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state, ids):
        def micro(state, ids):
            rows, residual, state = twins.coll.lookup(state, ids)
            return state, (residual, jax.grad(loss)(rows))

        state, (residuals, d_rows) = jax.lax.scan(micro, state, ids)
        return twins.coll.apply_gradients(state, residuals, d_rows)

    twins.state = run(twins.state, device(inputs))
    pairs = []
    for step in range(STEPS):
        rows, residual = twins.oracle.lookup({f: x[step] for f, x in inputs.items()})
        pairs.append((residual, rows))
    twins.oracle.apply_gradients([r for r, _ in pairs], [d for _, d in pairs])
    twins.check()
    assert twins.coll.stats(twins.state)["t/step"] == 1


def test_scan_over_jagged_micro_batches_and_one_update(platform):
    twins = Twins(*TABLES)
    bags = [[[1, 2], [], [3, 3, 4]], [[], [5, 1], [2]], [[2], [2], []]]
    jagged = [HostJagged.of(each, capacity=7) for each in bags]
    values = jde.ids(np.stack([each.values for each in jagged]))
    lengths = jnp.asarray(np.stack([each.lengths for each in jagged]))

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state, ids):
        def micro(state, ids):
            rows, residual, state = twins.coll.lookup(state, {"bag": ids})
            return state, (residual, jax.grad(loss)(rows))

        state, (residuals, d_rows) = jax.lax.scan(micro, state, ids)
        return twins.coll.apply_gradients(state, residuals, d_rows)

    twins.state = run(twins.state, jde.Jagged(values, lengths))
    results = [twins.oracle.lookup({"bag": each}) for each in jagged]
    twins.oracle.apply_gradients([r for _, r in results], [d for d, _ in results])
    twins.check()


def test_cond(platform):
    twins, inputs = Twins(*TABLES), batches(2)

    @functools.partial(jax.jit, donate_argnums=0)
    def maybe(state, ids, wanted):
        def train(state):
            return train_step(twins.coll, state, ids)[0]

        return jax.lax.cond(wanted, train, lambda state: state, state)

    for step in range(STEPS):
        ids = {f: x[step] for f, x in inputs.items()}
        twins.state = maybe(twins.state, device(ids), step % 2 == 0)
        if step % 2 == 0:
            rows, residual = twins.oracle.lookup(ids)
            twins.oracle.apply_gradients(residual, rows)
    twins.check()


def test_while_loop(platform):
    twins, inputs = Twins(*TABLES), batches(3)
    ids = device(inputs)

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state):
        def body(i, state):
            now = {
                f: jax.lax.dynamic_index_in_dim(x, i, 0, False) for f, x in ids.items()
            }
            return train_step(twins.coll, state, now)[0]

        return jax.lax.fori_loop(0, STEPS, body, state)

    twins.state = run(twins.state)
    expect_steps(twins, inputs)
    twins.check()


def test_remat_of_the_dense_part(platform):
    inputs = {f: x[0] for f, x in batches(4).items()}
    results = []
    for wrap in (lambda f: f, jax.checkpoint):
        twins = Twins(*TABLES)

        @wrap
        def dense(w, rows):
            matmul = functools.partial(jnp.matmul, precision="highest")
            hidden = jnp.tanh(matmul(rows["t"], w[:4])) + matmul(rows["bag"], w[4:])
            return jnp.sum(jnp.sin(hidden))

        @jax.jit
        def step(state, w, ids, coll=twins.coll, dense=dense):
            rows, residual, state = coll.lookup(state, ids)
            d_w, d_rows = jax.grad(dense, argnums=(0, 1))(w, rows)
            return coll.apply_gradients(state, residual, d_rows), d_w

        w = jnp.asarray(gradients((7, 5), 0))
        state, d_w = step(twins.state, w, device(inputs))
        rows, _, _ = twins.coll.find(state, device(inputs))
        results.append((d_w, rows["t"], rows["bag"]))
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), *results
    )


def test_a_lookup_inside_the_differentiated_function(platform):
    twins, inputs = Twins(*TABLES), batches(5)
    ids = device({f: x[0] for f, x in inputs.items()})

    def model(w, state):
        rows, residual, state = twins.coll.lookup(state, ids)
        return jnp.sum(rows["t"] * w[None, :]), (residual, state)

    @jax.jit
    def gradient(w, state):
        return jax.grad(model, has_aux=True)(w, state)

    d_w, (_, state) = gradient(jnp.ones(4), twins.state)
    expected, _ = twins.oracle.lookup({f: x[0] for f, x in inputs.items()})
    np.testing.assert_allclose(d_w, expected["t"].sum(axis=0), rtol=1e-5, atol=1e-6)
    assert twins.coll.stats(state)["t/lookups"] == 1


def test_without_donation_the_old_state_lives_on(platform):
    twins = Twins(*TABLES)
    coll, old = twins.coll, twins.state
    _, residual, new = jax.jit(coll.lookup)(old, {"t": jde.ids([1, 2])})
    newer = jax.jit(coll.apply_gradients)(new, residual, {"t": jnp.ones((2, 4))})
    _, found, _ = jax.jit(coll.find)(newer, {"t": jde.ids([1, 2, 3])})
    assert found["t"].tolist() == [True, True, False]
    assert [coll.stats(s)["t/rows"] for s in (old, new, newer)] == [0, 2, 2]
    assert [coll.stats(s)["t/step"] for s in (old, new, newer)] == [0, 0, 1]


def without_stamps(state):
    """The counters but for what tells tables of one config apart."""
    return {
        name: dataclasses.replace(t, counters=without_identity(t.counters))
        for name, t in state.items()
    }


def test_init_with_a_traced_seed(platform):
    coll = jde.Tables(TABLES)
    traced, eager = jax.jit(coll.init)(jnp.uint32(7)), coll.init(7)
    jax.tree.map(np.testing.assert_array_equal, *map(without_stamps, (traced, eager)))


@pytest.mark.parametrize(
    "call", [lambda c, *x: c.lookup(*x)[0], lambda c, *x: c.find(*x, touch=True)[0]]
)
def test_vmap_is_refused_with_a_sentence(call):
    coll, ids = jde.Tables(TABLES), jde.ids(np.zeros((3, 8), int))
    state = coll.init(0)
    with pytest.raises(NotImplementedError, match="under jax.vmap is not supported"):
        jax.vmap(lambda ids: call(coll, state, {"t": ids}))(ids)


def test_int32_ids_are_refused_while_tracing():
    coll = jde.Tables(TABLES)

    @jax.jit
    def run(state, ids):
        return coll.lookup(state, {"t": ids})[0]

    with pytest.raises(TypeError, match=r"jde\.ids"):
        run.trace(coll.init(0), jnp.zeros(8, jnp.int32))
