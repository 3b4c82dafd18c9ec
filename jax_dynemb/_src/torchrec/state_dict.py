# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Static tables of a TorchRec checkpoint, as rows whose id is the row number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jax_dynemb._src import ids as _ids
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.nnx.interface import TableModule
from jax_dynemb._src.table_sizes import room_for

_WEIGHT = re.compile(r"(?:.*\.)?(?:embedding_bags|embeddings)\.([^.]+)\.weight$")
_MODULES = "embedding_bags.<table>.weight or embeddings.<table>.weight"
# What torch, TorchRec and FBGEMM call a state; the first that a table has is meant.
_ALIASES = {
    "momentum_1": ("sum_of_squares", "mu", "trace"),
    "momentum1": ("sum_of_squares", "mu", "trace"),
    "sum": ("sum_of_squares",),
    "exp_avg": ("mu",),
    "exp_avg_sq": ("nu",),
    "momentum_2": ("nu",),
    "momentum2": ("nu",),
    "row_counter": ("count",),
    "prev_iter": ("last",),
}
_UPDATES = ("iter", "step")  # how many there were, one number for a table
# Beside states, what a flat optimizer.state_dict() has of a table.
_NO_STATES = ("lr", "learning_rate")


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
        nested form of ``optimizer.state_dict()``. ``iter`` or ``step`` is the number
        of updates that a table has had, ``row_counter`` and ``prev_iter`` are those
        of a ``jde.optim.Counter``.

    Raises:
      KeyError: a table of the module is not in the dict.
      TypeError: the module is no collection.
      ValueError: a shape does not fit, rows find no place, a state of a table is not
        known, or a table is a tensor train.
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
    states, updates = _states_by_table(tables, optimizer_state or {})
    weights = {name: _weight(tables[name], found[name]) for name in tables}
    state = module.get_state()
    for name, config in tables.items():
        state = _stored(module, state, config, weights[name], states.get(name, {}))
    # Only now: a table that has no room changes no other one.
    module.set_state(module.coll.set_step(state, updates))


def _weight(config: TableConfig, given: Any) -> np.ndarray:
    """Returns the rows of a table; ValueError if they are of another dim."""
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
    """Returns the state with one table's rows; ValueError if one finds no place."""
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
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, int]]:
    """States by table, and the number of updates by table."""
    states: dict[str, dict[str, np.ndarray]] = {}
    updates: dict[str, int] = {}
    for key, value in _flat(given).items():
        *path, last = key.split(".")
        owner = next((part for part in reversed(path) if part in tables), None)
        if owner is None or last in _NO_STATES:
            continue
        if last in _UPDATES:
            updates[owner] = _updates(key, value)
            continue
        name, dtype = _state_of(tables[owner], key, last)
        states.setdefault(owner, {})[name] = _numbers(value).astype(dtype)
    return states, updates


def _state_of(config: TableConfig, key: str, last: str) -> tuple[str, str]:
    """Returns our name and the dtype of a state; ValueError if there is none."""
    kept = config.states
    name = state_named(last, kept)
    if name is None:
        known = "" if last in _ALIASES else f" Known are {[*_ALIASES, *_UPDATES]}."
        raise ValueError(
            f"optimizer state '{key}' has no counterpart: table '{config.name}' keeps "
            f"{sorted(kept)}. Give it the optimizer of the checkpoint, or leave the "
            f"state out.{known}"
        )
    return name, kept[name].dtype


def state_named(theirs: str, kept: Iterable[str]) -> str | None:
    """Returns our name of a state of torch's, TorchRec's or FBGEMM's; None: unknown."""
    return next((n for n in (*_ALIASES.get(theirs, ()), theirs) if n in kept), None)


def _updates(key: str, value: Any) -> int:
    number = _numbers(value)
    if number.size != 1 or not 0 <= number.item() < 2**63:
        raise ValueError(
            f"optimizer state '{key}' must be one number, the updates of the table, "
            f"not an array of shape {number.shape}."
        )
    return int(number.item())


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        flat |= _flat(value, name) if isinstance(value, Mapping) else {name: value}
    return flat


def _array(value: Any, dtype: str = "float32") -> np.ndarray:
    """A NumPy array of what may be a torch tensor that wants gradients."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    return np.asarray(value, np.float32)


def _numbers(value: Any) -> np.ndarray:
    """Keeps whole numbers, since float32 can not hold every count of updates."""
    floats = not hasattr(value, "is_floating_point") or value.is_floating_point()
    if hasattr(value, "detach"):
        value = _array(value) if floats else value.detach().cpu().numpy()
    return np.asarray(value)
