# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""KeyedTensor: dense columns by key, concatenated only where a caller needs it."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np

from jax_dynemb._src.torchrec import text as _text
from jax_dynemb._src.torchrec.arrays import is_traced, xp
from jax_dynemb._src.torchrec.asserted import AssertedError
from jax_dynemb._src.torchrec.check import check_keys
from jax_dynemb._src.torchrec.configs import DTYPES
from jax_dynemb._src.torchrec.placed import Placed
from jax_dynemb._src.torchrec.refused import refused_attribute


@jax.tree_util.register_pytree_with_keys_class
class KeyedTensor(Placed):
    """Arrays by key, one beside the other along an axis; a pytree.

    It holds the arrays apart and concatenates them in ``values()``. A model that reads
    them by key, or regroups them, never makes the wide array.

    Args:
      keys: names, each once.
      length_per_key: columns of each key.
      values: [B, sum of lengths], or another shape that is as long along ``key_dim``.
      key_dim: the axis that keys share.
      offset_per_key: ignored, as it follows from the lengths.
      index_per_key: ignored, as it follows from the keys.

    Raises:
      ValueError: the lengths do not add up to the columns there are.
    """

    def __init__(
        self,
        keys: Sequence[str],
        length_per_key: Sequence[int],
        values: Any,
        key_dim: int = 1,
        offset_per_key: Any = None,
        index_per_key: Any = None,
    ):
        ends = np.cumsum(np.asarray(length_per_key, int))
        total = int(ends[-1]) if len(ends) else 0
        columns = values.shape[key_dim] if len(keys) else values.size
        if len(ends) != len(keys) or total != columns:
            raise ValueError(
                f"length_per_key {list(length_per_key)} is not of {len(keys)} keys "
                f"with {columns} columns together: give the columns of each key."
            )
        pieces = xp(values).split(values, ends[:-1], axis=key_dim) if len(ends) else []
        self._set(check_keys(keys), list(pieces), key_dim)

    def _set(self, keys: tuple[str, ...], arrays: list[Any], key_dim: int) -> None:
        self._keys, self._arrays, self._key_dim = keys, arrays, key_dim

    @classmethod
    def from_tensor_list(
        cls,
        keys: Sequence[str],
        tensors: Sequence[Any],
        key_dim: int = 1,
        cat_dim: int | None = None,
    ) -> Self:
        """Makes one from an array for each key.

        Args:
          keys: names, each once.
          tensors: arrays whose shapes differ along ``key_dim`` only.
          key_dim: the axis that keys share.
          cat_dim: the same axis, or None.

        Raises:
          ValueError: there is not one array a key, or two axes are given.
        """
        if cat_dim not in (None, key_dim):
            raise ValueError(
                f"keys share axis key_dim={key_dim}, so their arrays stand side by "
                f"side there and not along cat_dim={cat_dim}: give one number."
            )
        if len(keys) != len(tensors):
            raise ValueError(
                f"{len(keys)} keys have {len(tensors)} tensors: give one array a key."
            )
        return cls._of((check_keys(keys), key_dim), list(tensors))

    @classmethod
    def _of(cls, static: Any, arrays: Any) -> Self:
        new = object.__new__(cls)
        new._set(static[0], list(arrays), static[1])
        return new

    def tree_flatten_with_keys(self) -> Any:
        """Names the leaves, for JAX."""
        names = map(jax.tree_util.DictKey, self._keys)
        pairs = tuple(zip(names, self._arrays, strict=True))
        return pairs, (self._keys, self._key_dim)

    @classmethod
    def tree_unflatten(cls, static: Any, leaves: Any) -> Self:
        """Puts the leaves together again, for JAX."""
        return cls._of(static, leaves)

    def keys(self) -> list[str]:
        """Returns the names, in order."""
        return list(self._keys)

    def key_dim(self) -> int:
        """Returns the axis that keys share."""
        return self._key_dim

    def length_per_key(self) -> list[int]:
        """Returns the columns of each key; static."""
        return [array.shape[self._key_dim] for array in self._arrays]

    def offset_per_key(self) -> list[int]:
        """Returns where the columns of each key begin, and where the last ones end."""
        return np.cumsum([0, *self.length_per_key()]).tolist()

    @property
    def _length_per_key(self) -> list[int]:
        return self.length_per_key()

    @property
    def _values(self) -> Any:
        return self.values()

    def values(self) -> Any:
        """Returns the arrays side by side.

        Raises:
          ValueError: keys have different numbers of rows, as without
            ``inverse_indices`` in a variable batch.
        """
        if not self._arrays:
            return np.zeros((0, 0), np.float32)
        axis = self._key_dim % self._arrays[0].ndim
        others = {x.shape[:axis] + x.shape[axis + 1 :] for x in self._arrays}
        if len(others) > 1:
            raise ValueError(
                f"keys have rows of different shapes {sorted(others)}, so they cannot "
                "stand side by side: read them by key, or give the KeyedJaggedTensor "
                "inverse_indices."
            )
        return xp(*self._arrays).concatenate(self._arrays, axis=axis)

    def __getitem__(self, key: str) -> Any:
        """Returns the array of one key.

        Raises:
          KeyError: there is no such key.
        """
        if key not in self._keys:
            near = difflib.get_close_matches(str(key), self._keys, 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise KeyError(f"no key '{key}': {hint}keys are {self.keys()}")
        return self._arrays[self._keys.index(key)]

    def to_dict(self) -> dict[str, Any]:
        """Returns the arrays by key."""
        return OrderedDict(zip(self._keys, self._arrays, strict=True))

    @staticmethod
    def regroup(
        keyed_tensors: Sequence[KeyedTensor], groups: Sequence[Sequence[str]]
    ) -> list[Any]:
        """Puts keys of several tensors side by side, group by group.

        Args:
          keyed_tensors: where the keys are looked for, in order.
          groups: the keys of each group; one may be in several.

        Returns:
          An array for each group.

        Raises:
          KeyError: no tensor has a key.
          TypeError: a single tensor, or none of this class.
        """
        if isinstance(keyed_tensors, KeyedTensor):
            raise TypeError(
                "regroup takes a list of KeyedTensors: write regroup([kt], groups)."
            )
        found: dict[str, Any] = {}
        for tensor in keyed_tensors:
            found = tensor.to_dict() | found
        axis = keyed_tensors[0].key_dim() if keyed_tensors else 1
        return [_side_by_side(found, group, axis) for group in groups]

    @staticmethod
    def regroup_as_dict(
        keyed_tensors: Sequence[KeyedTensor],
        groups: Sequence[Sequence[str]],
        keys: Sequence[str],
    ) -> dict[str, Any]:
        """Does the same, and names the groups.

        Args:
          keyed_tensors: where the keys are looked for, in order.
          groups: the keys of each group.
          keys: the name of each group.
        """
        if len(groups) != len(keys):
            raise AssertedError(
                f"{len(groups)} groups have {len(keys)} names: give one key a group."
            )
        arrays = KeyedTensor.regroup(keyed_tensors, groups)
        return OrderedDict(zip(keys, arrays, strict=True))

    def __str__(self) -> str:
        """Shows columns by key; shapes where numbers are unknown."""
        return repr(self) if is_traced(*self._arrays) else _text.keyed_tensor(self)

    def __repr__(self) -> str:
        """Shows keys and shapes."""
        shapes = {key: array.shape for key, array in self.to_dict().items()}
        return f"KeyedTensor({shapes})"

    __getattr__ = refused_attribute


def _side_by_side(found: dict[str, Any], group: Sequence[str], axis: int) -> Any:
    if missing := [key for key in group if key not in found]:
        raise KeyError(f"regroup: no tensor has key '{missing[0]}': {sorted(found)}")
    arrays = [found[key] for key in group]
    if len(arrays) == 1:
        return arrays[0]
    return xp(*arrays).concatenate(arrays, axis=axis)


class KTRegroupAsDict:
    """Regroups keyed tensors, with groups and names set once.

    Args:
      groups: the keys of each group.
      keys: the name of each group.
      emb_dtype: of the result, a ``DataType`` or a dtype; as given if None.
      ignored: ``multi_device`` of TorchRec.

    Raises:
      ValueError: there is not one name a group.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[str]],
        keys: Sequence[str],
        emb_dtype: Any = None,
        **ignored: Any,
    ):
        if len(groups) != len(keys):
            raise AssertedError(
                f"{len(groups)} groups have {len(keys)} names: give one key a group."
            )
        self.groups = tuple(map(tuple, groups))
        self.keys = tuple(keys)
        name = getattr(emb_dtype, "value", emb_dtype)
        self._dtype = DTYPES.get(name, name)

    def __call__(self, keyed_tensors: Sequence[KeyedTensor]) -> dict[str, Any]:
        """Returns an array for each group, by name.

        Args:
          keyed_tensors: where the keys are looked for, in order.
        """
        out = KeyedTensor.regroup_as_dict(keyed_tensors, self.groups, self.keys)
        if self._dtype is None:
            return out
        return OrderedDict((key, x.astype(self._dtype)) for key, x in out.items())
