# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A training step is one program: no callback, no transfer, no second compilation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

import jax_dynemb as jde
from meshes import mesh_of

ROWS, BAGS = 320, 16
TRAIN = jde.TTConfig(
    "item", 16, ROWS, (6, 5), optimizer=jde.optim.adagrad(0.1), pooling="sum"
)
# Lists of configs: cores, their residual and a dynamic table take part.
LISTS: dict[str, list[Any]] = {
    "cores": [TRAIN],
    "residual": [
        jde.TTConfig(
            "item",
            16,
            ROWS,
            6,
            ids="hash",
            pooling="sum",
            optimizer=jde.optim.adam(0.1),
            residual=1024,
        )
    ],
    "both": [TRAIN, jde.TableConfig("user", 8, 1024, pooling="sum")],
}


def batch(seed: int, names: Any, mesh: Any = None) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    ids = {name: jde.ids(rng.integers(-1, ROWS + 9, (BAGS, 3))) for name in names}
    split = None if mesh is None else NamedSharding(mesh, PartitionSpec("data"))
    return jax.device_put(ids, split)


def step_of_tables(tables: Any, mesh: Any) -> tuple[Callable[..., Any], Any]:
    coll = jde.Tables(tables, mesh=mesh)

    @jax.jit
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows)

    return step, coll.init(0)


@pytest.mark.parametrize("devices", [None, 4])
@pytest.mark.parametrize("name", LISTS)
def test_steps_of_a_collection(name, devices):
    """Batches differ in padding, in ids without a row and in distinct ids."""
    mesh = None if devices is None else mesh_of(devices)
    step, state = step_of_tables(LISTS[name], mesh)
    features = [config.name for config in LISTS[name]]
    batches = [batch(seed, features, mesh) for seed in range(4)]
    state = step(state, batches[0])  # arrays of init lie where the step puts them
    programs = step._cache_size()
    with jax.transfer_guard("disallow"):
        for ids in batches[1:]:
            state = step(state, ids)
        jax.block_until_ready(state)
    assert step._cache_size() == programs == 1
    check_program(step.lower(state, batches[0]).compile().as_text())


def test_steps_of_a_module():
    """``TTEmbeddingBag`` with optax, as FBTT's users write it."""
    bag = jde.TTEmbeddingBag(ROWS, 16, [6, 5], rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(bag, optax.adagrad(0.05), wrt=nnx.Param)
    traces = []

    def step(graph, state, ids):
        traces.append(1)
        bag, optimizer = nnx.merge(graph, state)
        grads = nnx.grad(lambda bag: jnp.sum(bag(ids) ** 2))(bag)
        optimizer.update(bag, grads)
        return nnx.state((bag, optimizer))

    jitted = jax.jit(step, static_argnums=0)
    graph, state = nnx.split((bag, optimizer))
    batches = [batch(seed, ["item"])["item"] for seed in range(4)]
    state = jitted(graph, state, batches[0])
    with jax.transfer_guard("disallow"):
        for ids in batches[1:]:
            state = jitted(graph, state, ids)
        jax.block_until_ready(state)
    assert len(traces) == 1
    check_program(jitted.lower(graph, state, batches[0]).compile().as_text())


def check_program(text: str) -> None:
    """Checks that nothing waits for the host: callbacks, feeds, sends or copies."""
    for operation in ("callback", "infeed", "outfeed", "is_host_transfer", "S(5)"):
        assert operation not in text, operation
