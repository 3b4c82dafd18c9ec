# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of given slots on a mesh, for optimizers of the user's own."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from jax_dynemb import ops
from jax_dynemb.engines.mesh._mesh_tables import MeshTables
from jax_dynemb.engines.mesh._stacks import states_of
from jax_dynemb.ops import TableState

States = dict[str, TableState]


def gather(
    tables: MeshTables, state: States, slots: Mapping[str, jax.Array]
) -> tuple[dict[str, dict[str, jax.Array]], States]:
    """See ``Tables.gather``; slots of each shard, as ``reduce_gradients`` gives."""
    placement = tables.here()
    used = [placement.stack(name) for name in slots]

    def body(state, slots):
        rows, new = {}, {}
        for t in used:
            rows[t.name], new[t.name] = ops.gather(
                t.local, state[t.name], slots[t.name]
            )
        return rows, new

    specs, per_slot = placement.state_specs(used), placement.slot_specs(used)
    run = placement.mapped(body, (specs, per_slot), (per_slot, specs))
    rows, new = run(states_of(state, used), dict(slots))
    return rows, dict(state) | new


def scatter(
    tables: MeshTables,
    state: States,
    slots: Mapping[str, jax.Array],
    rows: Mapping[str, Mapping[str, jax.Array]],
) -> States:
    """See ``Tables.scatter``."""
    placement = tables.here()
    used = [placement.stack(name) for name in slots]

    def body(state, slots, rows):
        return {
            t.name: ops.scatter(t.local, state[t.name], slots[t.name], rows[t.name])
            for t in used
        }

    specs, per_slot = placement.state_specs(used), placement.slot_specs(used)
    by_name = {t.name: dict.fromkeys(rows[t.name], per_slot[t.name]) for t in used}
    run = placement.mapped(body, (specs, per_slot, by_name), specs)
    given = {t.name: dict(rows[t.name]) for t in used}
    return dict(state) | run(states_of(state, used), dict(slots), given)
