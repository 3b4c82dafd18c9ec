# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Declares what the engine of any kind of table does.

``jde.Tables`` checks the arguments before. What hash tables can do beside is in
``HashEngine`` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

import jax
import numpy as np

from jax_dynemb._src.engines.catalog import Catalog
from jax_dynemb._src.engines.flags import TOUCHING, TRAINING, LookupFlags
from jax_dynemb._src.engines.score_inputs import ScoreInputs
from jax_dynemb._src.engines.stats_future import StatsFuture
from jax_dynemb._src.ops import TableState

if TYPE_CHECKING:
    from jax_dynemb._src.engines.shard import Query
    from jax_dynemb._src.rows import Exported

States = dict[str, Any]


class LookupEngine(Protocol):
    """The tables of a collection, where they are, and how operations reach them.

    Engines are static and hashable, and hold no arrays: a state comes in and goes out.
    Arguments and results are those of the methods of ``jde.Tables`` with the same
    names. States are by the name of their arrays, see ``state_name``.
    """

    @property
    def catalog(self) -> Catalog[Any]:
        """Tables and features by name."""
        ...

    @property
    def placement(self) -> Any:
        """Returns the mesh and the places of tables; None on one device."""
        ...

    @property
    def share_arrays(self) -> bool | None:
        """Returns whether tables share arrays on one device; False elsewhere."""
        ...

    def with_configs(self, configs: Iterable[Any]) -> Self:
        """Holds other tables on the same devices; equal names stay at their places."""
        ...

    # ---- where arrays are --------------------------------------------------------

    def state_name(self, table: str) -> str:
        """Names the arrays of a state that hold the table."""
        ...

    def extent(self, table: str) -> Mapping[str, Any]:
        """Describes the table's part of its arrays by fields of ``rows.Schema``."""
        ...

    # ---- whole tables ------------------------------------------------------------

    def init(self, seed: jax.Array) -> States:
        """Makes empty tables; ``seed`` is two words."""
        ...

    def empty(self, table: str, like: TableState) -> TableState:
        """Makes the arrays of one table without rows, sharded as ``like`` is."""
        ...

    def clear(self, state: States, tables: Collection[str]) -> States:
        """Removes the rows of some tables; counters start again, seeds stay."""
        ...

    def stats_async(self, state: States) -> StatsFuture:
        """Starts to copy counters to the host: numbers by "table/name"."""
        ...

    def compile_stats(self, types: States) -> list[Any]:
        """Compiles what ``stats_async`` runs for arrays of these types."""
        ...

    def export(self, state: States, table: str, query: Query) -> Iterator[Exported]:
        """Streams the live rows of a table to the host."""
        ...

    def index(
        self, state: States, table: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Streams keys int64[n] and scores uint64[n] of the live rows."""
        ...

    # ---- a step ------------------------------------------------------------------

    def route(self, ids: Mapping[str, Any], weights: Mapping[str, Any]) -> Any:
        """Sends ids to the devices that own them; returns None where none travel."""
        ...

    def pack(self, ids: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Joins ids into one array, for ``Routed``: the rest by feature, and those."""
        ...

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        score_inputs: ScoreInputs,
        sent: Any = None,
        flags: LookupFlags = TRAINING,
    ) -> tuple[dict[str, jax.Array], Any, States]:
        """Returns rows, inserts unseen ids.

        ``score_inputs`` moves scores; ``sent`` is what ``route`` returned for this
        batch, if it was called.
        """
        ...

    def touch(
        self,
        state: States,
        ids: Mapping[str, Any],
        score_inputs: ScoreInputs,
        flags: LookupFlags = TOUCHING,
    ) -> States:
        """Gives the rows that are there the score of a use now."""
        ...

    def find(
        self, state: States, ids: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        """Returns rows and whether each id is stored; changes nothing."""
        ...

    def prefetch(self, state: States, ids: Mapping[str, Any]) -> States:
        """Brings rows of coming ids into device memory; changes no result."""
        ...

    def flush(self, state: States) -> States:
        """Brings the home records of tiered tables up to date."""
        ...

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        hyper: Mapping[str, Mapping[str, Any]],
    ) -> States:
        """Updates every row that the lookups touched; ``hyper`` is by table."""
        ...

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, Any], States]:
        """Sums the gradients of each distinct row, without an update."""
        ...

    def weight_gradients(
        self, state: States, residual: Any, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        """Returns gradients with respect to the weights of a lookup."""
        ...
