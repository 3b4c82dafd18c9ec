# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Position weights: a weight for each place in a bag, learnt with the model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jax_dynemb._src.nnx.interface import writable
from jax_dynemb._src.torchrec.collections import EmbeddingBagCollection
from jax_dynemb._src.torchrec.jagged_tensor import JaggedTensor
from jax_dynemb._src.torchrec.keyed_jagged_tensor import KeyedJaggedTensor
from jax_dynemb._src.torchrec.keyed_tensor import KeyedTensor
from jax_dynemb._src.torchrec.routes import RoutedFeatures, split_routed


class Clamped(nnx.Variable[jax.Array]):
    """Entries whose place was behind the last weight; uint32[]."""


class PositionWeightedModule(nnx.Module):
    """Weights the entries of one feature by their place in the bag.

    Args:
      max_feature_length: weights; entries behind the last one use that one, and are
        counted in ``clamped``.
      device: ignored.

    Attributes:
      position_weight: float32[max_feature_length], ones at first.
      clamped: how many entries were behind the last weight so far.
    """

    def __init__(self, max_feature_length: int, device: Any = None):
        if max_feature_length < 1:
            raise ValueError(
                f"max_feature_length is {max_feature_length}; bags need 1 or more: "
                "give the length of the longest bag."
            )
        self.position_weight = nnx.Param(jnp.ones(max_feature_length, jnp.float32))
        self.clamped = Clamped(jnp.zeros((), jnp.uint32))

    def __call__(self, features: JaggedTensor) -> JaggedTensor:
        """Returns the same bags with position weights; differentiable.

        Args:
          features: of one key.
        """
        place = jnp.asarray(features.positions())
        weights = self.position_weight[...]
        last = weights.shape[0] - 1
        if writable(self.clamped):
            live = jnp.arange(place.shape[0]) < jnp.sum(jnp.asarray(features.lengths()))
            behind = jnp.sum(live & (place > last)).astype(jnp.uint32)
            self.clamped.set_value(self.clamped.get_value() + behind)
        chosen = weights[jnp.minimum(place, last)]
        return JaggedTensor._of(features._values, features.lengths(), chosen)

    def state_dict(self) -> dict[str, jax.Array]:
        """Returns the weights under TorchRec's name."""
        return {"position_weight": self.position_weight[...]}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, **ignored: Any
    ) -> None:
        """Takes weights from arrays, or tensors of torch, by TorchRec's name.

        Args:
          state_dict: of TorchRec's module, or of this one.
          strict: False leaves out what one of the two does not have.
          ignored: ``assign``: arrays are copied.

        Raises:
          KeyError: strict, and the names differ.
          ValueError: there are more or fewer weights than here.
        """
        _load({"position_weight": self}, state_dict, strict)


class PositionWeightedModuleCollection(nnx.Module):
    """Position weights of several features.

    Args:
      max_feature_lengths: by key, how many weights.
      device: ignored.

    Attributes:
      position_weights: a ``PositionWeightedModule`` by key.
    """

    def __init__(self, max_feature_lengths: Mapping[str, int], device: Any = None):
        self.position_weights = nnx.data(
            {key: PositionWeightedModule(n) for key, n in max_feature_lengths.items()}
        )

    def __call__(self, features: KeyedJaggedTensor) -> KeyedJaggedTensor:
        """Returns the same entries with position weights.

        Args:
          features: entries of keys that have no position weights here weigh 1.
        """
        return _weighted(self.position_weights, features)

    @property
    def position_weights_dict(self) -> Mapping[str, PositionWeightedModule]:
        """The same as ``position_weights``."""
        return self.position_weights

    def state_dict(self) -> dict[str, jax.Array]:
        """Returns the weights under TorchRec's names, "position_weights.<key>"."""
        modules = self._by_name().items()
        return {name: module.position_weight[...] for name, module in modules}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, **ignored: Any
    ) -> None:
        """Takes weights by these names, see ``PositionWeightedModule``.

        Args:
          state_dict: of TorchRec's module, or of this one.
          strict: False leaves out what one of the two does not have.
          ignored: ``assign``: arrays are copied.
        """
        _load(self._by_name(), state_dict, strict)

    def _by_name(self) -> dict[str, PositionWeightedModule]:
        modules = self.position_weights.items()
        return {f"position_weights.{key}": module for key, module in modules}


class FeatureProcessedEmbeddingBagCollection(nnx.Module):
    """Pools rows with weights that a feature processor computes.

    Args:
      embedding_bag_collection: with ``is_weighted=True``.
      feature_processors: KeyedJaggedTensor to one with weights, such as
        ``PositionWeightedModuleCollection``. Or modules such as
        ``PositionWeightedModule`` by key, one for each feature of the tables.

    Raises:
      ValueError: the collection takes no weights, or modules by key are not those of
        its features.
    """

    def __init__(
        self,
        embedding_bag_collection: EmbeddingBagCollection,
        feature_processors: Any,
    ):
        if not embedding_bag_collection.is_weighted():
            raise ValueError(
                "the weights of a feature processor need "
                "EmbeddingBagCollection(..., is_weighted=True)."
            )
        self.embedding_bag_collection = embedding_bag_collection
        many = isinstance(feature_processors, Mapping)
        if many:
            _check_features(embedding_bag_collection, feature_processors)
        self.feature_processors = (
            nnx.data(dict(feature_processors)) if many else feature_processors
        )

    def __call__(
        self,
        features: KeyedJaggedTensor | RoutedFeatures,
        *,
        train: bool | None = None,
        **options: Any,
    ) -> KeyedTensor:
        """Weights the entries, looks them up and pools them.

        Args:
          features: with the keys of all tables, and perhaps others, which are left
            out. Or what ``route`` returned.
          train: as for ``EmbeddingBagCollection``.
          options: its ``scores``, ``counts``, ``now``, ``insert`` and ``touch``.
        """
        bags, sent = split_routed(features)
        if isinstance(self.feature_processors, Mapping):
            bags = _weighted(self.feature_processors, bags)
        else:
            bags = self.feature_processors(bags)
        batch = bags if sent is None else RoutedFeatures(bags, sent)
        return self.embedding_bag_collection(batch, train=train, **options)

    def stats(self, wait: bool = True) -> dict[str, float | int]:
        """Reads the counters of the tables.

        Args:
          wait: as for ``jde.nnx.EmbeddingBagCollection.stats``.
        """
        return self.embedding_bag_collection.stats(wait)

    def split(self) -> tuple[Any, EmbeddingBagCollection]:
        """Returns the processors, as one function of the tensor; and the collection."""
        processors = self.feature_processors
        if isinstance(processors, Mapping):
            processors = functools.partial(_weighted, processors)
        return processors, self.embedding_bag_collection

    def is_weighted(self) -> bool:
        """Returns True: processors give the weights."""
        return True

    def route(self, features: KeyedJaggedTensor) -> RoutedFeatures:
        """Sends ids ahead; weights are computed by the call, from its parameters.

        Args:
          features: as for the call.
        """
        return self.embedding_bag_collection.route(features)


def _load(
    modules: Mapping[str, PositionWeightedModule],
    state_dict: Mapping[str, Any],
    strict: bool,
) -> None:
    different = sorted(modules.keys() ^ state_dict.keys())
    if strict and different:
        raise KeyError(
            f"the state dict has {sorted(state_dict)}, and the module has "
            f"{sorted(modules)}. Pass strict=False to leave out {different}."
        )
    given = {n: np.asarray(state_dict[n]) for n in modules if n in state_dict}
    for name, array in given.items():
        shape = modules[name].position_weight[...].shape
        if array.shape != shape:
            raise ValueError(
                f"{name} has shape {array.shape}, and the module has {shape}: make it "
                f"with max_feature_length={array.shape[0] if array.ndim else 1}."
            )
    for name, array in given.items():
        modules[name].position_weight.set_value(jnp.asarray(array, jnp.float32))


def _check_features(bags: EmbeddingBagCollection, modules: Mapping[str, Any]) -> None:
    """Refuses a feature without a module, which would weigh 1, and the reverse."""
    wanted = {route.feature for route in bags.routes}
    if different := sorted(wanted ^ set(modules)):
        raise ValueError(
            f"feature_processors has {sorted(modules)}, but the tables have the "
            f"features {sorted(wanted)}: give one for each of them, and none for "
            f"others ({different} differ)."
        )


def _weighted(
    modules: Mapping[str, Any], features: KeyedJaggedTensor
) -> KeyedJaggedTensor:
    """Gives the entries of each key the weights of its module; of other keys, ones."""
    bags = features.to_dict()
    weights = [
        jnp.asarray(modules[key](jt).weights())
        if key in modules
        else jnp.ones(jt._values.shape[0], jnp.float32)
        for key, jt in bags.items()
    ]
    return features.with_weights(jnp.concatenate(weights)) if weights else features
