# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Static tables of a TorchRec checkpoint, as rows whose id is the row number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

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
    "momentum_1": ("sum_of_squares", "mu", "trace", "nu"),
    "momentum1": ("sum_of_squares", "mu", "trace", "nu"),
    "sum": ("sum_of_squares",),
    "exp_avg": ("mu",),
    "exp_avg_sq": ("nu",),
    "momentum_2": ("nu",),
    "momentum2": ("nu",),
    "row_counter": ("count",),
    "prev_iter": ("last",),
}
_WRITTEN = ("momentum_1", "momentum_2", "row_counter", "prev_iter")
_INITIAL = 1 << 14  # rows of one lookup
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


def to_torch_state_dict(
    module: TableModule,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Makes what ``load_torch_state_dict`` reads, for TorchRec or for another module.

    Args:
      module: a collection of this package. Its ids are row numbers: rows of ids from
        ``num_embeddings`` on are left out, and an id without a row has its initial one.

    Returns:
      Host arrays: the tables, float32[num_embeddings, dim] by
      ``embedding_bags.<table>.weight`` or ``embeddings.<table>.weight``; and states by
      ``<table>.weight.momentum_1``, with ``iter``, the number of updates.
      ``torch.from_numpy`` makes tensors of them.

    Raises:
      TypeError: the module is no collection.
    """
    if not hasattr(module, "routes"):
        raise TypeError(
            f"to_torch_state_dict takes a collection of jde.torchrec, not "
            f"{kind_of(module)}: call it for each collection of the model."
        )
    bags = hasattr(module, "is_weighted")
    where = "embedding_bags" if bags else "embeddings"
    weights, states = {}, {}
    for table in tables_of_rows(module):
        weights[f"{where}.{table.name}.weight"] = table.rows
        prefix = f"{table.name}.weight"
        states |= {f"{prefix}.{name}": x for name, x in table.states.items()}
        states[f"{prefix}.iter"] = np.array([table.updates], np.int64)
    return weights, states


class TableOfRows(NamedTuple):
    """Holds a table as torch has it: a row for each number.

    Attributes:
      name: of the table.
      rows: float32[num_embeddings, dim].
      states: [num_embeddings, dim] or [num_embeddings] each, by FBGEMM's names.
      updates: of the table.
    """

    name: str
    rows: np.ndarray
    states: dict[str, np.ndarray]
    updates: int


def tables_of_rows(module: Any) -> Iterator[TableOfRows]:
    """Reads the tables of a collection one by one, those of hash tables."""
    coll, state = module.coll, module.get_state()
    counts = coll.stats(state)
    for shown in module._shown:
        config = coll.engine.catalog.dynamic.get(shown.name)
        if config is None:
            continue  # cores of a tensor train are no rows
        count = shown.num_embeddings
        rows, kept = np.empty((count, config.dim), np.float32), np.zeros(count, bool)
        states = {
            name: np.full((count, *spec.shape), spec.initial, spec.dtype)
            for name, spec in config.states.items()
        }
        for chunk in coll.export(state, shown.name):
            own = (chunk.keys >= 0) & (chunk.keys < count)
            places = chunk.keys[own]
            rows[places], kept[places] = chunk.rows[own], True
            for name, array in chunk.optimizer_state.items():
                states[name][places] = array[own]
        for some in np.array_split(np.flatnonzero(~kept), -(-count // _INITIAL)):
            rows[some] = _initial_rows(coll, state, config, some)
        named = {_theirs(name, states): array for name, array in states.items()}
        yield TableOfRows(shown.name, rows, named, counts[f"{shown.name}/step"])


def _initial_rows(
    coll: Any, state: Any, config: TableConfig, numbers: np.ndarray
) -> np.ndarray:
    """Returns what ids without a row read in training, float32[n, dim]."""
    feature = config.feature_names[0]
    padded = np.full(_INITIAL, -1, np.int64)  # one program for all pieces
    padded[: len(numbers)] = numbers
    bags = padded[:, None] if config.pooling else padded
    found, _, _ = coll.lookup(
        state, {feature: _ids.ids(bags)}, insert=False, touch=False
    )
    return np.asarray(found[feature], np.float32)[: len(numbers)]


def _theirs(name: str, states: Mapping[str, Any]) -> str:
    """Returns the name that a state has in ``optimizer.state_dict()`` there."""
    own = (each for each in _WRITTEN if state_named(each, states) == name)
    return next(own, name)


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
