# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a training or serving step calls: lookups and updates."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jax_dynemb.config import ScoreStrategy, TableConfig
from jax_dynemb.ops import _lookup
from jax_dynemb.ops._layout import FeatureInput, FeatureLayout, prepare
from jax_dynemb.ops._offsets import count_malformed
from jax_dynemb.ops._residual import Residual, make_residual
from jax_dynemb.optim._numbers import check_number
from jax_dynemb.sharding import _collection as _on_mesh
from jax_dynemb.sharding._residual import ShardedResidual
from jax_dynemb.table import _given, _scores, _update, _weights
from jax_dynemb.table._declared import Declared, States
from jax_dynemb.table._update import RowGradients


class Steps(Declared):
    """Lookups, and updates of what they looked up."""

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        scores: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, jax.Array], Residual | ShardedResidual, States]:
        """Training lookup: an unseen id gets a row.

        Args:
          state: the tables.
          ids: by feature: uint32[..., 2] from ``jde.ids``, a 64-bit jax Array, or a
            ``Jagged``. -1 is padding: a zero row, no insert, no gradient.
          weights: by feature, float[...] in the shape of the ids: factors of the
            rows of a pooled feature.
          scores: by table, a whole number from 0 to 2**31 - 1: what a CUSTOMIZED table
            scores the rows of this lookup with. A traced uint32 scalar above that
            counts as 2**31 - 1.

        Returns:
          Rows by feature: dtype[..., dim], one for each id, or for each bag where the
          table pools (the last axis of ids with two axes or more; ids with one axis
          are bags of one); the residual for ``apply_gradients``; and the new state.
          Rows are an OrderedDict in the order of the configs and their
          feature_names, whatever the order of ``ids``; jit and grad keep it.

        Raises:
          TypeError: 32-bit ids for a table with 64-bit keys, or not a dict of ids.
          ValueError: unknown feature or table, a shape does not fit, or a score is
            out of range.
          NotImplementedError: under ``jax.vmap``.
        """
        _given.check_states(self, state, "lookup")
        ids = _given.by_feature(self, ids)
        given = self._scores(scores or {})
        if self.placement is not None:
            weights = self._check_weights(ids, weights)
            return _on_mesh.lookup(self, state, ids, weights, given)
        inputs = self._prepare(ids, weights)
        used = self._used(inputs)
        numbers = jnp.stack([given[t.name] for t in used])
        outputs, new, stamps = _lookup.lookup(used, state, inputs, numbers)
        cut = [
            (layout.table, given.malformed)
            for layout, given in inputs
            if given.malformed is not None
        ]
        new |= count_malformed(used, new, cut)
        rows, residuals = OrderedDict(), OrderedDict()
        for (layout, given), output in zip(inputs, outputs, strict=True):
            rows[layout.feature] = self._shaped(layout, output["rows"])
            residuals[layout.feature] = make_residual(layout, given, output)
        return rows, Residual(residuals, stamps), state | new

    def find(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array], States]:
        """Serving lookup: changes nothing.

        Args:
          state: the tables.
          ids: as for ``lookup``.
          weights: as for ``lookup``.

        Returns:
          Rows as ``lookup`` returns them, with the evaluation initialiser's row for
          an id that is not stored; found, bool in the shape of the ids; and the
          state, to be carried on inside a program that also changes it.
        """
        _given.check_states(self, state, "find")
        ids = _given.by_feature(self, ids)
        if self.placement is not None:
            weights = self._check_weights(ids, weights)
            return _on_mesh.find(self, state, ids, weights)
        inputs = self._prepare(ids, weights)
        outputs, new = _lookup.find(self._used(inputs), state, inputs)
        rows, found = OrderedDict(), OrderedDict()
        for (layout, _), output in zip(inputs, outputs, strict=True):
            rows[layout.feature] = self._shaped(layout, output["rows"])
            flags = output["found"].astype(bool)
            found[layout.feature] = layout.shaped_as_given(flags)
        return rows, found, state | new

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        *,
        learning_rate: Any = None,
        hyper: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> States:
        """One optimizer update of every row that the lookups touched.

        All gradients of one row are summed first. A gradient whose slot no longer
        holds its id (the row left since) is passed over and counted in
        ``lost_updates``; if the id came back meanwhile, it is a new row that may or
        may not have the old slot, so update before you erase or look up elsewhere.

        Args:
          state: the tables.
          residual: of one lookup; or stacked by ``lax.scan`` over micro-batches; or a
            list of them.
          d_rows: gradients of the looked-up rows, in the same structure.
          learning_rate: instead of the optimizers' own, a float or float32 scalar for
            all tables, or a dict by table. Fused optimizers only.
          hyper: any hyper-parameters by table and name (learning_rate, eps, b1, b2,
            weight_decay), floats or traced scalars. Fused optimizers only.

        Returns:
          The new state.
        """
        _given.check_states(self, state, "apply_gradients")
        merged = self._hyper(learning_rate, hyper or {})
        if self.placement is not None:
            return _on_mesh.apply_gradients(self, state, residual, d_rows, merged)
        return _update.apply_gradients(self, state, residual, d_rows, merged)

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, RowGradients], States]:
        """The summed gradient of each distinct row, without an update.

        Args:
          state: the tables.
          residual: as for ``apply_gradients``.
          d_rows: as for ``apply_gradients``.

        Returns:
          Slots and sums by table; on a mesh by the name of its arrays, see
          ``state_name``; and the state, to be carried on.
        """
        _given.check_states(self, state, "reduce_gradients")
        if self.placement is not None:
            return _on_mesh.reduce_gradients(self, state, residual, d_rows)
        return _update.reduce_gradients(self, state, residual, d_rows)

    def weight_gradients(
        self, state: States, residual: Residual, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        """Gradients with respect to the weights of a lookup.

        Call it before ``apply_gradients``: it reads the rows as they are.

        Args:
          state: the tables.
          residual: of one lookup with weights.
          d_rows: gradients of the looked-up rows.

        Returns:
          By feature that had weights, float32 in the shape of the ids; and the state,
          to be carried on.
        """
        _given.check_states(self, state, "weight_gradients")
        if self.placement is not None:
            return _on_mesh.weight_gradients(self, state, residual, d_rows)
        return _weights.weight_gradients(self, state, residual, d_rows)

    def _prepare(
        self, ids: Mapping[str, Any], weights: Mapping[str, Any] | None
    ) -> list[tuple[FeatureLayout, FeatureInput]]:
        given = self._check_weights(ids, weights)
        return [
            prepare(self.config_of(feature), feature, each, given.get(feature))
            for feature, each in ids.items()
        ]

    def _check_weights(
        self, ids: Mapping[str, Any], weights: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        weights = {k: w for k, w in (weights or {}).items() if w is not None}
        unknown = set(weights) - set(ids)
        if unknown:
            raise ValueError(f"weights for {sorted(unknown)}, but no ids for them")
        for feature in weights:
            config = self.config_of(feature)
            if config.pooling is None:
                raise ValueError(
                    f"Feature '{feature}' has weights, but table '{config.name}' does "
                    "not pool. Set pooling='sum' or 'mean', or multiply the rows."
                )
        return weights

    def _used(self, inputs: list[tuple[FeatureLayout, Any]]) -> list[TableConfig]:
        return self.local_configs({layout.table for layout, _ in inputs})

    def _shaped(self, layout: FeatureLayout, rows: jax.Array) -> jax.Array:
        return rows.reshape(*layout.rows_shape, rows.shape[-1])

    def _scores(self, given: Mapping[str, Any]) -> dict[str, jax.Array]:
        for name in given:
            if self._table(name).score_strategy is not ScoreStrategy.CUSTOMIZED:
                raise ValueError(
                    f"Table '{name}' keeps its own scores; give scores only to tables "
                    "with score_strategy='customized'."
                )
        return {
            name: _scores.customized(name, given.get(name, 0)) for name in self.tables
        }

    def _hyper(
        self, learning_rate: Any, hyper: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        merged = {name: dict(numbers) for name, numbers in hyper.items()}
        if callable(learning_rate):
            raise TypeError(
                "learning_rate=... of apply_gradients takes a number, not a schedule: "
                "write learning_rate=schedule(step), or give the schedule to the "
                "table's optimizer."
            )
        if learning_rate is not None:
            by_table = (
                learning_rate
                if isinstance(learning_rate, Mapping)
                else dict.fromkeys(self.tables, learning_rate)
            )
            for name, rate in by_table.items():
                merged.setdefault(name, {})["learning_rate"] = rate
        for name in merged:
            if not hasattr(self._table(name).optimizer, "kind"):
                raise ValueError(
                    f"Table '{name}' has an optax optimizer: its hyper-parameters are "
                    "part of the transformation. Give it a schedule instead."
                )
            for field, number in merged[name].items():
                check_number(f"Table '{name}'", field, number)
        return merged
