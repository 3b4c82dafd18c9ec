# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Accessors of a KeyedJaggedTensor; most of what they return is static."""

from __future__ import annotations

from typing import Any

import numpy as np

from jax_dynemb._src.torchrec import bags as _bags
from jax_dynemb._src.torchrec import misfit as _misfit
from jax_dynemb._src.torchrec import regions as _regions
from jax_dynemb._src.torchrec.arrays import is_traced, shown
from jax_dynemb._src.torchrec.asserted import AssertedError
from jax_dynemb._src.torchrec.layout import Layout
from jax_dynemb._src.torchrec.placed import Placed
from jax_dynemb._src.torchrec.validate import check_offsets_exist


class Accessors(Placed):
    """Holds the leaves and the layout, and answers TorchRec's questions about them.

    Attributes:
      dropped: uint32[F], the entries of each key that had no room under jit; or None.
    """

    def _set(
        self,
        layout: Layout,
        values: Any,
        lengths: Any,
        weights: Any,
        dropped: Any,
        inverse: Any,
    ) -> None:
        self._layout, self._values, self._lengths = layout, values, lengths
        self._weights, self.dropped, self._inverse = weights, dropped, inverse

    def _leaves(self) -> tuple[Any, ...]:
        leaves = (self._values, self._lengths, self._weights)
        return (*leaves, self.dropped, self._inverse)

    @property
    def _offsets(self) -> Any:
        return self.offsets()

    @property
    def _length_per_key(self) -> Any:
        return self.length_per_key()

    @property
    def _offset_per_key(self) -> Any:
        return self.offset_per_key()

    def keys(self) -> list[str]:
        """Returns the names, in order."""
        return list(self._layout.keys)

    def values(self) -> Any:
        """Returns the entries in regions: np.int64[V] for ids on the host."""
        return shown(self._values)

    def lengths(self) -> Any:
        """Returns the entries of each bag, int[sum of strides]."""
        if self._lengths is None:
            _misfit.refuse(self._layout, "lengths")
        return self._lengths

    def lengths_or_none(self) -> Any:
        """Returns the lengths; None where neither they nor offsets were given."""
        return self._lengths

    def weights(self) -> Any:
        """Returns one number an entry, float[V].

        Raises:
          ValueError: there are no weights.
        """
        if self._weights is None:
            raise AssertedError(
                "this KeyedJaggedTensor has no weights: give weights=... when you make "
                "it, or call weights_or_none()."
            )
        return self._weights

    def weights_or_none(self) -> Any:
        """Returns the weights, or None."""
        return self._weights

    def offsets(self) -> Any:
        """Returns where each bag begins, int[sum of strides + 1].

        Raises:
          TypeError: under jit, where it is unknown whether regions are full.
          ValueError: regions have room left, so no offsets describe them.
        """
        if self._layout.misfit is not None:
            return _misfit.offsets_of(self._layout, self._lengths)
        check_offsets_exist(self._layout, self._lengths)
        return _bags.offsets_from(self._lengths)

    def offsets_or_none(self) -> Any:
        """Returns the offsets, or None where regions have room left."""
        try:
            return self.offsets()
        except (TypeError, ValueError):
            return None

    def stride(self) -> int:
        """Returns the number of examples; the most bags of a key where they differ."""
        return self._layout.stride

    def stride_per_key(self) -> list[int]:
        """Returns the number of bags of each key."""
        return list(self._layout.strides)

    def stride_per_key_per_rank(self) -> list[list[int]]:
        """Returns the bags of each key on each rank; empty with one stride for all."""
        return [list(row) for row in self._layout.ranks or ()]

    def variable_stride_per_key(self) -> bool:
        """Tells whether keys may differ in their number of bags."""
        return self._layout.ranks is not None

    def inverse_indices(self) -> tuple[list[str], Any]:
        """Returns the keys, and int[F, B] with the bag of each example.

        Raises:
          ValueError: there are none.
        """
        if (inverse := self.inverse_indices_or_none()) is None:
            raise AssertedError(
                "this KeyedJaggedTensor has no inverse_indices: give them when you "
                "make it, or call inverse_indices_or_none()."
            )
        return inverse

    def inverse_indices_or_none(self) -> tuple[list[str], Any] | None:
        """Returns the keys and int[F, B], or None."""
        keys = self._layout.inverse_keys
        return None if keys is None else (list(keys), self._inverse)

    def index_per_key(self) -> dict[str, int]:
        """Returns the place of each key."""
        return {key: k for k, key in enumerate(self._layout.keys)}

    def lengths_offset_per_key(self) -> list[int]:
        """Returns where the bags of each key begin, and where the last ones end."""
        return self._layout.bag_starts.tolist()

    def capacity_per_key(self) -> list[int]:
        """Returns the room for entries of each key."""
        return list(self._layout.capacities)

    def length_per_key(self) -> Any:
        """Returns the entries of each key: a list, or int32[F] under jit."""
        return _listed(self._counts("length_per_key"))

    def _counts(self, call: str) -> Any:
        if self._lengths is None or len(self._lengths) != sum(self._layout.strides):
            _misfit.refuse(self._layout, call)
        return _regions.counts_of(self._lengths, self._layout.strides)

    def length_per_key_or_none(self) -> Any:
        """Returns the entries of each key, which can always be counted."""
        return self.length_per_key()

    def offset_per_key(self) -> Any:
        """Returns where each key begins in ``packed()``: a list, or int32[F + 1]."""
        return _listed(_bags.offsets_from(self._counts("offset_per_key")))

    def offset_per_key_or_none(self) -> Any:
        """Returns the offsets of keys, which can always be counted."""
        return self.offset_per_key()


def _listed(numbers: Any) -> Any:
    """Returns a list where the numbers are known, as TorchRec does."""
    return numbers if is_traced(numbers) else np.asarray(numbers).tolist()
