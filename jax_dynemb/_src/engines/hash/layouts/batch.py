# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The ids and weights of a call on their way into shard_map, and the rows back."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
from jax.sharding import PartitionSpec

from jax_dynemb._src.config import ScoreStrategy
from jax_dynemb._src.engines.hash.layouts import inputs as _inputs
from jax_dynemb._src.engines.hash.layouts.inputs import BatchSplit, LocalIds
from jax_dynemb._src.engines.hash.layouts.mesh_axes import MeshAxes
from jax_dynemb._src.engines.score_inputs import ScoreInputs
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.ops import (
    FeatureInput,
    FeatureLayout,
    jagged_bags,
    prepare,
    with_uses,
)

Inputs = list[tuple[FeatureLayout, FeatureInput]]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class BatchLayout:
    """Describes a batch without its arrays: what a function in shard_map may capture.

    Attributes:
      placement: of the collection.
      configs: pairs of a feature and its table, in the order of the call.
      splits: pairs of a feature and how devices share it; none inside a shard_map.
      inside: whether the call is in a shard_map already.
    """

    placement: MeshAxes
    configs: tuple[tuple[str, Any], ...]
    splits: tuple[tuple[str, BatchSplit], ...]
    inside: bool

    def local(
        self,
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        own: ScoreInputs | None = None,
    ) -> Inputs:
        """Prepares the features that this device looks up."""
        local = self._local_ids(ids)
        jagged = {f: x.ids for f, x in local.items() if isinstance(x.ids, Jagged)}
        bags = jagged_bags(dict(self.configs), jagged)
        inputs = []
        for name, config in self.configs:
            mine, factor = local[name], weights.get(name)
            if factor is not None:
                factor = mine.numbers(factor)
            layout, feature_input = prepare(
                config, name, mine.ids, factor, bags.get(name)
            )
            malformed = mine.malformed
            if self.inside and feature_input.malformed is not None:
                malformed = jax.lax.psum(feature_input.malformed, self.placement.axes)
            feature_input = dataclasses.replace(feature_input, malformed=malformed)
            if own is not None and own.is_per_id:
                feature_input = with_own_uses(
                    config, layout, feature_input, own, mine.numbers
                )
            inputs.append((layout, feature_input))
        return inputs

    def _local_ids(self, ids: Mapping[str, Any]) -> dict[str, LocalIds]:
        if self.inside:
            return {name: LocalIds(ids[name]) for name, _ in self.configs}
        return _inputs.local_ids(self.placement, dict(self.splits), ids)

    def whole(self, offsets: jax.Array | None, per_id: jax.Array) -> jax.Array:
        """Returns one number per id, as it leaves shard_map."""
        if self.inside:
            return per_id
        return _inputs.global_numbers(self.placement, offsets, per_id)


def with_own_uses(
    config: Any,
    layout: FeatureLayout,
    feature_input: FeatureInput,
    own: ScoreInputs,
    split: Callable[[Any], Any] = lambda numbers: numbers,
) -> FeatureInput:
    """Adds the counts and scores that the ids of a feature have of their own.

    Args:
      config: of its table.
      layout: of the feature.
      feature_input: its ids.
      own: the numbers.
      split: selects those of this device.
    """
    name, strategy = layout.feature, ScoreStrategy(config.score_strategy)
    numbers = own.counts.get(name), own.scores.get(name)
    counts, scores = jax.tree.map(split, numbers)
    return with_uses(
        strategy, layout, feature_input, counts, scores, own.tables[config.name]
    )


class MeshBatch:
    """Holds the ids and weights of one call, as shard_map takes them.

    Attributes:
      placement: of the collection.
      configs: of the tables, by feature.
      ids: by feature, ready to be split.
      weights: by feature, likewise.
      score_inputs: numbers that move scores, likewise.
      layout: what is static of it.
    """

    def __init__(
        self,
        placement: MeshAxes,
        configs: Mapping[str, Any],
        ids: Mapping[str, Any],
        weights: Mapping[str, Any],
        score_inputs: ScoreInputs | None = None,
    ):
        """Pads what the devices cannot split equally.

        Args:
          placement: of the collection, with its mesh.
          configs: of the tables, by feature.
          ids: by feature.
          weights: by feature, of some of them.
          score_inputs: numbers that move scores, of a training lookup.
        """
        self.placement = placement
        _inputs.check_static(ids)
        # The order of the features: shard_map sorts the dicts that it hands on.
        self.configs = {name: configs[name] for name in ids}
        self._inside = placement.is_inside()
        self.score_inputs = score_inputs or ScoreInputs({})
        if self._inside:  # everything is this device's already
            self.ids, self.weights = dict(ids), dict(weights)
            self.splits: dict[str, BatchSplit] = {}
        else:
            self.splits, self.ids = _inputs.splits_of(placement, self.configs, ids)
            self.weights = self._split(weights)
            self.score_inputs = ScoreInputs(
                self.score_inputs.tables,
                self._split(self.score_inputs.counts),
                self._split(self.score_inputs.scores),
            )
        pairs = tuple(self.configs.items()), tuple(self.splits.items())
        self.layout = BatchLayout(placement, *pairs, self._inside)

    def _split(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        def split(name: str, x: Any) -> Any:
            return _inputs.split_numbers(self.placement, self.splits[name], x)

        return {
            name: jax.tree.map(functools.partial(split, name), x)
            for name, x in numbers.items()
        }

    @property
    def names(self) -> set[str]:
        """Names the tables that are looked up."""
        return {config.name for config in self.configs.values()}

    @property
    def ids_specs(self) -> dict[str, Any]:
        split = self.placement.split
        return {name: each.ids_spec(split) for name, each in self.splits.items()}

    @property
    def per_id_specs(self) -> dict[str, Any]:
        split = self.placement.split
        return {name: each.per_id_spec(split) for name, each in self.splits.items()}

    @property
    def weights_specs(self) -> dict[str, Any]:
        return {k: v for k, v in self.per_id_specs.items() if k in self.weights}

    @property
    def score_specs(self) -> ScoreInputs:
        specs: dict[str, Any] = self.per_id_specs
        tables: dict[str, Any] = dict.fromkeys(
            self.score_inputs.tables, PartitionSpec()
        )
        return ScoreInputs(
            tables,
            {name: specs.get(name) for name in self.score_inputs.counts},
            {name: (specs.get(name),) * 2 for name in self.score_inputs.scores},
        )

    def restored(self, name: str, per_id: jax.Array) -> jax.Array:
        """Returns one number per id, in the shape of the ids."""
        if self._inside:
            return per_id
        return _inputs.restored(self.placement, self.splits[name], per_id)

    def in_order(self, values: Mapping[str, T]) -> OrderedDict[str, T]:
        """Returns what is passed by feature, in the order of the features."""
        return OrderedDict((name, values[name]) for name in self.configs)

    def rows(self, rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns the rows without what was padded."""
        if self._inside:
            return self.in_order(rows)
        result = OrderedDict()
        for name, split in self.splits.items():
            each = rows[name]
            if each.shape[0] != split.batch:
                each = self.placement.gathered(each)[: split.batch]
            scalar = split.jagged is None and not split.given_shape
            result[name] = each[0] if scalar else each
        return result
