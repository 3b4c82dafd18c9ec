# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Declares a strategy: what travels between devices, and what one of them runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from jax_dynemb._src.engines.hash.exchange import Input
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureResidual,
    Stamps,
    StampsOf,
    TableState,
)
from jax_dynemb._src.spec import TableSpec

States = Mapping[str, TableState]
ByFeature = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Update:
    """Updates the tables of some gradients once: (states, gradients) -> states.

    Attributes:
      run: the function; its third argument are stamps, or None.
      stamps: of the lookups.
    """

    run: Callable[
        [States, list[FeatureGradient], StampsOf | None], dict[str, TableState]
    ]
    stamps: StampsOf

    def __call__(
        self, states: States, features: list[FeatureGradient]
    ) -> dict[str, TableState]:
        return self.run(states, features, self.stamps)

    def of_found(
        self, states: States, features: list[FeatureGradient]
    ) -> dict[str, TableState]:
        """Updates rows whose slots were found in these very states."""
        return self.run(states, features, None)


@dataclasses.dataclass(frozen=True)
class LookupGradients:
    """Holds the gradients of one lookup on one device, or of several by ``lax.scan``.

    Attributes:
      residuals: of its features; several lookups have leading axes here.
      features: the same with their gradients, flat.
      kept: ``LookupResult.kept``, with these leading axes.
    """

    residuals: list[FeatureResidual]
    features: list[FeatureGradient]
    kept: Any

    @property
    def stacked(self) -> int:
        """Counts the leading axes that ``lax.scan`` has added."""
        return self.residuals[0].slots.ndim - 1


def features_of(lookups: Sequence[LookupGradients]) -> list[FeatureGradient]:
    """Lists the gradients of all lookups."""
    return [feature for one in lookups for feature in one.features]


@dataclasses.dataclass(frozen=True)
class LookupResult:
    """Holds the result of a training lookup on one device.

    Attributes:
      rows: by feature, one row a bag, or one an id without pooling.
      features: by feature, what the update needs of this device's ids.
      kept: what the update of this lookup need not exchange again: a pytree; None:
        nothing travels.
      states: those that changed.
      stamps: of the tables; None: the states have them.
    """

    rows: ByFeature
    features: dict[str, FeatureResidual]
    kept: Any
    states: dict[str, TableState]
    stamps: Stamps | None = None


@dataclasses.dataclass(frozen=True)
class FindResult:
    """Holds the result of a serving lookup on one device.

    Attributes:
      rows: by feature, as in ``LookupResult``.
      found: by feature, uint8[num_ids], whether an id is stored.
      states: those that were read; only counters may differ.
    """

    rows: ByFeature
    found: ByFeature
    states: dict[str, TableState]


class Strategy(Protocol):
    """Lookups and updates of the tables that are sharded in one way.

    Modules of this package implement it. All arguments are those of one device: its
    ``tables`` as a shard sees them, its features and its shard of the states.
    """

    def route(
        self,
        placement: Any,
        tables: Sequence[TableSpec],
        inputs: Sequence[Input],
    ) -> Any:
        """Sends ids to their owners without a table; a pytree, None for nothing."""
        ...

    def lookup(
        self,
        placement: Any,
        tables: Sequence[TableSpec],
        inputs: Sequence[Input],
        states: States,
        scores: Mapping[str, jax.Array],
        sent: Any = None,
    ) -> LookupResult:
        """Looks up rows and inserts unseen ids.

        Args:
          placement: of the collection.
          tables: those of the features.
          inputs: the features of this device.
          states: of this device.
          scores: one for each table.
          sent: what ``route`` returned for this batch; None: nothing was sent ahead.
        """
        ...

    def find(
        self,
        placement: Any,
        tables: Sequence[TableSpec],
        inputs: Sequence[Input],
        states: States,
    ) -> FindResult:
        """Looks up rows without insertion."""
        ...

    def touch(
        self,
        placement: Any,
        tables: Sequence[TableSpec],
        inputs: Sequence[Input],
        states: States,
        scores: Mapping[str, jax.Array],
    ) -> dict[str, TableState]:
        """Gives rows that are stored the score of a use now; no rows travel.

        Args:
          placement: of the collection.
          tables: those of the features, which insert nothing.
          inputs: the features of this device.
          states: of this device.
          scores: one for each table.
        """
        ...

    def apply_gradients(
        self,
        placement: Any,
        tables: Sequence[TableSpec],
        lookups: Sequence[LookupGradients],
        states: States,
        update: Update,
        all_fits: bool,
    ) -> dict[str, TableState]:
        """Updates every row that the lookups touched on any device, once.

        A gradient whose id has lost the row that its lookup returned is left out, and
        counted.

        Args:
          placement: of the collection.
          tables: those of the features.
          lookups: gradients of this device.
          states: of this device.
          update: updates tables by their optimizers.
          all_fits: make room for any skew, so that ``update`` runs once.
        """
        ...

    def for_update(
        self,
        placement: Any,
        table: TableSpec,
        state: TableState,
        hyper: Mapping[str, jax.Array],
    ) -> TableSpec:
        """Returns the spec that ``update`` takes for a table.

        Args:
          placement: of the collection.
          table: as a shard sees it.
          state: before the update.
          hyper: hyper-parameters of this step that are not the optimizer's own.
        """
        ...
