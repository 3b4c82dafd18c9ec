# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Features of which sums travel, where devices belong to several hosts.

A device sends its bags to one device of each host, the one with its place there. That
device has them pooled by the owners of its host, and returns one sum a bag. So bags and
sums cross between hosts once for each host, and not once for each owner. In the update
the gradient of a bag takes the way of the bag.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from jax_dynemb._src.engines.hash.exchange import (
    Input,
    PooledBatch,
    PooledFeature,
    exchange_gradients,
    find_sums,
    found_parts,
    links_of_sums,
    local_found_flags,
    lookup_sums,
    owner_gradients,
    owner_inputs,
    owner_residuals,
    parts_to_owners,
    pooled_outputs,
)
from jax_dynemb._src.engines.hash.layouts import Placement
from jax_dynemb._src.engines.hash.strategies.strategy import States
from jax_dynemb._src.ops import (
    FeatureGradient,
    FeatureResidual,
    TableState,
)
from jax_dynemb._src.spec import TableSpec

ByFeature = dict[str, jax.Array]
Outputs = dict[str, tuple[jax.Array, jax.Array | None]]  # rows and factors of a mean


@dataclasses.dataclass(frozen=True)
class HostBags:
    """Describes both exchanges.

    Attributes:
      across: between hosts; an owner there is a host.
      within: between the devices of a host, for bags that have come from all hosts.
    """

    across: PooledBatch
    within: PooledBatch

    @classmethod
    def of(
        cls,
        placement: Placement,
        tables: Sequence[TableSpec],
        inputs: Sequence[Input],
    ) -> HostBags:
        """Describes the exchanges of some features.

        Args:
          placement: of the collection.
          tables: those of the features, as a shard sees them.
          inputs: layouts of the features and their arrays; an update reads no arrays.
        """
        hosts, devices, _ = placement.hosts
        dtype = placement.exchange_dtype or "float32"
        outer = [
            PooledFeature(table, (one,), hosts)
            for table in tables
            for one, _ in inputs
            if one.table == table.name
        ]
        across = PooledBatch(
            outer,
            {one.feature: x for one, x in inputs},
            dtype,
            placement.links_between_hosts,
            first=None,
        )
        inner = [
            PooledFeature(
                dataclasses.replace(feature.table, dtype="float32"),
                (feature.owner_layout(),),
                devices,
            )
            for feature in outer
        ]
        links = links_of_sums(placement, placement.host_links, inner)
        host = jax.lax.axis_index(placement.axes) // devices
        # Numbers are rounded once, between hosts.
        return cls(across, PooledBatch(inner, {}, "float32", links, host * devices))

    @property
    def tables(self) -> list[TableSpec]:
        """Lists the tables with the dtype in which sums travel within a host."""
        return self.within.tables

    def arrive(self) -> PooledBatch:
        """Sends bags to each host; returns those that this device has pooled there."""
        parts = _to_owners(self.across)
        arrived = {one.feature: x for one, x in owner_inputs(self.across, parts)}
        return dataclasses.replace(self.within, inputs=arrived)

    def send(self) -> list[jax.Array]:
        """Sends bags to the owners; returns what these get."""
        return _to_owners(self.arrive())

    def lookup(
        self, sent: Sequence[jax.Array], states: States, scores: jax.Array
    ) -> tuple[Outputs, dict[str, list[FeatureResidual]], dict[str, TableState]]:
        """Looks up what ``send`` has sent, and inserts unseen ids.

        Args:
          sent: to this owner.
          states: of this device.
          scores: of ``tables``, one after the other.

        Returns:
          Rows and the factors of a mean, by feature. Then by table what its owner has
          pooled, and the states that changed.
        """
        inputs = owner_inputs(self.within, sent)
        found, sums, new = lookup_sums(self.within, states, inputs, scores)
        kept: dict[str, list[FeatureResidual]] = {}
        for one in owner_residuals(inputs, [each["slots"] for each in found]):
            kept.setdefault(one.layout.table, []).append(one)
        return self._outputs(sums), kept, new

    def find(
        self, states: States
    ) -> tuple[ByFeature, ByFeature, dict[str, TableState]]:
        """Looks up without insertion; returns rows, found and states."""
        within, across = self.arrive(), self.across
        inputs = owner_inputs(within, _to_owners(within))
        owned, sums, new = find_sums(within, states, inputs)
        outputs = self._outputs(sums)
        rows = {name: row for name, (row, _) in outputs.items()}
        parts = found_parts(within, inputs, [each["found"] for each in owned])
        here = local_found_flags(within, within.links.all_to_all(parts))
        layouts = [feature.owner_layout() for feature in across.features]
        pairs = [(one, within.inputs[one.feature]) for one in layouts]
        parts = found_parts(across, pairs, [here[one.feature] for one in layouts])
        found = local_found_flags(across, across.links.all_to_all(parts))
        return rows, found, new

    def _outputs(self, sums: Sequence[jax.Array]) -> Outputs:
        """Adds up the sums of owners, which have arrived, then those of hosts."""
        within, across = self.within, self.across
        wire = within.wire()
        of_owners = [wire.part(n, x) for n, x in enumerate(sums)]
        of_hosts = pooled_outputs(within, of_owners)
        parts = [
            of_hosts[feature.live[0].feature][0].reshape(
                feature.shards, feature.bags, feature.table.dim
            )
            for feature in across.features
        ]
        wire, arrived = across.wire(), across.exchange(parts)
        return pooled_outputs(across, [wire.part(n, x) for n, x in enumerate(arrived)])

    def owner_gradients(
        self,
        features: Sequence[FeatureGradient],
        kept: Mapping[str, Sequence[FeatureResidual]],
    ) -> list[FeatureGradient]:
        """Brings gradients of bags to the owners that have pooled them.

        Args:
          features: with gradients of this device.
          kept: what ``lookup`` returned.
        """
        across, within = self.across, self.within
        wire, arrived = across.wire(), exchange_gradients(across, features)
        gradients = [
            # Only the owners know ids and slots, and gradients travel without them.
            FeatureGradient(
                layout=feature.owner_layout(),
                gradients=wire.part(n, each, view).reshape(-1, feature.table.dim),
                ids=jnp.zeros((0, 2), jnp.uint32),
                slots=jnp.zeros(0, jnp.int32),
                offsets=None,
                weights=None,
                scale=None,
            )
            for n, (feature, each, view) in enumerate(
                zip(across.features, *arrived, strict=True)
            )
        ]
        owned = [one for t in within.tables for one in kept[t.name]]
        return owner_gradients(owned, *exchange_gradients(within, gradients))


def _to_owners(bags: PooledBatch) -> list[jax.Array]:
    return bags.links.all_to_all(parts_to_owners(bags))
