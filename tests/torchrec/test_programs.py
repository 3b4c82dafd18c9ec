# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Jagged tensors inside programs: jit, gradients, recompilation, transfers, pickle."""

import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

JT = jde.torchrec.JaggedTensor
KJT = jde.torchrec.KeyedJaggedTensor
KT = jde.torchrec.KeyedTensor
KEYS = ["a", "b", "c"]


def batch(seed: int, capacity: Any = 12, weighted: bool = True) -> Any:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 4, 9).astype(np.int32)
    values = draw.integers(-(2**62), 2**62, lengths.sum())
    weights = draw.normal(size=len(values)).astype(np.float32) if weighted else None
    return KJT.from_lengths_sync(KEYS, values, lengths, weights, capacity=capacity)


METHODS: dict[str, Callable[[Any], Any]] = {
    "values": lambda k: k.packed().values(),
    "lengths": lambda k: k.lengths(),
    "weights": lambda k: k.packed().weights(),
    "offsets": lambda k: k.packed().offsets(),
    "length_per_key": lambda k: jnp.asarray(k.length_per_key()),
    "offset_per_key": lambda k: jnp.asarray(k.offset_per_key()),
    "getitem": lambda k: k["b"],
    "to_dict": lambda k: k.to_dict(),
    "split": lambda k: k.split([2, 0, 1]),
    "permute": lambda k: k.permute([2, 0, 2]),
    "concat": lambda k: KJT.concat(k.split([1, 2])[::-1]),
    "from_jt_dict": lambda k: KJT.from_jt_dict(k.to_dict()),
    "padded": lambda k: k["c"].to_padded_dense(3, -1),
    "padded_weights": lambda k: k["c"].to_padded_dense_weights(2, 0.5),
    "jt_offsets": lambda k: k["a"].offsets(),
    "positions": lambda k: k["a"].positions(),
    "from_dense_lengths": lambda k: JT.from_dense_lengths(
        k["a"].to_padded_dense(4, -1), k["a"].lengths()
    ),
    "regroup": lambda k: KT.regroup(
        [KT.from_tensor_list(KEYS, [k[x].lengths()[:, None] for x in KEYS])],
        [["c", "a"], ["b"]],
    ),
}


def words(tree: Any) -> list[np.ndarray]:
    """Leaves, with ids as pairs; without what stands behind the live entries."""
    leaves = []
    for leaf in jax.tree.leaves(tree):
        leaf = np.asarray(leaf)
        if leaf.dtype == np.int64:
            leaf = leaf.view(np.uint32).reshape(*leaf.shape, 2)
        leaves.append(leaf)
    return leaves


@pytest.mark.parametrize("name", METHODS)
def test_jit_gives_what_the_host_gives(name):
    kjt = batch(0)
    host, traced = words(METHODS[name](kjt)), words(jax.jit(METHODS[name])(kjt))
    for x, y in zip(host, traced, strict=True):
        live = (slice(0, x.shape[0]),) if name in ("values", "weights") else ()
        if name == "from_dense_lengths" and x.shape != y.shape:
            live = (slice(0, x.shape[0]),)
        np.testing.assert_array_equal(x, y[live])


@pytest.mark.parametrize("name", METHODS)
def test_no_transfer_between_host_and_device(name):
    kjt = jax.device_put(batch(0))
    jitted = jax.jit(METHODS[name])
    jitted(kjt)
    with jax.transfer_guard("disallow"):
        jax.block_until_ready(jitted(kjt))


def test_static_parts_are_python_values_inside_jit():
    seen = {}

    @jax.jit
    def read(kjt):
        seen["keys"], seen["stride"] = kjt.keys(), kjt.stride()
        seen["strides"], seen["index"] = kjt.stride_per_key(), kjt.index_per_key()
        seen["bags"], seen["room"] = (
            kjt.lengths_offset_per_key(),
            kjt.capacity_per_key(),
        )
        seen["text"] = str(kjt) + str(kjt["a"])
        return kjt

    read(batch(1))
    assert seen["keys"] == KEYS and seen["stride"] == 3
    assert seen["strides"] == [3, 3, 3] and seen["index"] == {"a": 0, "b": 1, "c": 2}
    assert seen["bags"] == [0, 3, 6, 9] and seen["room"] == [12, 12, 12]


def test_few_programs_under_a_capacity():
    programs = []

    @jax.jit
    def step(kjt):
        programs.append(kjt.capacity_per_key())
        return [METHODS[name](kjt) for name in METHODS]

    policy = jde.torchrec.Capacity(multiple=32)
    for seed in range(50):
        step(batch(seed, policy))
    assert len(programs) == 1
    saved = jde.torchrec.Capacity.from_dict(policy.to_dict())
    step(batch(99, saved))
    assert len(programs) == 1


def test_a_growing_batch_compiles_a_logarithm_of_programs():
    policy = jde.torchrec.Capacity(multiple=1, headroom=1.0)
    rooms = {policy.of(["k"], [n]) for n in range(1, 1001)}
    assert len(rooms) <= 1 + np.log2(1000) + 1
    assert policy.of(["k"], [1000])[0] >= 1000
    with pytest.raises(ValueError, match="headroom"):
        jde.torchrec.Capacity(headroom=0.5)


def test_padded_dense_is_differentiable():
    lengths = jnp.array([2, 0, 3])

    def loss(values, weights):
        jt = JT(values, weights, lengths)
        padded = jt.to_padded_dense(2) * jt.to_padded_dense_weights(2)[..., None]
        return (padded * jnp.arange(12.0).reshape(3, 2, 2)).sum()

    values = jnp.arange(10.0).reshape(5, 2)
    gradient = jax.jit(jax.grad(loss, (0, 1)))(values, jnp.ones(5))
    expected = np.array([[0, 1], [2, 3], [8, 9], [10, 11], [0, 0]])
    np.testing.assert_array_equal(gradient[0], expected)
    np.testing.assert_array_equal(gradient[1], (expected * np.asarray(values)).sum(1))


def test_trees_and_pickles_come_back_equal():
    kjt = batch(3)
    for again in (
        pickle.loads(pickle.dumps(kjt)),
        jax.tree.map(lambda x: x, kjt),
        jax.tree.unflatten(*reversed(jax.tree.flatten(jax.device_put(kjt)))),
    ):
        assert jde.torchrec.kjt_is_equal(kjt, again)
    for jt in (kjt["a"], jax.device_put(kjt["a"])):
        assert jde.torchrec.jt_is_equal(pickle.loads(pickle.dumps(jt)), kjt["a"])
    kt = KT.from_tensor_list(["x", "y"], [np.ones((2, 1)), np.zeros((2, 3))])
    again = pickle.loads(pickle.dumps(kt))
    assert again.keys() == ["x", "y"] and again.length_per_key() == [1, 3]
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree.flatten_with_path(kjt)[0]]
    assert paths == [".values", ".lengths", ".weights"]


def test_orbax_round_trip(tmp_path):
    checkpointer = pytest.importorskip("orbax.checkpoint")
    kjt = jax.device_put(batch(4))
    with checkpointer.StandardCheckpointer() as saver:
        saver.save(tmp_path / "kjt", jax.tree.leaves(kjt))
        saver.wait_until_finished()
        leaves = saver.restore(tmp_path / "kjt", jax.tree.leaves(kjt))
    again = jax.tree.unflatten(jax.tree.structure(kjt), leaves)
    assert jde.torchrec.kjt_is_equal(kjt, again)


def test_what_needs_the_host_says_so_under_jit():
    kjt = batch(5)
    wrong = {
        "to_dense": (lambda k: k["a"].to_dense(), "to_padded_dense"),
        "padded": (lambda k: k["a"].to_padded_dense(), "desired_length"),
        "sync": (lambda k: batch_of(k), "from_lengths"),
        "offsets": (lambda k: k.offsets(), "packed"),
        "validate": (lambda k: jde.torchrec.validate(k), "before the step"),
        "capacity": (lambda k: jitted_with_policy(k), "from_lengths_sync"),
    }
    for call, sentence in wrong.values():
        with pytest.raises(TypeError, match=sentence):
            jax.jit(call)(kjt)
    with pytest.raises(ValueError, match="before packed"):
        jax.jit(lambda k: k.packed()["b"])(kjt)


def batch_of(kjt: Any) -> Any:
    return KJT.from_lengths_sync(KEYS, kjt.values(), kjt.lengths())


def jitted_with_policy(kjt: Any) -> Any:
    policy = jde.torchrec.Capacity()
    return KJT.from_lengths(KEYS, kjt.values(), kjt.lengths(), capacities=policy)


def test_packed_under_jit_becomes_exact_on_the_host():
    kjt = batch(6)
    packed = jax.jit(lambda k: k.packed())(kjt)
    assert jde.torchrec.kjt_is_equal(packed, kjt)
    assert "room" in str(packed)
    assert jde.torchrec.kjt_is_equal(
        packed.packed().permute([1, 0, 2]).permute([1, 0, 2]), kjt
    )
