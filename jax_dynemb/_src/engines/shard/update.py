# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients into tables: fused optimizers in one call, optax ones over the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, UInt32

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import ops
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.ops import (
    KERNEL_POOLINGS,
    FeatureGradient,
    FeatureResidual,
    StampsOf,
    TableState,
    add_to_counter,
    as_words,
    padding,
)
from jax_dynemb._src.optim.interface import Fused, NoUpdate
from jax_dynemb._src.spec import AnyTable, TableSpec

States = dict[str, TableState]


class _Lookup(Protocol):
    @property
    def features(self) -> Mapping[str, Any]: ...


R = TypeVar("R", bound=_Lookup)  # the residual of a lookup


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RowGradients:
    """Holds the summed gradient of each row that a batch touched.

    Attributes:
      slots: int32[n], the row's slot at the place where the row first occurs among
        the table's ids; -1 everywhere else.
      grads: float32[n, dim]; zero where the slot is -1.
      keys: uint32[n, 2], the row's id as (low, high) words; ones, which is the
        padding, where the slot is -1.
    """

    slots: Int32[Array, " n"]
    grads: Float[Array, "n dim"]
    keys: UInt32[Array, "n 2"]

    def sum_of_squares(self) -> Float[Array, ""]:
        """Sums the squares of the gradients of all rows in float32."""
        # Entries with slot -1 are not promised to be zero inside a program.
        live = jnp.where((self.slots >= 0)[:, None], self.grads, 0)
        return jnp.sum(jnp.square(live.astype(jnp.float32)))


def row_gradients(
    features: Sequence[FeatureGradient],
    reduced: Mapping[str, tuple[jax.Array, jax.Array]],
) -> dict[str, RowGradients]:
    """Adds the keys to what ``ops.reduce`` returned of these features, by table."""
    result = {}
    for name, (slots, grads) in reduced.items():
        own = [as_words(f.ids) for f in features if f.layout.table == name]
        keys = jnp.where((slots >= 0)[:, None], jnp.concatenate(own), padding(()))
        result[name] = RowGradients(slots, grads, keys)
    return result


def pair_lookups(
    kind: type[R], residual: Any, d_rows: Any
) -> list[tuple[R, Mapping[str, Any]]]:
    """Residuals and their gradients, of one lookup or of equal lists of lookups.

    Args:
      kind: of the residuals of this collection.
      residual: of one lookup, or a list.
      d_rows: gradients by feature, or a list.

    Raises:
      TypeError: something else than a residual.
      ValueError: they do not belong together.
    """
    many = isinstance(residual, (list, tuple))
    if many != isinstance(d_rows, (list, tuple)) or (
        many and len(residual) != len(d_rows)
    ):
        raise ValueError(
            "residual and d_rows must be one of each, or two lists of equal length"
        )
    pairs = list(zip(residual, d_rows, strict=True)) if many else [(residual, d_rows)]
    for one, gradients in pairs:
        check_gradients(gradients)
        if not isinstance(one, kind):
            raise TypeError(
                "residual must be what lookup returned (rows, residual, state = "
                f"coll.lookup(...)), not {type(one).__name__}"
            )
        missing = set(gradients) ^ set(one.features)
        if missing:
            raise ValueError(
                f"d_rows must have the features of the lookup; {sorted(missing)} are "
                "in one of them only. Pass zeros for a feature without a gradient."
            )
    return pairs


def check_gradients(d_rows: Any) -> None:
    """Refuses gradients that are not by feature.

    Raises:
      TypeError: with what to write.
    """
    if not isinstance(d_rows, Mapping):
        raise TypeError(
            f"d_rows must be a dict by feature like the rows of the lookup, not "
            f"{kind_of(d_rows)}: write {{feature: gradient}}, or take jax.grad with "
            "respect to rows as lookup returned them."
        )


def check_table(table: AnyTable, residual: FeatureResidual, name: str) -> None:
    """Refuses the residual of a feature that another collection has looked up.

    Args:
      table: of the feature in this collection.
      residual: of the feature.
      name: of the arrays of the table, as kernels know them.

    Raises:
      ValueError: it is of another table, or its rows were pooled in another way.
    """
    layout = residual.layout
    pooling = KERNEL_POOLINGS[table.pooling]
    # A layer that differentiates its weights looks rows up one by one and pools them.
    if layout.table == name and layout.pooling in (pooling, "none"):
        return
    raise ValueError(
        f"Feature '{layout.feature}': the residual is of table '{layout.table}' with "
        f"pooling {layout.pooling!r}, but here the feature is of '{name}' with "
        f"{pooling!r}. Pass the residual that this collection's lookup returned."
    )


def step_of(state: TableState, row: int = 0) -> Int32[Array, ""]:
    """Updates of a table so far, as optax schedules count them.

    Args:
      state: its arrays.
      row: of their counters.
    """
    place = _ffi.code("counters", "step")
    return state.counters[row, place, 0].astype(jnp.int32)


def update_rows(
    used: Sequence[TableSpec],
    states: Mapping[str, TableState],
    features: Sequence[FeatureGradient],
    hyper: Mapping[str, Mapping[str, Any]],
    stamps: StampsOf | None,
) -> States:
    """One update of the rows of these features, by each table's own optimizer.

    Args:
      used: the tables of the features.
      states: by name.
      features: gradients and where they belong.
      hyper: hyper-parameters by table, instead of the optimizers' own.
      stamps: of the lookups; None if the slots were found in these very states.
    """
    used = [t for t in used if t.trainable and not isinstance(t.optimizer, NoUpdate)]
    fused = [t for t in used if t.optimizer.kind]
    others = [t for t in used if not t.optimizer.kind]
    new = dict(states)
    for tables in by_loop(fused):
        numbers = _hyper_parameters(tables, states, hyper)
        new |= ops.update(tables, new, _of(features, tables), numbers, stamps)
    if others:
        reduced, reduced_states = ops.reduce(
            others, new, _of(features, others), counts_step=True, stamps=stamps
        )
        new |= reduced_states
        for table in others:
            place = table.state_name
            new[place] = _bridge(table, new[place], *reduced[table.name])
    return new


def _of(
    features: Sequence[FeatureGradient], tables: Sequence[TableSpec]
) -> list[FeatureGradient]:
    names = {table.name for table in tables}
    return [f for f in features if f.layout.table in names]


def _hyper_parameters(
    tables: Sequence[TableSpec],
    states: Mapping[str, TableState],
    given: Mapping[str, Mapping[str, Any]],
) -> Float[Array, "tables hyper"]:
    rows = []
    for table in tables:
        row = table.first_row
        step = step_of(states[table.state_name], row)
        own = dict(given.get(table.name, {}))
        check_hyper(table, own)
        rows.append(_operand_row(table, _own_numbers(table, step) | own))
    return jnp.stack([jnp.stack(row) for row in rows])


def check_hyper(table: AnyTable, given: Mapping[str, Any]) -> None:
    """Refuses numbers of a call that the table's optimizer would not use.

    Args:
      table: its optimizer is a fused one.
      given: by name, instead of the optimizer's own.

    Raises:
      ValueError: the formula has no such number, or its loop clips no rows.
    """
    clips, names = _ffi.constants()["row_hyper"], hyper_names(table)
    kind = table.optimizer.kind
    if _is_tuned(table) and (lost := sorted({*given} & {*clips})):
        raise ValueError(
            f"Table '{table.name}': the loop of jde.optim.{kind} clips no rows, so "
            f"{lost} cannot be given to a call. Make the optimizer with a limit, "
            f"jde.optim.{kind}(..., {lost[0]}=1e30), and give calls another one."
        )
    if unknown := sorted({*given} - {*names, *clips}):
        raise ValueError(
            f"Table '{table.name}': {unknown} are not hyper-parameters; known ones are "
            f"{list(names)}."
        )


def _own_numbers(table: TableSpec, step: jax.Array) -> dict[str, Any]:
    """The numbers of the optimizer, the first value of a state as it is stored.

    FTRL knows a row without an update by it, also where the state is bfloat16.
    """
    numbers = table.optimizer.hyper_parameters(step)
    first = "initial_accumulator_value"
    return numbers | ({first: table.states["n"].initial} if first in numbers else {})


def by_loop(tables: Sequence[TableSpec]) -> list[list[TableSpec]]:
    """Tables of the tuned loops, and those of the loop for all optimizers."""
    tuned = [t for t in tables if _is_tuned(t)]
    others = [t for t in tables if not _is_tuned(t)]
    return [some for some in (tuned, others) if some]


def _is_tuned(table: AnyTable) -> bool:
    return isinstance(table.optimizer, Fused) and not table.state_dtype


def hyper_names(table: AnyTable) -> tuple[str, ...]:
    """The hyper-parameters of a table's fused optimizer, as a user gives them."""
    if isinstance(table.optimizer, Fused):
        return table.optimizer.known_numbers
    return tuple(_ffi.constants()["optimizer_hyper"][table.optimizer.kind])


def _operand_row(table: TableSpec, numbers: Mapping[str, Any]) -> list[jax.Array]:
    constants = _ffi.constants()
    if _is_tuned(table):
        names = list(constants["hyper_parameters"])
    else:  # rows of different kinds have one length
        own = constants["optimizer_hyper"][table.optimizer.kind]
        names = [*constants["row_hyper"], *own]
        names += [""] * (constants["any_hyper"] - len(names))
    # What a tuned loop always does is an option of the shared one.
    numbers = {"corrects": 1.0} | dict(numbers)
    return [jnp.asarray(numbers.get(name, 0.0), jnp.float32) for name in names]


def _bridge(
    table: TableSpec, state: TableState, slots: jax.Array, grads: jax.Array
) -> TableState:
    """Reads the touched rows, lets the optimizer update them, writes them back."""
    if table.nonfinite == "skip":
        bad = (slots >= 0) & ~jnp.isfinite(grads).all(axis=-1)
        slots = jnp.where(bad, -1, slots)
        grads = jnp.where(bad[:, None], 0, grads)
        state = add_to_counter(state, table.first_row, "nonfinite", jnp.sum(bad))
    rows, state = ops.gather(table, state, slots)
    states = {name: rows[name] for name in table.states}
    values, states, extra = table.optimizer.apply(
        rows["values"], grads, states, state.extra
    )
    written = {"values": values, **states}
    state = ops.scatter(table, state, slots, written, rounds=True)
    return dataclasses.replace(state, extra=tuple(extra))
