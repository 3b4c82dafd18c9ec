# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""State for PyTorch: FBTT-Embedding's, and that of ``jax_dynemb_torch``.

FBTT keeps core t as ``tt_cores.t``, float32[tables, p_t, R_t * q_t * R_{t+1}]. A state
dict says neither ranks nor column factors, so a config comes with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_dynemb._src.ops import hash_factors, new_run
from jax_dynemb._src.optim.interface import Fused
from jax_dynemb._src.tt.config import TTConfig
from jax_dynemb._src.tt.optimizers import core_optimizer
from jax_dynemb._src.tt.state import TTState

_CORE = "tt_cores.{}"
_SUMS = "optimizer_state.optimizer_state{}"
_MOST_CORES = 4


def from_fbtt(
    config: TTConfig, state_dict: Mapping[str, Any], table: int = 0
) -> TTState:
    """Makes a state of the cores of an FBTT-Embedding module.

    Adagrad's sums come along if the config has ``jde.optim.adagrad`` and the module had
    them; other optimizers start. The rows of FBTT's cache are left out: FBTT itself
    overwrites them from the cores.

    Args:
      config: with FBTT's shapes and ranks, and ``ids="index"``.
      state_dict: of the module; torch tensors or NumPy arrays.
      table: which table of a ``TableBatchedTTEmbeddingBag``.

    Raises:
      ValueError: a core is missing or has another shape.
    """
    cores = _arrays(config, state_dict, _CORE, table)
    optimizer = core_optimizer(config.optimizer).init(cores)
    if _has_sums(config) and _stored(state_dict, _SUMS.format(0)).size:
        sums = _arrays(config, state_dict, _SUMS, table)
        optimizer = optax.tree_utils.tree_set(optimizer, sum_of_squares=sums)
    return TTState.of(cores, optimizer, run=new_run(), name=config.name)


def to_fbtt(
    config: TTConfig, state: TTState | Sequence[jax.Array]
) -> dict[str, np.ndarray]:
    """Makes the state dict of an FBTT-Embedding module with ``use_cache=False``.

    Args:
      config: of the table.
      state: its arrays, or the cores alone: then Adagrad's sums are zeros.

    Returns:
      Host arrays by FBTT's names; ``torch.from_numpy`` makes tensors of them.

    Raises:
      ValueError: FBTT can not hold such a table.
    """
    _check_suits(config)
    cores = state.cores if isinstance(state, TTState) else tuple(state)
    shapes = config.row_factors
    strides = [math.prod(shapes[t + 1 :]) for t in range(len(shapes))]
    result: dict[str, np.ndarray] = {"L": np.array(strides, np.int64)}
    for t, core in enumerate(cores):
        result[_CORE.format(t)] = _flat(core)
    for t, sums in enumerate(_sums_of(config, state, cores)):
        result[_SUMS.format(t)] = sums
    result["hashtbl"] = np.zeros(0, np.int64)
    result["cache_state"] = np.zeros(0, np.int32)
    return result


def holds_sums(state_dict: Mapping[str, Any]) -> bool:
    """Whether a state dict of FBTT's has sums of Adagrad that are not zeros."""
    prefix = _SUMS.format("")
    names = [name for name in state_dict if name.startswith(prefix)]
    return any(_stored(state_dict, name).any() for name in names)


def _has_sums(config: TTConfig) -> bool:
    optimizer = config.optimizer
    return isinstance(optimizer, Fused) and optimizer.kind == "adagrad"


def _sums_of(
    config: TTConfig, state: Any, cores: Sequence[jax.Array]
) -> list[np.ndarray]:
    if not _has_sums(config):
        return [np.zeros(0, np.float32) for _ in cores]
    if not isinstance(state, TTState):
        return [np.zeros_like(_flat(core)) for core in cores]
    sums: Any = optax.tree_utils.tree_get(state.optimizer, "sum_of_squares")
    return [_flat(each) for each in sums]


def _flat(core: Any) -> np.ndarray:
    array = np.array(core, np.float32)  # PyTorch warns of arrays of jax: read-only
    return array.reshape(1, array.shape[0], -1)


def _arrays(
    config: TTConfig, state_dict: Mapping[str, Any], name: str, table: int
) -> tuple[jax.Array, ...]:
    """Reads one array a core, in the shapes of the config."""
    arrays = []
    for t, shape in enumerate(config.core_shapes):
        array = _stored(state_dict, name.format(t))
        wanted = (shape[0], math.prod(shape[1:]))
        if array.ndim != 3 or array.shape[1:] != wanted or table >= len(array):
            raise ValueError(
                f"Table '{config.name}': {name.format(t)} has shape {array.shape}, but "
                f"the config needs [tables, {wanted[0]}, {wanted[1]}] with table "
                f"{table}. Give TTConfig FBTT's tt_p_shapes, tt_q_shapes and tt_ranks."
            )
        arrays.append(jnp.asarray(array[table].reshape(shape), jnp.float32))
    if name.format(len(arrays)) in state_dict:
        raise ValueError(
            f"Table '{config.name}': the state dict has more than {len(arrays)} cores; "
            "give TTConfig as many ranks as FBTT had in tt_ranks."
        )
    return tuple(arrays)


def _stored(state_dict: Mapping[str, Any], name: str) -> np.ndarray:
    if name not in state_dict:
        raise ValueError(
            f"the state dict has no {name!r}: pass module.state_dict() of one FBTT "
            f"module, without a prefix. It has {sorted(map(str, state_dict))[:5]}"
        )
    array = state_dict[name]
    if hasattr(array, "detach"):  # a tensor, maybe on a GPU
        array = array.detach().cpu()
    return np.asarray(array)


def _check_suits(config: TTConfig) -> None:
    if config.num_cores > _MOST_CORES:
        raise ValueError(
            f"Table '{config.name}' has {config.num_cores} cores, FBTT takes 2 to "
            f"{_MOST_CORES}; serve it with jax_dynemb_torch.TTEmbeddingBag."
        )
    if config.dim % 4:
        raise ValueError(
            f"Table '{config.name}': dim {config.dim} is no multiple of 4, which "
            "FBTT's kernels need; serve it with jax_dynemb_torch.TTEmbeddingBag."
        )
    if config.ids != "index":
        raise ValueError(
            f"Table '{config.name}' finds rows by the hash of an id, which FBTT does "
            "not have; serve it with jax_dynemb_torch.TTEmbeddingBag."
        )


def to_torch(
    config: TTConfig, state: TTState | Sequence[jax.Array]
) -> dict[str, np.ndarray]:
    """Makes what ``jax_dynemb_torch.TTEmbeddingBag`` is built from.

    ``np.savez("item.npz", **arrays)`` writes a file of it, and
    ``TTEmbeddingBag.load("item.npz")`` reads that file.

    Args:
      config: of the table. The rows of its residual are not among the arrays: export
        them as those of any dynamic table.
      state: its arrays, or the cores alone.

    Returns:
      ``core_0`` and so on, float32[p_t, R_t, q_t, R_{t+1}]; ``num_embeddings``,
      int64[]; and ``mean``, bool[]. ``hash_factors`` is int64[2], the multipliers of
      the hash of ids, which follow from the secret ``hash_seed``. It is int64[0] where
      an id is the number of its row.
    """
    cores = state.cores if isinstance(state, TTState) else tuple(state)
    factors = np.zeros(0, np.int64)
    if config.ids == "hash":
        pairs = hash_factors([config.hash_seed])[0].astype(np.uint64)
        factors = (pairs[:, 0] | pairs[:, 1] << np.uint64(32)).view(np.int64)
    # Copies, because PyTorch warns of the read-only arrays that jax gives.
    arrays = {f"core_{t}": np.array(core) for t, core in enumerate(cores)}
    return arrays | {
        "num_embeddings": np.array(config.num_embeddings, np.int64),
        "mean": np.array(config.pooling == "mean"),
        "hash_factors": factors,
    }
