# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the residuals of some lookups belong to a state of a tensor train."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.ops import check_rows, fit_together, is_readable
from jax_dynemb._src.tt import lineage as _lineage
from jax_dynemb._src.tt.config import TTConfig
from jax_dynemb._src.tt.rows import Numbers
from jax_dynemb._src.tt.state import TTResidual, TTState


def sums_of(residual: TTResidual, numbers: Numbers) -> tuple[jax.Array, jax.Array]:
    """Hashes what a lookup of a feature was given, and counts ids out of range."""
    given = numbers.rows, residual.offsets, residual.weights
    return _lineage.digest_and_count(numbers.outside, *given)


def fitting(state: TTState, residuals: Sequence[TTResidual]) -> jax.Array:
    """Tells whether a state is one that some lookups of its table led to, bool[]."""
    rows = [stamp[..., :1, :].reshape(-1, 8) for stamp in _stamps(residuals)]
    if not rows:
        return jnp.ones((), bool)
    return fit_together(jnp.concatenate(rows), _lineage.latest(state.counters))


def check_moments(
    config: TTConfig, state: TTState, residuals: Sequence[TTResidual], call: str
) -> None:
    """Refuses residuals of another state, where both can be read, with what to pass."""
    stamps = _stamps(residuals)
    if not stamps or not all(map(is_readable, (state.counters, *stamps))):
        return
    rows = [np.asarray(stamp)[..., 0, :].reshape(-1, 8) for stamp in stamps]
    own = _lineage.latest(np.asarray(state.counters))
    check_rows(np.concatenate(rows), own, config.name, call)


def only_if(fits: jax.Array, new: TTState, old: TTState, rows: jax.Array) -> TTState:
    """Returns the new state if it fits, else the old one with rows uint32[] as lost."""
    chosen = jax.tree.map(lambda a, b: jnp.where(fits, a, b), new, old)
    return chosen.add_counts(lost_updates=jnp.where(fits, jnp.uint32(0), rows))


def _stamps(residuals: Sequence[TTResidual]) -> list[jax.Array]:
    return [each.stamp for each in residuals if each.stamp is not None]
