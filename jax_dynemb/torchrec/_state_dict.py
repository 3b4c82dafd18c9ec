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
from jax_dynemb._table_sizes import room_for
from jax_dynemb.config import TableConfig
from jax_dynemb.nnx.interface import TableModule

_WEIGHT = re.compile(r"(?:.*\.)?(?:embedding_bags|embeddings)\.([^.]+)\.weight$")
_MODULES = "embedding_bags.<table>.weight or embeddings.<table>.weight"
# What torch, TorchRec and FBGEMM call a state; the first that a table has is meant.
_ALIASES = {
    "momentum_1": ("sum_of_squares", "mu"),
    "momentum1": ("sum_of_squares", "mu"),
    "sum": ("sum_of_squares",),
    "exp_avg": ("mu",),
    "exp_avg_sq": ("nu",),
    "momentum_2": ("nu",),
    "momentum2": ("nu",),
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
        nested form of ``optimizer.state_dict()``.

    Raises:
      KeyError: a table of the module is not in the dict.
      TypeError: the module is no collection.
      ValueError: a shape does not fit, rows find no place, or a table is a tensor
        train.
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
    weights = {name: _weight(tables[name], found[name]) for name in tables}
    state = module.get_state()
    for name, config in tables.items():
        state = _stored(module, state, config, weights[name], states.get(name, {}))
    module.set_state(state)  # only now: a table that has no room changes no other one


def _weight(config: TableConfig, given: Any) -> np.ndarray:
    """Returns the rows of a table.

    Raises:
      ValueError: they are of another dim.
    """
    rows = _array(given)
    if rows.ndim != 2 or rows.shape[1] != config.dim:
        raise ValueError(
            f"table '{config.name}' has dim {config.dim}, but its weight {rows.shape}: "
            "make the config with embedding_dim as in the checkpoint."
        )
    return rows


def _stored(
    module: TableModule,
    state: Any,
    config: TableConfig,
    rows: np.ndarray,
    states: Mapping[str, np.ndarray],
) -> Any:
    """Returns the state with the rows of one table.

    Raises:
      ValueError: rows find no place, or push others out.
    """
    name, coll = config.name, module.coll
    before = coll.stats(state)
    new = coll.insert(
        state,
        {name: _ids.ids(np.arange(len(rows)))},
        {name: rows},
        optimizer_state={name: states} if states else None,
        unique_ids=True,
    )
    after = coll.stats(new)
    lost = sum(
        after[f"{name}/{n}"] - before[f"{name}/{n}"] for n in ("evicted", "refused")
    )
    if lost:
        raise ValueError(
            f"table '{name}': {lost} of {len(rows)} rows found no place in a full "
            f"bucket of capacity {config.capacity}, and nothing was stored: give the "
            f"table capacity={room_for(before[f'{name}/rows'] + len(rows))}."
        )
    return new


def _states_by_table(
    tables: Mapping[str, TableConfig], given: Mapping[str, Any]
) -> dict[str, dict[str, np.ndarray]]:
    states: dict[str, dict[str, np.ndarray]] = {}
    for key, value in _flat(given).items():
        *path, last = key.split(".")
        owner = next((part for part in reversed(path) if part in tables), None)
        if owner is None or last not in _ALIASES:
            continue
        kept = tables[owner].states
        name = next((n for n in _ALIASES[last] if n in kept), None)
        if name is None:
            raise ValueError(
                f"optimizer state '{key}' has no counterpart: table '{owner}' keeps "
                f"{sorted(kept)}. Give it the optimizer of the checkpoint."
            )
        states.setdefault(owner, {})[name] = _array(value)
    return states


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        flat |= _flat(value, name) if isinstance(value, Mapping) else {name: value}
    return flat


def _array(value: Any) -> np.ndarray:
    """A NumPy array of what may be a torch tensor that wants gradients."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    return np.asarray(value, np.float32)
