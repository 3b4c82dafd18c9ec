# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of ``Tables`` of a step: lookups and updates. All may be in jit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax

from jax_dynemb._src.engines import LookupFlags, Routed, States
from jax_dynemb._src.engines.shard import RowGradients, may_stay_untrained, set_counters
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.ops import Residual
from jax_dynemb._src.table import arguments as _arguments
from jax_dynemb._src.table.declared import Declared
from jax_dynemb._src.table.feature_stats import (
    counted_lookup,
    counts_of,
    plain_residual,
)
from jax_dynemb._src.table.mapped import find_mapped, is_mapped
from jax_dynemb._src.table.numpy_find import numpy_find
from jax_dynemb._src.table.prefetch_during import begin_prefetch
from jax_dynemb._src.table.score_inputs import score_inputs_of

_Rows = TypeVar("_Rows")
_Gradients = TypeVar("_Gradients")
_Rest = TypeVar("_Rest")

_ROUTED = (
    "lookup: the ids of this batch have been sent without their counts and scores. "
    "Look up the ids themselves where ids have numbers of their own."
)


class Operations(Declared):
    """Runs lookups and updates, as pure functions of the state."""

    def lookup(
        self,
        state: States,
        ids: Mapping[str, Any] | Routed,
        weights: Mapping[str, Any] | None = None,
        scores: Mapping[str, Any] | None = None,
        *,
        counts: Mapping[str, Any] | None = None,
        now: Any = None,
        touch: bool = True,
        insert: bool = True,
        stats: bool = False,
    ) -> tuple[dict[str, jax.Array], Any, States]:
        """Looks up rows for training: an unseen id gets a row, if the table admits it.

        An id that gets none reads the initial row that it would get, and its gradient
        is skipped.

        Args:
          state: the tables.
          ids: by feature: uint32[..., 2] from ``jde.ids``, a 64-bit jax Array, or a
            ``Jagged``. -1 is padding: a zero row, no insert, no gradient. Or what
            ``route`` returned for such a batch.
          weights: by feature, float[...] in the shape of the ids: factors of the
            rows of a pooled feature.
          scores: by table, a whole number from 0 to 2**62 - 1, such as
            ``time.time_ns()``: what a CUSTOMIZED table scores the rows of this lookup
            with. Or by feature, an array in the shape of its ids; of equal ids the
            highest score counts. Without one a row keeps its score, and a new row has
            0. Numbers of 64 bits enter a jitted step as uint32[..., 2] from
            ``jde.scores``. Such a pair above the range counts as 2**62 - 1, and a
            traced number below it as 0.
          counts: by feature, whole numbers in the shape of its ids: how many uses each
            id stands for; None: one. Scores of "lfu" tables and admission rules add
            them up. 0 marks a row as used and adds nothing.
          now: uint32[2], the words of the host's time in nanoseconds
            (``jde.now()``), for "timestamp" tables: every device of a mesh notes the
            same time. None: each device reads its own clock.
          touch: static. False leaves the scores of rows as they are. Rows in use are
            not protected then, so an id whose bucket is full is refused.
          insert: static. False gives no unseen id a row, whatever ``insert`` of the
            table says; they count in ``misses`` and ``not_admitted``.
          stats: static. True counts by feature what became of the ids, for
            ``feature_stats``. It takes a serving lookup more, and two on a mesh.

        Returns:
          Rows by feature: dtype[..., dim], one for each id, or for each bag where the
          table pools. Bags are the last axis of ids; ids with one axis are bags of
          one. Then the residual for ``apply_gradients``, and the new state. Rows are
          an OrderedDict in the order of the configs and their feature_names, whatever
          the order of ``ids``; jit and grad keep it.

        Raises:
          RuntimeError: the state was donated to an earlier call.
          TypeError: 32-bit ids for a table with 64-bit keys, or not a dict of ids, or
            a flag that is no bool.
          ValueError: unknown feature or table, a shape does not fit, a score is out of
            range, or the batch was routed by other tables.
          NotImplementedError: under ``jax.vmap``.
        """
        _arguments.check_states(self.engine, state, "lookup")
        sent = None
        if isinstance(ids, Routed):
            _arguments.check_routed(self.engine, ids, weights)
            ids, weights, sent = ids.ids, ids.weights, ids.sent
        else:
            ids, weights = _arguments.batch_of(self.engine.catalog, ids, weights)
        tables = [self.engine.catalog.features[f] for f in ids]
        _arguments.check_arrays(self.engine, state, tables, "lookup")
        _arguments.check_flags("lookup", stats=stats, touch=touch, insert=insert)
        flags = LookupFlags(touch, insert, timed=now is not None)
        if not (touch and insert):
            may_stay_untrained(self.features[feature] for feature in ids)
        inputs = score_inputs_of(self.engine.catalog, ids, scores, counts, now)
        if inputs.is_per_id and sent:
            raise ValueError(_ROUTED)

        rest = (ids, weights, inputs, sent, flags)
        if stats:
            return counted_lookup(self.engine, state, ids, insert, rest)
        return self.engine.lookup(state, *rest)

    def feature_stats(self, residual: Any) -> dict[str, dict[str, jax.Array]]:
        """Counts what became of the ids of one lookup, by feature; also inside jit.

        ``ids`` is the sum of ``hits``, ``inserted``, ``refused`` and ``not_admitted``.
        Each occurrence counts, so ``inserted`` counts ids that had no row before the
        lookup and have one now. Inside a ``shard_map`` the counts are those of a
        device. On a mesh, an id that a rule admitted and a full bucket refused counts
        in ``not_admitted``.

        Args:
          residual: of ``lookup(..., stats=True)``.

        Returns:
          By feature ids, padding, hits, inserted, refused and not_admitted, int32[].

        Raises:
          ValueError: the lookup was without ``stats=True``.
          TypeError: something else than a residual.

        Example:
          >>> rows, residual, state = coll.lookup(
          ...     state, ids, stats=True
          ... )  # doctest: +SKIP
          >>> counts = coll.feature_stats(residual)["cat"]  # doctest: +SKIP
        """
        return counts_of(residual)

    def route(
        self, ids: Mapping[str, Any], weights: Mapping[str, Any] | None = None
    ) -> Routed:
        """Sends the ids of a batch to the devices that own them, ahead of its lookup.

        It reads no table. So one jitted step can look up the batch that was routed
        before, and route the next one. XLA may overlap that exchange with the compute
        of the step. ``lookup`` of the result returns what a lookup of the ids would,
        bit for bit. Rows, sums and gradients travel in the step as always.

        Only ids of row-wise and table-wise tables travel ahead. Elsewhere, and on one
        device, the result just holds the batch.

        Args:
          ids: as for ``lookup``.
          weights: as for ``lookup``.

        Returns:
          A pytree for ``lookup``, with the same tables.

        Raises:
          TypeError: as ``lookup``.
          ValueError: as ``lookup``.

        Example:
          >>> def step(state, routed, next_ids):
          ...     rows, residual, state = coll.lookup(state, routed)
          ...     state = coll.apply_gradients(state, residual, loss_grad(rows))
          ...     return state, coll.route(next_ids)
        """
        ids, weights = _arguments.batch_of(self.engine.catalog, ids, weights)
        sent = self.engine.route(ids, weights)
        given, packed = self.engine.pack(ids)
        return Routed(given, packed, weights, sent, self.engine)

    def find(
        self,
        state: States,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        *,
        touch: bool = False,
        promote: bool = False,
        scores: Mapping[str, Any] | None = None,
        counts: Mapping[str, Any] | None = None,
        now: Any = None,
        as_numpy: bool = False,
    ) -> tuple[dict[str, Any], dict[str, Any], States]:
        """Looks up rows for serving: changes nothing, or only scores.

        ``jax.vmap`` maps it over ids, as one lookup of all of them. It does not with
        ``touch`` or ``promote``, nor around a ``jit`` with the call inside.

        Args:
          state: the tables; donate them with ``touch`` or ``promote``.
          ids: as for ``lookup``.
          weights: as for ``lookup``.
          touch: static. True gives the rows that are found the score of a use now, so
            that serving keeps them in the table. It takes a second probe, and
            on a mesh a second exchange of ids. No counter and no row changes.
          promote: static. True first brings the rows of tables with tiers into device
            memory, as ``prefetch`` does, so that the next find of them is fast. It
            takes a second probe, and changes no result.
          scores: as for ``lookup``, with ``touch`` only.
          counts: likewise.
          now: likewise.
          as_numpy: for servers, outside of jit. Ids (int64[...], not of ``jde.ids``)
            and weights are NumPy arrays, and so are rows and found, to be read only.
            All features cross as one array each way, in a program for their shapes.
            Not with ``touch`` or ``promote``.

        Returns:
          Rows as ``lookup`` returns them, with the evaluation initialiser's row for
          an id that is not stored. Then found, bool in the shape of the ids. Then the
          state, to be carried on inside a program that also changes it.

        Raises:
          TypeError: as ``lookup``.
          ValueError: as ``lookup``; or scores without ``touch``.
        """
        _arguments.check_states(self.engine, state, "find")
        _arguments.check_flags("find", as_numpy=as_numpy, promote=promote, touch=touch)
        if as_numpy and ids:
            if touch or promote or any(x is not None for x in (scores, counts, now)):
                raise ValueError(
                    "find(as_numpy=True) changes no state: leave out touch, promote, "
                    "scores, counts and now."
                )
            _arguments.check_mapping(ids, "ids", "feature", self.features)
            return (*numpy_find(self, state, ids, weights or {}), state)
        ids, weights = _arguments.batch_of(self.engine.catalog, ids, weights)
        tables = [self.engine.catalog.features[f] for f in ids]
        _arguments.check_arrays(self.engine, state, tables, "find")
        if promote:
            state = self.engine.prefetch(state, ids)
        rows, found, state = self._find(state, ids, weights, touch or promote)
        flags = LookupFlags(touch, insert=False, timed=now is not None)
        if touch:
            inputs = score_inputs_of(self.engine.catalog, ids, scores, counts, now)
            state = self.engine.touch(state, ids, inputs, flags)
        elif any(x is not None for x in (scores, counts, now)):
            raise ValueError(
                "find takes scores, counts and now with touch=True only: add touch=True"
            )
        return rows, found, state

    def _find(self, state: States, ids: Any, weights: Any, changes: bool) -> Any:
        if changes or not is_mapped(ids, weights):
            return self.engine.find(state, ids, weights)
        config_of = self.engine.catalog.config_of
        return find_mapped(self.engine.find, config_of, state, ids, weights)

    def set_step(self, state: States, steps: Mapping[str, int]) -> States:
        """Says how many updates tables have had, such as those of an imported one.

        Adam's bias correction, schedules and rows that catch up go on from there.

        Args:
          state: the tables.
          steps: by table, a whole number from 0 to 2**31 - 1.

        Raises:
          TypeError: a step is no whole number.
          ValueError: it is out of range, or there is no such table.

        Example:
          >>> state = coll.set_step(state, {"cat": 200})  # doctest: +SKIP
        """
        _arguments.check_states(self.engine, state, "set_step")
        _arguments.check_mapping(
            steps, "set_step: steps", "table", self.engine.catalog.tables
        )
        new = dict(state)
        for name, step in steps.items():
            self.engine.catalog.dynamic_table(name, "set_step")
            if not is_whole(step):
                raise TypeError(
                    f"Table '{name}': a step must be a whole number, not {step!r}."
                )
            if not 0 <= step < 2**31:
                raise ValueError(f"Table '{name}': step {step} is not in [0, 2**31).")
            arrays, rows = (
                self.engine.state_name(name),
                self.hash_engine.counter_rows(name),
            )
            new[arrays] = set_counters(new[arrays], {"step": int(step)}, rows)
        return new

    def prefetch(self, state: States, ids: Mapping[str, Any]) -> States:
        """Brings rows of a coming batch into device memory; changes no result.

        Of tables with a tier, rows that are stored and lie in host memory get places
        of rows that were used longest ago. Nothing is inserted and no score changes,
        so a step computes the same bits with and without it.

        Args:
          state: the tables; donate them.
          ids: as for ``lookup``; features of tables without a tier are passed over.

        Returns:
          The new state.
        """
        _arguments.check_states(self.engine, state, "prefetch")
        ids, _ = _arguments.batch_of(self.engine.catalog, ids, None)
        tables = [self.engine.catalog.features[f] for f in ids]
        _arguments.check_arrays(self.engine, state, tables, "prefetch")
        return self.engine.prefetch(state, ids)

    def prefetch_during(
        self,
        state: States,
        ids: Mapping[str, Any],
        compute: Callable[[_Rows], tuple[_Gradients, _Rest]],
        rows: _Rows,
    ) -> tuple[_Gradients, _Rest, States]:
        """Prefetches a coming batch while a model's dense part computes.

        Call it between ``lookup`` and ``apply_gradients`` of a step that is compiled.
        Rows move over the bus from the call of ``compute`` until its gradients are
        there. Like ``prefetch`` it changes no result. Outside of ``jax.jit`` the rows
        come first, and ``compute`` follows.

        Args:
          state: the tables, as ``lookup`` returned them; donate them.
          ids: of the coming batch, as for ``lookup``; features of tables without a tier
            are passed over.
          compute: called once with the rows. It returns a pair: their gradients, and
            anything else. What it computes without the rows may come before.
          rows: those of ``lookup``, or any arrays that the dense part begins with.

        Returns:
          Both results of ``compute``, and the new state.

        Raises:
          TypeError: ``compute`` returned no pair.

        Example:
          >>> def dense(rows):  # doctest: +SKIP
          ...     loss, (d_rows, d_params) = grad(rows, params, labels)
          ...     return d_rows, (loss, d_params)
          >>> d_rows, (loss, d_params), state = coll.prefetch_during(
          ...     state, next_ids, dense, rows
          ... )  # doctest: +SKIP
        """
        _arguments.check_states(self.engine, state, "prefetch_during")
        ids, _ = _arguments.batch_of(self.engine.catalog, ids, None)
        catalog = self.hash_engine.catalog
        mine = {f: each for f, each in ids.items() if f in catalog.by_feature}
        tables = [catalog.features[feature] for feature in mine]
        _arguments.check_arrays(self.engine, state, tables, "prefetch_during")
        begun, state, rows = begin_prefetch(self.hash_engine, state, mine, rows)
        result = compute(rows)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                f"prefetch_during: compute returned {kind_of(result)}, but must return "
                "a pair: the gradients of the rows, and anything else, such as "
                "(d_rows, loss)."
            )
        d_rows, rest = result
        if begun is not None:
            state, d_rows = begun.end(state, d_rows)
        return d_rows, rest, state

    def flush(self, state: States) -> States:
        """Writes rows of device memory that are newer than host memory there.

        No operation needs it: all of them find a row wherever it lies.

        Args:
          state: the tables; donate them.

        Returns:
          The new state; tables without a tier are as they were.
        """
        _arguments.check_states(self.engine, state, "flush")
        return self.engine.flush(state)

    def apply_gradients(
        self,
        state: States,
        residual: Any,
        d_rows: Any,
        *,
        learning_rate: Any = None,
        hyper: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> States:
        """Updates every row that the lookups touched, once.

        All gradients of one row are summed first. A gradient whose slot no longer
        holds its id (its row was evicted) is skipped and counted in ``lost_updates``.
        If the id was inserted again, it is a new row that may or may not have the old
        slot. So update before you erase or look up elsewhere.

        Args:
          state: the tables.
          residual: of one lookup; or stacked by ``lax.scan`` over micro-batches; or a
            list of them.
          d_rows: gradients of the looked-up rows, in the same structure.
          learning_rate: instead of the optimizers' own, a float or float32 scalar for
            all tables, or a dict by table. Fused optimizers only.
          hyper: any hyper-parameters by table and name, floats or traced scalars. The
            names are the attributes of the optimizer (learning_rate, eps, b1, l2,
            ...). Fused optimizers only.

        Returns:
          The new state.

        Raises:
          TypeError: the residual, the gradients or a number are of another kind.
          ValueError: a gradient is missing, is None or has another shape than its rows.
            Or, outside of jit, the state is older than the lookup or of another
            ``init``.
          RuntimeError: the state was donated to an earlier call.
        """
        _arguments.check_states(self.engine, state, "apply_gradients")
        numbers = _arguments.hyper_of(self.engine.catalog, learning_rate, hyper)
        residual = plain_residual(residual)
        return self.engine.apply_gradients(state, residual, d_rows, numbers)

    def reduce_gradients(
        self, state: States, residual: Any, d_rows: Any
    ) -> tuple[dict[str, RowGradients], States]:
        """Sums the gradient of each distinct row, without an update.

        Args:
          state: the tables.
          residual: as for ``apply_gradients``.
          d_rows: as for ``apply_gradients``.

        Returns:
          Slots and sums by table; on a mesh by the name of its arrays, see
          ``state_name``; and the state, to be carried on.

        Raises:
          TypeError: as ``apply_gradients``.
          ValueError: as ``apply_gradients``.
        """
        _arguments.check_states(self.engine, state, "reduce_gradients")
        may_stay_untrained(self.engine.catalog.dynamic)
        return self.engine.reduce_gradients(state, plain_residual(residual), d_rows)

    def weight_gradients(
        self, state: States, residual: Residual, d_rows: Mapping[str, Any]
    ) -> tuple[dict[str, jax.Array], States]:
        """Computes gradients with respect to the weights of a lookup.

        Call it before ``apply_gradients``: it reads the rows as they are.

        Args:
          state: the tables.
          residual: of one lookup with weights.
          d_rows: gradients of the looked-up rows.

        Returns:
          By feature that had weights, float32 in the shape of the ids; and the state,
          to be carried on.

        Raises:
          TypeError: as ``apply_gradients``.
          ValueError: the lookup had no weights; or as ``apply_gradients``.
        """
        _arguments.check_states(self.engine, state, "weight_gradients")
        return self.engine.weight_gradients(state, plain_residual(residual), d_rows)
