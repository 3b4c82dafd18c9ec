# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""JaggedTensor: bags of different lengths, with weights if there are any."""

from __future__ import annotations

from typing import Any, Self

import jax
import numpy as np

from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.torchrec import bags as _bags
from jax_dynemb._src.torchrec import text as _text
from jax_dynemb._src.torchrec.arrays import is_pairs, is_traced, shown, stored, xp
from jax_dynemb._src.torchrec.asserted import AssertedError
from jax_dynemb._src.torchrec.check import (
    check_lengths_of,
    check_weights,
    lengths_from_offsets,
)
from jax_dynemb._src.torchrec.placed import Placed
from jax_dynemb._src.torchrec.refused import refused_attribute


@jax.tree_util.register_pytree_with_keys_class
class JaggedTensor(Placed):
    """Bags one after the other in one array; a pytree.

    Args:
      values: ids in NumPy (any integers), pairs of words from ``jde.ids``, or floats
        [n] or [n, D].
      weights: float[n], one number an entry, or None.
      lengths: integers [B], entries of each bag.
      offsets: integers [B + 1], where bags begin, and where the last one ends. Give
        lengths or offsets; of both, they are compared.

    Raises:
      ValueError: lengths or offsets on the host are no lengths of these values, or
        there is not one weight an entry.
    """

    def __init__(
        self,
        values: Any,
        weights: Any = None,
        lengths: Any = None,
        offsets: Any = None,
    ):
        values = stored(values)
        lengths = lengths_from_offsets(lengths, offsets)
        if values.shape[:1] == (0,) and lengths is None:
            lengths = np.zeros(0, np.int32)
        self._set(values, check_lengths_of(lengths, values.shape[0]), weights)
        check_weights(weights, values.shape[0])

    def _set(self, values: Any, lengths: Any, weights: Any) -> None:
        self._values, self._lengths = values, lengths
        self._weights = np.asarray(weights) if isinstance(weights, list) else weights

    @classmethod
    def _of(cls, values: Any, lengths: Any, weights: Any) -> Self:
        """Takes arrays as they are, whatever they hold."""
        new = object.__new__(cls)
        new._set(values, lengths, weights)
        return new

    def tree_flatten_with_keys(self) -> Any:
        """Names the leaves, for JAX."""
        names = ("values", "lengths", "weights")
        leaves = (self._values, self._lengths, self._weights)
        keys = map(jax.tree_util.GetAttrKey, names)
        return tuple(zip(keys, leaves, strict=True)), None

    @classmethod
    def tree_unflatten(cls, _: Any, leaves: Any) -> Self:
        """Puts the leaves together again, for JAX."""
        return cls._of(*leaves)

    @classmethod
    def empty(
        cls,
        is_weighted: bool = False,
        device: Any = None,
        values_dtype: Any = np.float32,
        weights_dtype: Any = np.float32,
        lengths_dtype: Any = np.int32,
    ) -> Self:
        """Makes one without bags.

        Args:
          is_weighted: whether it has weights, none of them.
          device: ignored.
          values_dtype: of NumPy; integers are ids.
          weights_dtype: likewise.
          lengths_dtype: likewise.
        """
        weights = np.zeros(0, weights_dtype) if is_weighted else None
        values = stored(np.zeros(0, values_dtype))
        return cls._of(values, np.zeros(0, lengths_dtype), weights)

    @classmethod
    def from_dense(cls, values: Any, weights: Any = None) -> Self:
        """Makes one from a list of arrays, one a bag.

        Args:
          values: arrays [n_b] or [n_b, D] of ids or floats.
          weights: arrays [n_b], or None.

        Raises:
          ValueError: there is no bag.
        """
        if not len(values):
            raise ValueError(
                "from_dense needs one bag or more; JaggedTensor.empty() has none."
            )
        lengths = np.array([len(bag) for bag in values], np.int32)
        module = xp(*values)
        flat = module.concatenate(list(map(module.asarray, values)))
        if weights is not None:
            weights = xp(*weights).concatenate([xp(w).asarray(w) for w in weights])
        return cls(flat, weights, lengths)

    @classmethod
    def from_dense_lengths(cls, values: Any, lengths: Any, weights: Any = None) -> Self:
        """Makes one from bags of equal size, of which the first entries count.

        Args:
          values: [B, N] or [B, N, D] of ids or floats.
          lengths: integers [B], how many entries of each bag to take.
          weights: float[B, N], or None.

        Returns:
          Exactly the entries that count, if the lengths are on the host; under jit
          with a capacity of B * N.

        Raises:
          ValueError: a length is negative or more than N.
        """
        values, weights = stored(values), None if weights is None else weights
        bags, size = values.shape[:2]
        if not is_traced(lengths):
            lengths = check_lengths_of(np.asarray(lengths), None)
            if lengths.shape != (bags,) or (bags and lengths.max() > size):
                raise ValueError(
                    f"lengths {lengths.tolist()} are not those of {bags} bags of "
                    f"{size}: give one number of 0 to {size} for each bag."
                )
        capacity = bags * size if is_traced(lengths) else int(lengths.sum())
        flat = _bags.from_padded(values, lengths, capacity)
        if weights is not None:
            weights = _bags.from_padded(stored(weights), lengths, capacity)
        return cls._of(flat, lengths, weights)

    def values(self) -> Any:
        """Returns the entries: np.int64[n] for ids on the host, pairs elsewhere."""
        return shown(self._values)

    def lengths(self) -> Any:
        """Returns the number of entries of each bag, int[B]."""
        return self._lengths

    def lengths_or_none(self) -> Any:
        """Returns the lengths, which are always there."""
        return self._lengths

    def offsets(self) -> Any:
        """Returns where bags begin, int[B + 1]; int[0] where there is no bag."""
        if self._lengths.shape[0] == 0:
            return self._lengths
        return _bags.offsets_from(self._lengths)

    @property
    def _offsets(self) -> Any:
        return self.offsets()

    def offsets_or_none(self) -> Any:
        """Returns the offsets, which can always be computed."""
        return self.offsets()

    def weights(self) -> Any:
        """Returns one number an entry, float[n].

        Raises:
          ValueError: there are no weights.
        """
        if self._weights is None:
            raise AssertedError(
                "this JaggedTensor has no weights: give weights=... when you make it, "
                "or call weights_or_none()."
            )
        return shown(self._weights)

    def weights_or_none(self) -> Any:
        """Returns the weights, or None."""
        return None if self._weights is None else shown(self._weights)

    def positions(self) -> Any:
        """Returns the place of each entry in its bag, int32[n].

        Entries behind the last bag have places as if they were a bag of their own.
        """
        return _bags.positions(self._lengths, self._values.shape[0])[1]

    def to_dense(self) -> list[Any]:
        """Returns one array a bag. On the host only, since their sizes are data.

        Raises:
          TypeError: under jit.
        """
        return self._bags_of(shown(np.asarray(self._host("to_dense", self._values))))

    def to_dense_weights(self) -> list[Any] | None:
        """Returns the weights of each bag, or None. On the host only.

        Raises:
          TypeError: under jit.
        """
        if self._weights is None:
            return None
        weights = self._host("to_dense_weights", self.weights())
        return self._bags_of(np.asarray(weights))

    def _host(self, call: str, array: Any) -> Any:
        if is_traced(array, self._lengths):
            raise TypeError(
                f"{call}() makes arrays whose sizes are data, so it cannot stand "
                "inside jit: use to_padded_dense(desired_length) there."
            )
        return array

    def _bags_of(self, flat: np.ndarray) -> list[np.ndarray]:
        offsets = np.cumsum(np.asarray(self._lengths))
        return np.split(flat, offsets)[: len(offsets)]

    def to_padded_dense(
        self, desired_length: int | None = None, padding_value: float = 0.0
    ) -> Any:
        """Returns bags of equal size, each its first entries, filled up.

        Args:
          desired_length: entries of each bag; the longest bag's if None.
          padding_value: what bags are filled up with. -1 is padding for a lookup.

        Returns:
          [B, L] or [B, L, D]; ids under jit are pairs [B, L, 2]. Differentiable.

        Raises:
          TypeError: without ``desired_length`` under jit, where shapes are static.
        """
        padded = _bags.to_padded(
            self._values, self._lengths, self._size(desired_length), padding_value
        )
        return shown(padded) if is_pairs(self._values) else padded

    def to_padded_dense_weights(
        self, desired_length: int | None = None, padding_value: float = 0.0
    ) -> Any:
        """Returns the weights as ``to_padded_dense`` does the values; None without any.

        Args:
          desired_length: entries of each bag; the longest bag's if None.
          padding_value: what bags are filled up with.

        Raises:
          TypeError: without ``desired_length`` under jit.
        """
        if self._weights is None:
            return None
        size = self._size(desired_length)
        return _bags.to_padded(self.weights(), self._lengths, size, padding_value)

    def _size(self, desired_length: int | None) -> int:
        if desired_length is not None:
            return int(desired_length)
        if is_traced(self._lengths):
            raise TypeError(
                "to_padded_dense needs desired_length under jit, where shapes are "
                "static: write to_padded_dense(desired_length=20)."
            )
        return int(np.max(np.asarray(self._lengths), initial=0))

    def jagged(self) -> Jagged:
        """Returns the ids and lengths as the core takes them."""
        return Jagged(self._values, self._lengths)

    def __str__(self) -> str:
        """Shows bags; shapes where numbers are unknown."""
        if is_traced(self._values, self._lengths):
            return repr(self)
        return _text.jagged_tensor(self)

    def __repr__(self) -> str:
        """Shows shapes."""
        shapes = f"{self._values.shape}, bags={self._lengths.shape[0]}"
        return f"JaggedTensor({shapes}, weighted={self._weights is not None})"

    __getattr__ = refused_attribute


def jt_is_equal(a: JaggedTensor, b: JaggedTensor) -> bool:
    """Tells whether two hold the same bags, entries and weights. On the host only.

    Args:
      a: one.
      b: the other.
    """
    if not (isinstance(a, JaggedTensor) and isinstance(b, JaggedTensor)):
        return False
    if (a.weights_or_none() is None) != (b.weights_or_none() is None):
        return False
    pairs = [(a.to_dense(), b.to_dense())]
    pairs.append((a.to_dense_weights() or [], b.to_dense_weights() or []))
    return all(len(x) == len(y) and all(map(np.array_equal, x, y)) for x, y in pairs)
