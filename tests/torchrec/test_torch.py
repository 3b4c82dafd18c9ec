# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch come in and go out with every bit, sharing memory where they can."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde

torch = pytest.importorskip("torch")
T = jde.torchrec
EXTREMES = [2**40 + 7, -5, -1, 2**63 - 1, -(2**63), 0]


class Foreign:
    """A tensor with TorchRec's methods, which give the arguments it was made of."""

    def __init__(self, **arguments: Any):
        for name, value in arguments.items():
            setattr(self, name, lambda value=value: value)


def aligned(values: Any, dtype: Any = None) -> Any:
    """A tensor that begins at a multiple of 64 bytes."""
    flat = torch.as_tensor(values, dtype=dtype)
    room = torch.zeros(flat.numel() + 64, dtype=flat.dtype)
    skip = -room.data_ptr() % 64 // flat.element_size()
    there = room[skip : skip + flat.numel()]
    there.copy_(flat)
    return there


def arguments(**more: Any) -> dict[str, Any]:
    return {
        "keys": ["a", "b"],
        "values": aligned(EXTREMES, torch.int64),
        "lengths": torch.tensor([2, 0, 1, 3], dtype=torch.int32),
        **more,
    }


def foreign(**more: Any) -> Foreign:
    given = arguments(**more)
    inverse = given.pop("inverse_indices", None)
    ranks = given.get("stride_per_key_per_rank", [])
    return Foreign(
        weights_or_none=given.pop("weights", None),
        stride=2,
        variable_stride_per_key=bool(ranks),
        inverse_indices_or_none=inverse,
        **{"stride_per_key_per_rank": ranks, **given},
    )


@pytest.mark.parametrize("capacity", [None, 8])
@pytest.mark.parametrize("source", [arguments, foreign])
def test_every_bit_of_a_keyed_jagged_tensor(source, capacity):
    weights = aligned(np.arange(6, dtype=np.float32)).requires_grad_()
    kjt = T.from_torch(source(weights=weights), capacity=capacity)
    host = jax.device_get(kjt)
    assert host.packed().values().tolist() == EXTREMES
    assert host["b"].to_dense()[1].tolist() == EXTREMES[3:]
    back = T.to_torch(kjt)
    assert back["values"].dtype == torch.int64 and back["values"].tolist() == EXTREMES
    assert back["weights"].tolist() == [0, 1, 2, 3, 4, 5]
    assert back["lengths"].tolist() == [2, 0, 1, 3] and back["keys"] == ["a", "b"]
    assert T.kjt_is_equal(T.from_torch(back), kjt)
    assert T.kjt_is_equal(T.from_torch(T.to_torch(host)), kjt)


def test_memory_is_shared_both_ways():
    given = arguments(weights=aligned(np.arange(6, dtype=np.float32)))
    kjt = T.from_torch(given, zero_copy=True)
    values, _, weights = jax.tree.leaves(kjt)
    assert values.unsafe_buffer_pointer() == given["values"].data_ptr()
    assert weights.unsafe_buffer_pointer() == given["weights"].data_ptr()
    back = T.to_torch(kjt)
    assert back["values"].data_ptr() == given["values"].data_ptr()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (lambda: aligned(range(8), torch.int64)[1:7], "multiple of 64 bytes"),
        (lambda: aligned(range(12), torch.int64)[::2], "not contiguous"),
        (lambda: aligned(range(6), torch.int32), "becomes torch.int64"),
    ],
)
def test_what_cannot_share_memory_is_copied_or_refused(values, why):
    given = arguments(values=values())
    kjt = jax.device_get(T.from_torch(given))
    assert kjt.packed().values().tolist() == given["values"].tolist()
    with pytest.raises(ValueError, match=why):
        T.from_torch(given, zero_copy=True)


def test_a_donated_array_leaves_the_memory_of_torch_alone():
    given = arguments()
    kjt = T.from_torch(given, zero_copy=True)
    add = jax.jit(lambda leaf: leaf + jnp.uint32(1), donate_argnums=0)
    jax.block_until_ready(add(jax.tree.leaves(kjt)[0]))
    assert given["values"].tolist() == EXTREMES


@pytest.mark.parametrize("reserved", [-2, -3, -4])
def test_reserved_ids_are_refused(reserved):
    values = torch.tensor([1, 2, 3, 4, 5, reserved])
    with pytest.raises(ValueError, match="reserved"):
        T.from_torch(arguments(values=values))


def test_empty_and_variable_batches():
    empty = T.from_torch(
        arguments(
            values=torch.zeros(0, dtype=torch.int64),
            lengths=torch.zeros(4, dtype=torch.int64),
        )
    )
    assert T.to_torch(empty)["values"].shape == (0,)
    inverse = (["a", "b"], torch.tensor([[0, 0, 0], [2, 1, 0]]))
    ranks = [[1], [3]]
    more = {"stride_per_key_per_rank": ranks, "inverse_indices": inverse}
    for source in (arguments, foreign):
        kjt = T.from_torch(source(**more))
        assert kjt.stride_per_key() == [1, 3] and kjt.stride() == 3
        back = T.to_torch(kjt)
        assert back["stride_per_key_per_rank"] == ranks and "stride" not in back
        assert torch.equal(back["inverse_indices"][1], inverse[1])


def test_jagged_and_keyed_tensors():
    given = {
        "values": torch.arange(12.0).reshape(6, 2),
        "lengths": torch.tensor([4, 2]),
        "weights": None,
    }
    jt = T.from_torch(given)
    assert torch.equal(T.to_torch(jt)["values"], given["values"])
    source = Foreign(
        values=given["values"], lengths=given["lengths"], weights_or_none=None
    )
    assert T.jt_is_equal(T.from_torch(source), jt)
    offsets = {"values": given["values"], "offsets": torch.tensor([0, 4, 6])}
    assert T.jt_is_equal(T.from_torch(offsets), jt)
    columns = {
        "keys": ["x", "y"],
        "length_per_key": [1, 2],
        "values": torch.arange(6.0).reshape(2, 3),
        "key_dim": 1,
    }
    for source in (columns, Foreign(**columns)):
        kt = T.from_torch(source)
        assert kt["y"].tolist() == [[1, 2], [4, 5]]
        assert torch.equal(T.to_torch(kt)["values"], columns["values"])
    for convert in (T.from_torch, T.to_torch):
        with pytest.raises(TypeError, match="takes"):
            convert(object())


def test_ids_of_torch_are_looked_up_and_weights_trained():
    state = {"embedding_bags.t.weight": torch.arange(32.0).reshape(8, 4)}
    config = T.EmbeddingBagConfig(8, 4, "t", feature_names=["a"])
    model = T.EmbeddingBagCollection([config], rngs=nnx.Rngs(0))
    T.load_torch_state_dict(model, state)
    given = {
        "keys": ["a"],
        "values": torch.tensor([0, 7, 7]),
        "lengths": torch.tensor([1, 2]),
    }
    rows = T.to_torch(model(T.from_torch(given)))["values"]
    weight = state["embedding_bags.t.weight"]
    assert torch.equal(rows, torch.stack([weight[0], 2 * weight[7]]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch without CUDA")
def test_tensors_of_a_stream_that_is_not_the_default_one():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        slow = torch.ones(2048, 2048, device="cuda")
        for _ in range(30):
            slow = slow @ torch.ones_like(slow) / 2048
        values = slow[0, :6].to(torch.int64) + torch.arange(6, device="cuda") * 2**40
        kjt = T.from_torch({**arguments(), "values": values})
        back = T.to_torch(kjt)
    assert {d.platform for d in jax.tree.leaves(kjt)[0].devices()} == {"gpu"}
    wanted = (1 + np.arange(6) * 2**40).tolist()
    assert jax.device_get(kjt).packed().values().tolist() == wanted
    assert back["values"].is_cuda and back["values"].tolist() == wanted
    # The default is a copy that may be donated, unless to_torch has handed it out.
    add = jax.jit(lambda leaf: leaf + jnp.uint32(1), donate_argnums=0)
    copied = T.from_torch({**arguments(), "values": values})
    jax.block_until_ready(add(jax.tree.leaves(copied)[0]))
    assert values.tolist() == wanted
    shared = T.from_torch({**arguments(), "values": values}, zero_copy=True)
    pointer = jax.tree.leaves(shared)[0].unsafe_buffer_pointer()
    assert pointer == values.data_ptr()
