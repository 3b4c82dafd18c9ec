# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a caller hands in: its kind checked, its features in the order of the configs.

JAX sorts the keys of a plain dict wherever the dict crosses a jit, grad or scan. So the
order of the caller's dict means nothing here, and what is returned by feature is an
OrderedDict, whose order JAX keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import jax
from jax.core import Tracer

from jax_dynemb.config import TableConfig
from jax_dynemb.jagged import Jagged
from jax_dynemb.ops._state import TableState

if TYPE_CHECKING:
    from jax_dynemb.table._declared import Declared

T = TypeVar("T")


def configs_of(tables: Any) -> tuple[TableConfig, ...]:
    """The configs that ``Tables`` was given.

    Raises:
      TypeError: it is no list of ``TableConfig``.
    """
    if isinstance(tables, TableConfig):
        raise TypeError(
            f"Tables takes a list of TableConfig, not a single one: write "
            f"jde.Tables([config]) for table '{tables.name}'. Several go into one list."
        )
    if isinstance(tables, Mapping):
        raise TypeError(
            "Tables takes a list of TableConfig, not a dict: write "
            "jde.Tables(list(configs.values())). Each config has its name inside."
        )
    if not isinstance(tables, Iterable):
        raise TypeError(
            f"Tables takes a list of TableConfig, not {_kind(tables)}: write "
            "jde.Tables([jde.TableConfig(name=..., dim=..., capacity=...)])."
        )
    configs = tuple(tables)
    for config in configs:
        if not isinstance(config, TableConfig):
            raise TypeError(
                f"Tables takes a list of TableConfig, but it has {_kind(config)} in "
                "it: write jde.TableConfig(name=..., dim=..., capacity=...) for each."
            )
    return configs


def check_mesh(mesh: Any) -> None:
    """Refuses a second table, or an axis, where the mesh belongs.

    Raises:
      TypeError: it is no mesh.
    """
    if mesh is not None and not hasattr(mesh, "axis_names"):
        raise TypeError(
            f"mesh must be a jax.sharding.Mesh, not {_kind(mesh)}. All tables go into "
            "one list: jde.Tables([first, second], mesh=...)."
        )


def by_feature(tables: Declared, ids: Any) -> dict[str, Any]:
    """The ids of a lookup in the order of the configs.

    Args:
      tables: the collection.
      ids: by feature.

    Raises:
      TypeError: something else than a dict of ids.
      ValueError: unknown features, or none at all.
    """
    _check_mapping(ids, "ids", "feature", tables.features)
    for feature in ids:
        tables.config_of(feature)
    if not ids:
        raise ValueError("ids must have one feature or more")
    ordered = in_order(tables, ids)
    for feature, each in ordered.items():
        check_ids(tables.config_of(feature), feature, each)
    return ordered


def in_order(tables: Declared, values: Mapping[str, T]) -> OrderedDict[str, T]:
    """What is given by feature, in the order of the configs and their feature_names."""
    return OrderedDict((f, values[f]) for f in tables.features if f in values)


def by_table(tables: Declared, ids: Any, call: str) -> dict[str, Any]:
    """The ids of an insert or erase, checked.

    Raises:
      TypeError: something else than a dict of ids.
    """
    _check_mapping(ids, f"{call}: ids", "table", tables.tables)
    for name, each in ids.items():
        if name in tables.tables:
            check_ids(tables.tables[name], name, each)
    return dict(ids)


def check_ids(config: TableConfig, feature: str, ids: Any) -> None:
    """Refuses what is no array of ids, and pairs of words for 32-bit keys.

    Nothing tells uint32[n, 2] with two 32-bit ids a row from n ids of ``jde.ids``.

    Raises:
      TypeError: with what to write.
    """
    if isinstance(ids, TableState):
        raise TypeError(
            f"'{feature}' of ids is a TableState: the state comes first, "
            "coll.lookup(state, ids)."
        )
    if isinstance(ids, Mapping):
        raise TypeError(
            f"ids of '{feature}' are a dict, but must be an array of ids or a Jagged: "
            "give the value for this feature alone."
        )
    values = ids.values if isinstance(ids, Jagged) else ids
    shape = getattr(values, "shape", ())
    is_pairs = getattr(values, "dtype", None) == "uint32" and shape[-1:] == (2,)
    if config.key_dtype == "int32" and is_pairs:
        raise TypeError(
            f"Feature '{feature}': uint32{list(shape)} reads as ids of jde.ids, which "
            f"are pairs of words, but table '{config.name}' has key_dtype='int32'. "
            "Drop key_dtype to use jde.ids; pass genuine 32-bit ids in rows of two as "
            "int32 (uint32 ids from 2**31 on: padded to three a row)."
        )


def check_states(tables: Declared, state: Any, call: str) -> None:
    """Refuses a state that is no dict of tables.

    Raises:
      TypeError: with what to write.
    """
    if isinstance(state, tuple):
        raise TypeError(
            f"{call}: state is a tuple of {len(state)}. The new state is the last "
            "value that a call returns: rows, residual, state = coll.lookup(...); "
            "rows, found, state = coll.find(...)."
        )
    if isinstance(state, TableState):
        name = next(iter(tables.tables))
        raise TypeError(
            f"{call}: state is the TableState of one table; pass the dict of all that "
            f"init returns, e.g. {{'{name}': state}}."
        )
    if not isinstance(state, Mapping):
        raise TypeError(
            f"{call}: state must be the dict of TableState that coll.init() returns, "
            f"not {_kind(state)}."
        )
    arrays = {tables.state_name(name) for name in tables.tables}
    if not arrays & set(state):
        raise TypeError(
            f"{call}: state has {sorted(map(str, state))}, but the arrays of these "
            f"tables are {sorted(arrays)}. The state comes before the ids: "
            "coll.lookup(state, ids)."
        )


def check_values(state: Any, call: str) -> None:
    """Refuses tracers where a call reads numbers on the host.

    Raises:
      TypeError: with where to call it.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state)):
        raise TypeError(
            f"{call} reads the tables on the host, so it cannot stand inside jax.jit, "
            f"scan or grad. Return the state from the step and call {call} on it "
            "afterwards, once in a while."
        )


def check_gradients(d_rows: Any) -> None:
    """Refuses gradients that are not by feature.

    Raises:
      TypeError: with what to write.
    """
    if not isinstance(d_rows, Mapping):
        raise TypeError(
            f"d_rows must be a dict by feature like the rows of the lookup, not "
            f"{_kind(d_rows)}: write {{feature: gradient}}, or take jax.grad with "
            "respect to rows as lookup returned them."
        )


def _check_mapping(ids: Any, what: str, key: str, known: Iterable[str]) -> None:
    if isinstance(ids, Mapping):
        return
    names = list(known)
    raise TypeError(
        f"{what} must be a dict by {key}, not {_kind(ids)}: write {{'{names[0]}': ids}}"
        f". The {key}s of these tables are {names}."
    )


def _kind(x: Any) -> str:
    """How a message names a value."""
    if hasattr(x, "dtype") and hasattr(x, "shape"):
        return f"an array {x.dtype}{list(x.shape)}"
    if isinstance(x, type):
        return f"the class {x.__name__}"
    return f"a {type(x).__name__}" if not isinstance(x, str) else repr(x)
