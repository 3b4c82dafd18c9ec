# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Static tables of a TorchRec checkpoint, as rows whose id is the row number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from jax_dynemb import _ids
from jax_dynemb._kind_of import kind_of
from jax_dynemb.config import TableConfig
from jax_dynemb.nnx.interface import TableModule

_WEIGHT = re.compile(r"(?:.*\.)?(?:embedding_bags|embeddings)\.([^.]+)\.weight$")
_MODULES = "embedding_bags.<table>.weight or embeddings.<table>.weight"
# What torch, TorchRec and FBGEMM call a state; the first that a table has is meant.
_STEPS = ("iter", "step")  # of the table
_ALIASES = {
    "momentum_1": ("sum_of_squares", "mu"),
    "momentum1": ("sum_of_squares", "mu"),
    "sum": ("sum_of_squares",),
    "exp_avg": ("mu",),
    "exp_avg_sq": ("nu",),
    "momentum_2": ("nu",),
    "momentum2": ("nu",),
    "prev_iter": ("last",),
    "row_counter": ("count",),
}


def load_torch_state_dict(
    module: TableModule,
    state_dict: Mapping[str, Any],
    optimizer_state: Mapping[str, Any] | None = None,
) -> None:
    """Stores the tables of a TorchRec module: the id of a row is its number.

    Args:
      module: a collection; rows that it has keep their place and get new values.
      state_dict: ``embedding_bags.<table>.weight`` or ``embeddings.<table>.weight``,
        with any prefix: NumPy arrays, or torch tensors on the CPU.
      optimizer_state: ``<table>.weight.momentum_1`` and the like, flat or in the
        nested form of ``optimizer.state_dict()``. ``iter`` and ``step`` say how many
        updates the table has had.

    Raises:
      KeyError: a table of the module is not in the dict.
      TypeError: the module is no collection.
      ValueError: a shape does not fit, rows find no place, a table is a tensor train,
        or an optimizer state is unknown.
    """
    if not isinstance(module, TableModule):
        raise TypeError(
            f"load_torch_state_dict takes a collection, not {kind_of(module)}: call it "
            "for each collection of the model; it picks its tables out of the dict."
        )
    found = {
        m[1]: value for key, value in state_dict.items() if (m := _WEIGHT.match(key))
    }
    catalog = module.coll.engine.catalog
    if trains := sorted(set(catalog.tables) - set(catalog.dynamic)):
        raise ValueError(
            f"tables {trains} are tensor trains, which have no rows to store: make "
            "their configs with init_fn=jde.tt.from_dense(weight), the nearest cores "
            "of a dense table."
        )
    tables = catalog.dynamic
    if missing := sorted(set(tables) - set(found)):
        raise KeyError(
            f"the state dict has no table {missing}: its keys must be {_MODULES}; "
            f"found are {sorted(found)}."
        )
    states = _states_by_table(tables, optimizer_state or {})
    for name, config in tables.items():
        own = states.get(name, {})
        step = own.pop("step", None)
        _store(module, config, _array(found[name]), own, step)


def _store(
    module: TableModule,
    config: TableConfig,
    rows: np.ndarray,
    states: Mapping[str, np.ndarray],
    step: Any,
) -> None:
    name = config.name
    if rows.ndim != 2 or rows.shape[1] != config.dim:
        raise ValueError(
            f"table '{name}' has dim {config.dim}, but its weight {rows.shape}: make "
            "the config with embedding_dim as in the checkpoint."
        )
    coll, before = module.coll, module.stats()
    ids = _ids.ids(np.arange(len(rows)))
    state = coll.insert(
        module.get_state(),
        {name: ids},
        {name: rows},
        optimizer_state={name: states} if states else None,
        unique_ids=True,
    )
    if step is not None:
        state = coll.set_step(state, {name: int(step)})
    module.set_state(state)
    after = module.stats()
    lost = sum(
        after[f"{name}/{n}"] - before[f"{name}/{n}"] for n in ("evicted", "refused")
    )
    if lost:
        raise ValueError(
            f"table '{name}': {lost} of {len(rows)} rows found no place in a full "
            f"bucket of capacity {config.capacity}: give the table a capacity of about "
            f"{2 * len(rows)}."
        )


def _states_by_table(
    tables: Mapping[str, TableConfig], given: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    states: dict[str, dict[str, Any]] = {}
    for key, value in _flat(given).items():
        *path, last = key.split(".")
        owner = next((part for part in reversed(path) if part in tables), None)
        if owner is None:  # of another part of the model
            continue
        of_table = states.setdefault(owner, {})
        if last in _STEPS and np.size(_array(value)) == 1:
            of_table["step"] = np.int64(np.asarray(value).reshape(-1)[0])
            continue
        kept = tables[owner].states
        name = next((n for n in _ALIASES.get(last, ()) if n in kept), None)
        if name is None:
            raise ValueError(
                f"optimizer state '{key}' has no counterpart: table '{owner}' keeps "
                f"{sorted(kept)}, which are called {sorted({*_ALIASES, *_STEPS})} "
                "there. Give it the optimizer of the checkpoint, or leave it out."
            )
        of_table[name] = _array(value, tables[owner].states[name].dtype)
    return states


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        flat |= _flat(value, name) if isinstance(value, Mapping) else {name: value}
    return flat


def _array(value: Any, dtype: str = "float32") -> np.ndarray:
    """A NumPy array of what may be a torch tensor that wants gradients."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        # NumPy has no bfloat16.
        value = (value.float() if value.is_floating_point() else value).numpy()
    return np.asarray(value).astype(dtype)
