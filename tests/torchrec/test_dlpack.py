# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The way in through DLPack, on a CPU and a GPU, with a stand-in for torch's tensors.

The stand-in holds jax Arrays and hands out their DLPack capsules, so these tests need
no torch. Those of torch itself are in test_torch.py.
"""

import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

T = jde.torchrec
EXTREMES = np.array([2**40 + 7, -5, -1, 2**63 - 1, -(2**63), 0], np.int64)


class Tensor:
    """As much of a torch tensor as ``from_torch`` uses.

    Attributes:
      array: what it holds; pairs of words for int64.
      dtype: "int64", "uint32" or "float32".
      streams: that a consumer has handed over, in order.
    """

    def __init__(self, array: jax.Array, dtype: str, streams: list[Any] | None = None):
        self.array, self.dtype = array, dtype
        self.shape = array.shape[:-1] if dtype == "int64" else array.shape
        self.streams: list[Any] = [] if streams is None else streams

    def detach(self) -> "Tensor":
        return self

    contiguous = detach

    def to(self, dtype: Any) -> "Tensor":
        assert dtype == self.dtype
        return self

    def is_floating_point(self) -> bool:
        return self.dtype == "float32"

    def is_contiguous(self) -> bool:
        return True

    def numel(self) -> int:
        return int(np.prod(self.shape))

    def data_ptr(self) -> int:
        return self.array.unsafe_buffer_pointer()

    def view(self, dtype: Any) -> "Tensor":
        return Tensor(self.array, dtype, self.streams)

    def reshape(self, *shape: int) -> "Tensor":
        assert shape == self.array.shape
        return self

    def __le__(self, other: int) -> np.ndarray:
        return self._numbers() <= other

    def __ge__(self, other: int) -> np.ndarray:
        return self._numbers() >= other

    def _numbers(self) -> np.ndarray:
        return np.ascontiguousarray(self.array).view(np.int64)[..., 0]

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.fixture
def torch(monkeypatch):
    module: Any = types.ModuleType("torch")
    module.int64, module.uint32, module.bool = "int64", "uint32", "bool"
    monkeypatch.setitem(sys.modules, "torch", module)


def given() -> dict[str, Any]:
    weights = jnp.arange(6, dtype=jnp.float32)
    return {
        "keys": ["a", "b"],
        "values": Tensor(jde.ids(EXTREMES), "int64"),
        "lengths": np.array([2, 0, 1, 3], np.int32),
        "weights": Tensor(weights, "float32"),
    }


@pytest.mark.usefixtures("torch")
def test_ids_and_weights_share_memory_on_their_device(platform):
    tensors = given()
    kjt = T.from_torch(tensors, zero_copy=True)
    values, _, weights = jax.tree.leaves(kjt)
    for leaf, name in ((values, "values"), (weights, "weights")):
        assert {d.platform for d in leaf.devices()} == {_name(platform)}
        assert leaf.unsafe_buffer_pointer() == tensors[name].data_ptr()
    host = jax.device_get(kjt)
    assert host.packed().values().tolist() == EXTREMES.tolist()
    assert host.packed().weights().tolist() == [0, 1, 2, 3, 4, 5]
    # On a GPU the producer learns the stream that must wait for it.
    assert (tensors["values"].streams[0] is not None) == (platform == "cuda")


@pytest.mark.usefixtures("torch")
def test_a_donated_array_leaves_the_memory_of_its_owner_alone(platform):
    del platform
    tensors = given()
    kjt = T.from_torch(tensors, zero_copy=True)
    add = jax.jit(lambda leaf: leaf + jnp.uint32(1), donate_argnums=0)
    jax.block_until_ready(add(jax.tree.leaves(kjt)[0]))
    assert tensors["values"]._numbers().tolist() == EXTREMES.tolist()


@pytest.mark.usefixtures("torch")
def test_what_a_producer_has_just_queued_is_read(platform):
    """The producer's work may still run when the capsule changes hands."""
    del platform
    x = jnp.ones((1024, 1024))
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: y @ x / 1024, x))
    tensor = Tensor(slow(x)[0], "float32")
    jt = T.from_torch({"values": tensor, "lengths": np.array([1024], np.int32)})
    np.testing.assert_allclose(jt.values(), np.ones(1024), rtol=1e-3)


def _name(platform: str) -> str:
    return "gpu" if platform == "cuda" else platform
