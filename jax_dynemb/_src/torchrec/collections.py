# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's collections: KeyedJaggedTensor in, KeyedTensor or JaggedTensors out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jax_dynemb._src import nnx as jde_nnx
from jax_dynemb._src.engines import StatsFuture
from jax_dynemb._src.jagged import split_weights
from jax_dynemb._src.torchrec.config_lists import shown_configs, tables_of
from jax_dynemb._src.torchrec.configs import EmbeddingBagConfig, EmbeddingConfig, Table
from jax_dynemb._src.torchrec.examples import (
    Bags,
    Rooms,
    inverse_of,
    of_examples,
    room_of,
)
from jax_dynemb._src.torchrec.jagged_tensor import JaggedTensor
from jax_dynemb._src.torchrec.keyed_jagged_tensor import KeyedJaggedTensor
from jax_dynemb._src.torchrec.keyed_tensor import KeyedTensor
from jax_dynemb._src.torchrec.refused import check_place, refused_member
from jax_dynemb._src.torchrec.routes import (
    Dropped,
    Features,
    RoutedFeatures,
    dropped_of,
    ids_as_weights,
    inputs_of,
    numbers_of,
    routed,
    split_routed,
)
from jax_dynemb._src.torchrec.state_dict import tables_of_rows


class _Counting:
    """Adds up what had no room in a batch, for ``stats()``."""

    coll: Any
    get_state: Any
    set_state: Any
    routes: tuple[Any, ...]
    dropped: Dropped
    __getattr__ = refused_member

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Returns itself: the mesh, or JAX's default device, has placed the tables.

        Args:
          args: ignored.
          kwargs: ignored.
        """
        return self

    def set_optimizer_step(self, step: int) -> None:
        """Says how many updates all hash tables have had, see ``Tables.set_step``."""
        names = self.coll.engine.catalog.dynamic
        steps = dict.fromkeys(names, step)
        self.set_state(self.coll.set_step(self.get_state(), steps))

    def split_embedding_weights(self) -> list[np.ndarray]:
        """Returns the rows 0 to num_embeddings - 1 of each table, under FBGEMM's name.

        ``to_torch_state_dict`` has them by table, and says more.
        """
        return [table.rows for table in tables_of_rows(self)]

    def split_optimizer_states(self) -> list[list[np.ndarray]]:
        """Returns the states of those rows in FBGEMM's order, by table."""
        return [list(table.states.values()) for table in tables_of_rows(self)]

    def _count(self, features: Features, train: bool) -> None:
        dropped = dropped_of(self.routes, features)
        if dropped is not None and train:
            self._add_dropped(dropped)

    def _add_dropped(self, dropped: jax.Array) -> None:
        before = self.dropped.get_value()
        total = before + dropped
        most = jnp.uint32(2**32 - 1)  # a count that is full stays full
        self.dropped.set_value(jnp.where(total < before, most, total))

    def _stats_future(self) -> StatsFuture:
        """Adds ``"<table>/dropped"``: entries that had no room."""
        tables = super()._stats_future()  # pyright: ignore[reportAttributeAccessIssue]
        dropped = StatsFuture(self.dropped.get_value(), self._totals)
        return StatsFuture.joined([tables, dropped])

    def _totals(self, counts: np.ndarray) -> dict[str, int | float]:
        totals: dict[str, int | float] = {}
        for route, count in zip(self.routes, counts.tolist(), strict=True):
            name = f"{route.table}/dropped"
            totals[name] = totals.get(name, 0) + count
        return totals


class _Announced:
    """Finds the features of a coming batch, for ``jde.pipeline.overlap``."""

    routes: tuple[Any, ...]

    def known_in(self, part: Any) -> dict[str, Any]:
        """Picks a KeyedJaggedTensor with all features, or a dict that has them.

        Args:
          part: any node of a pytree.
        """
        is_keyed = isinstance(part, KeyedJaggedTensor)
        if not is_keyed and not isinstance(part, Mapping):
            return {}
        names = dict.fromkeys(route.feature for route in self.routes)
        if not set(names) <= set(part.keys()):
            return {}
        if is_keyed:
            return {f"KeyedJaggedTensor of {', '.join(part.keys())}": part}
        return {name: part[name] for name in names}

    def ids_in(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Returns ids by feature of the core from what ``known_in`` has picked.

        Args:
          known: for this collection, and maybe for others.
        """
        for part in (known, *known.values()):
            if self.known_in(part):
                return inputs_of(self.routes, part)[0]
        return {}


class EmbeddingBagCollection(_Announced, _Counting, jde_nnx.EmbeddingBagCollection):
    """Tables whose rows are pooled: a KeyedJaggedTensor in, a KeyedTensor out.

    Keys of the output: tables in order, their features in order. A feature of several
    tables is ``feature@table``. MEAN divides by the number of ids, also with weights.

    Args:
      tables: ``EmbeddingBagConfig`` or ``jde.TableConfig``.
      is_weighted: whether the weights of the input are factors of the rows. They are
        differentiable.
      device: torch's names of devices are ignored, see ``mesh``.
      rngs: the seed of the initial rows is drawn from ``rngs.params()``.
      mesh: devices to shard the rows over, or None.
      axis: the mesh axis for it, or several; all axes if None.
      options: of ``jde.nnx.EmbeddingBagCollection``; ``rows_of`` another collection
        gives one table to both.

    Raises:
      ValueError: a table is an ``EmbeddingConfig``, which does not pool.

    Example:
      >>> t1 = jde.torchrec.EmbeddingBagConfig(100, 8, "t1", feature_names=["f1"])
      >>> ebc = jde.torchrec.EmbeddingBagCollection([t1], rngs=nnx.Rngs(0))
      >>> kjt = jde.torchrec.KeyedJaggedTensor.from_lengths_sync(
      ...     ["f1"], np.array([2**40, 7, 7]), np.array([1, 2])
      ... )
      >>> ebc(kjt).values().shape
      (2, 8)
    """

    def __init__(
        self,
        tables: Iterable[Table],
        is_weighted: bool = False,
        device: Any = None,
        *,
        rngs: nnx.Rngs | None = None,
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        **options: Any,
    ):
        check_place("EmbeddingBagCollection", device, rngs, options)
        tables = list(tables) if isinstance(tables, Iterator) else tables
        self._configs = tables_of(tables, mesh, axis, options.get("plan"))
        self._shown = shown_configs(EmbeddingBagConfig, tables, self._configs)
        if plain := [t.name for t in tables if isinstance(t, EmbeddingConfig)]:
            raise ValueError(
                f"EmbeddingBagCollection pools, but tables {plain} do not: write "
                "EmbeddingBagConfig for EmbeddingConfig, or use EmbeddingCollection."
            )
        self.routes, named = routed(self._configs)
        self._is_weighted = is_weighted
        super().__init__(named, rngs=rngs, mesh=mesh, axis=axis, **options)
        self.dropped = Dropped(jnp.zeros(len(self.routes), jnp.uint32))

    def embedding_bag_configs(self) -> list[EmbeddingBagConfig]:
        """Returns the tables in order; ``coll.tables`` has those of the core."""
        return list(self._shown)

    def is_weighted(self) -> bool:
        """Returns whether the weights of the input are factors of the rows."""
        return self._is_weighted

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        features: Features | RoutedFeatures,
        *,
        weights: Mapping[str, jax.Array] | None = None,
        scores: Mapping[str, Any] | None = None,
        counts: Mapping[str, Any] | None = None,
        now: Any = None,
        insert: bool = True,
        touch: bool | None = None,
        train: bool | None = None,
        feature_requires_grad: Mapping[str, bool] | None = None,
    ) -> KeyedTensor:
        """Looks up and pools the rows of every feature.

        Args:
          features: a KeyedJaggedTensor with the features of all tables, or a dict of
            ids by feature. Or what ``route`` returned.
          weights: by feature, with a dict of ids. A KeyedJaggedTensor has its own, and
            a JaggedTensor or a ``jde.Jagged`` may have.
          scores: by table, or by feature in the shape of its values, for tables with
            ``score_strategy="customized"``: as for ``Tables.lookup``.
          counts: by feature, how many uses each id stands for; likewise.
          now: ``jde.now(...)`` for "timestamp" tables; the host's clock if None.
          insert: static. False gives no unseen id a row, as for ``Tables.lookup``.
          touch: static. Whether rows count as used: True by default in training, and
            False in evaluation, where scores, counts and now are for True only.
          train: True inserts unseen ids; False reads only. Default: True until
            ``model.eval()``.
          feature_requires_grad: static, by feature: False gives its weights no
            gradient, as in FBGEMM. Rows are trained all the same.

        Returns:
          [B, dim] by key. Of a variable batch each key has its own number of rows,
          or with ``inverse_indices`` one row an example.

        Raises:
          KeyError: a feature is missing.
          ValueError: ``is_weighted``, and the input has no weights, or has them twice;
            or weights without ``is_weighted``.
        """
        given, sent = split_routed(features)
        ids, bags = inputs_of(self.routes, given)
        ids, own = split_weights(ids, None)
        train = (not self.deterministic) if train is None else train
        self._count(given, train)
        factors = self._factors(bags, own or {}, weights or {})
        factors = self._frozen(factors, feature_requires_grad or {})
        numbers = [numbers_of(self.routes, each) for each in (scores, counts)]
        batch = ids if sent is None else sent
        flags = numbers[0], train, numbers[1], now, insert, touch
        rows = self._lookup(batch, factors, *flags)
        out = [self._expanded(given, route, rows) for route in self.routes]
        return KeyedTensor.from_tensor_list([r.alias for r in self.routes], out)

    def route(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, features: Features
    ) -> RoutedFeatures:
        """Sends the ids of a batch to the devices that own them, ahead of its lookup.

        It reads no table: one jitted step can look up the batch that was routed before
        and route the next one. Weights do not travel ahead.

        Args:
          features: as for the call.

        Returns:
          A pytree to call this Module with. The result is that of the features, bit
          for bit.
        """
        ids, bags = inputs_of(self.routes, features)
        ids, own = split_weights(ids, None)
        if own:
            self._factors(bags, own, {})  # refuses them where they would not count
        weighted = ids if self._is_weighted else ()
        return RoutedFeatures(features, self._route(ids, None, weighted))

    def _factors(
        self,
        bags: Mapping[str, JaggedTensor],
        own: Mapping[str, Any],
        weights: Mapping[str, Any],
    ) -> dict[str, Any] | None:
        """Returns weights by alias, of ``jde.Jagged`` too."""
        if not self._is_weighted:
            if weights or own:
                raise ValueError("weights are for is_weighted=True; leave them out.")
            return None
        inside = {key: jt.weights_or_none() for key, jt in bags.items()}
        inside |= {r.feature: own[r.alias] for r in self.routes if r.alias in own}
        if twice := [f for f in weights if inside.get(f) is not None]:
            raise ValueError(
                f"features {sorted(twice)} have weights of their own and in "
                "weights=...: give them once."
            )
        by_feature = inside | dict(weights)
        for route in self.routes:
            if by_feature.get(route.feature) is None:
                raise ValueError(
                    f"is_weighted=True, but feature '{route.feature}' has no weights: "
                    "make the KeyedJaggedTensor with weights=..."
                )
        return {r.alias: jnp.asarray(by_feature[r.feature]) for r in self.routes}

    def _frozen(
        self, factors: dict[str, Any] | None, requires: Mapping[str, bool]
    ) -> dict[str, Any] | None:
        """Stops the gradients of the weights of some features."""
        known = {route.feature for route in self.routes}
        if unknown := sorted(set(requires) - known):
            raise ValueError(
                f"feature_requires_grad names {unknown}: the features are "
                f"{sorted(known)}."
            )
        stopped = {r.alias for r in self.routes if not requires.get(r.feature, True)}
        return factors and {
            alias: jax.lax.stop_gradient(x) if alias in stopped else x
            for alias, x in factors.items()
        }

    def _expanded(
        self, features: Features, route: Any, rows: Mapping[str, jax.Array]
    ) -> jax.Array:
        """One row an example, where bags stand for several."""
        pooled = rows[route.alias]
        if not isinstance(features, KeyedJaggedTensor):
            return pooled
        inverse = features.inverse_indices_or_none()
        if inverse is None:
            return pooled
        index = jnp.asarray(inverse[1][inverse[0].index(route.feature)])
        return jnp.take(pooled, index, axis=0, mode="clip")


class EmbeddingCollection(_Announced, _Counting, jde_nnx.EmbeddingCollection):
    """Tables that give a row an id: a KeyedJaggedTensor in, JaggedTensors by key out.

    Args:
      tables: ``EmbeddingConfig`` or ``jde.TableConfig``, all of one dim.
      device: torch's names of devices are ignored, see ``mesh``.
      need_indices: whether the ids come back, as the weights of the output.
      rngs: the seed of the initial rows is drawn from ``rngs.params()``.
      mesh: devices to shard the rows over, or None.
      axis: the mesh axis for it, or several; all axes if None.
      options: of ``jde.nnx.EmbeddingCollection``, ``rows_of`` among them.

    Raises:
      ValueError: tables differ in dim, or pool.
    """

    def __init__(
        self,
        tables: Iterable[Table],
        device: Any = None,
        need_indices: bool = False,
        *,
        rngs: nnx.Rngs | None = None,
        mesh: Mesh | None = None,
        axis: str | tuple[str, ...] | None = None,
        **options: Any,
    ):
        check_place("EmbeddingCollection", device, rngs, options)
        tables = list(tables) if isinstance(tables, Iterator) else tables
        self._configs = tables_of(tables, mesh, axis, options.get("plan"))
        if pooled := [t.name for t in self._configs if t.pooling is not None]:
            raise ValueError(
                f"EmbeddingCollection returns one row an id, but tables {pooled} pool: "
                "write EmbeddingConfig for EmbeddingBagConfig, or use "
                "EmbeddingBagCollection."
            )
        dims = {table.dim for table in self._configs}
        if len(dims) > 1:
            raise ValueError(
                f"tables of one EmbeddingCollection have one embedding_dim, not "
                f"{sorted(dims)}: make one collection for each."
            )
        self._dim = dims.pop() if dims else 0
        self.routes, named = routed(self._configs)
        self._shown = shown_configs(EmbeddingConfig, tables, self._configs)
        self._need_indices = need_indices
        super().__init__(named, rngs=rngs, mesh=mesh, axis=axis, **options)
        self.dropped = Dropped(jnp.zeros(len(self.routes), jnp.uint32))

    def embedding_configs(self) -> list[EmbeddingConfig]:
        """Returns the tables in order; ``coll.tables`` has those of the core."""
        return list(self._shown)

    def embedding_dim(self) -> int:
        """Returns the width of all rows."""
        return self._dim

    def embedding_names_by_table(self) -> list[list[str]]:
        """Returns by table the keys of its outputs."""
        return [
            [route.alias for route in self.routes if route.table == table.name]
            for table in self._configs
        ]

    def need_indices(self) -> bool:
        """Returns whether ids come as the weights of the output."""
        return self._need_indices

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        features: Features | RoutedFeatures,
        *,
        scores: Mapping[str, Any] | None = None,
        counts: Mapping[str, Any] | None = None,
        now: Any = None,
        insert: bool = True,
        touch: bool | None = None,
        train: bool | None = None,
        capacity: Rooms = None,
    ) -> dict[str, JaggedTensor]:
        """Looks up the rows of every feature.

        Args:
          features: a KeyedJaggedTensor with the features of all tables, or a dict of
            JaggedTensors. Or what ``route`` returned.
          scores: by table, or by feature in the shape of its values, for tables with
            ``score_strategy="customized"``: as for ``Tables.lookup``.
          counts: by feature, how many uses each id stands for; likewise.
          now: ``jde.now(...)`` for "timestamp" tables; the host's clock if None.
          insert: static. False gives no unseen id a row, as for ``Tables.lookup``.
          touch: static. Whether rows count as used: True by default in training, and
            False in evaluation, where scores, counts and now are for True only.
          train: True inserts unseen ids; False reads only. Default: True until
            ``model.eval()``.
          capacity: static, for ``inverse_indices``: the entries that each key has room
            for over all examples, an int or a dict by feature. Those beyond are
            dropped from the last examples; ``<table>/dropped`` of ``stats()`` counts
            them. None: as many as there are, outside of jit.

        Returns:
          By key the rows, [entries, dim], in the bags of the input. Of a variable
          batch each key has its own number of bags, or with ``inverse_indices`` one
          bag an example.

        Raises:
          KeyError: a feature is missing.
          TypeError: a dict of something else than JaggedTensors. Or a variable batch
            with ``inverse_indices`` under jit without ``capacity``, where the number
            of rows is data.
          ValueError: ``capacity`` lacks a feature, or is below 0.
        """
        given, sent = split_routed(features)
        ids, bags = self._inputs(given)
        train = (not self.deterministic) if train is None else train
        self._count(given, train)
        numbers = [numbers_of(self.routes, each) for each in (scores, counts)]
        batch = ids if sent is None else sent
        flags = numbers[0], train, numbers[1], now, insert, touch
        rows = self._lookup(batch, None, *flags)
        out, lost = OrderedDict(), []  # jit keeps its order
        for route in self.routes:
            jt = bags[route.feature]
            indices = ids_as_weights(jt) if self._need_indices else None
            own, dropped = Bags(rows[route.alias], jt.lengths(), indices), 0
            inverse = inverse_of(given, route.feature)
            if inverse is not None:
                room = room_of(capacity, route.feature)
                own, dropped = of_examples(own, inverse, room)
            lost.append(dropped)
            out[route.alias] = JaggedTensor._of(*own)
        if train and not all(isinstance(each, int) for each in lost):
            self._add_dropped(jnp.stack([jnp.uint32(each) for each in lost]))
        return out

    def route(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, features: Features
    ) -> RoutedFeatures:
        """Sends a batch ahead, as ``EmbeddingBagCollection.route`` does.

        Args:
          features: as for the call.
        """
        ids, _ = self._inputs(features)
        return RoutedFeatures(features, self._route(ids, None))

    def _inputs(
        self, features: Features
    ) -> tuple[dict[str, Any], dict[str, JaggedTensor]]:
        ids, bags = inputs_of(self.routes, features)
        if wrong := sorted({r.feature for r in self.routes} - set(bags)):
            raise TypeError(
                f"feature {wrong[0]!r} is no JaggedTensor: write JaggedTensor(ids, "
                "lengths=lengths). jde.nnx.EmbeddingCollection takes arrays of ids."
            )
        return ids, bags
