# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""KeyedJaggedTensor: the bags of several keys in static regions of one array."""

from __future__ import annotations

import dataclasses
import difflib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.torchrec import construct as _construct
from jax_dynemb._src.torchrec import join as _join
from jax_dynemb._src.torchrec import misfit as _misfit
from jax_dynemb._src.torchrec import regions as _regions
from jax_dynemb._src.torchrec import text as _text
from jax_dynemb._src.torchrec.accessors import Accessors
from jax_dynemb._src.torchrec.arrays import is_traced, stored
from jax_dynemb._src.torchrec.asserted import MisfitError
from jax_dynemb._src.torchrec.jagged_tensor import JaggedTensor
from jax_dynemb._src.torchrec.layout import Layout
from jax_dynemb._src.torchrec.refused import refused_attribute
from jax_dynemb._src.torchrec.validate import check_inverse


@jax.tree_util.register_pytree_with_keys_class
class KeyedJaggedTensor(Accessors):
    """Bags of several keys; a pytree whose keys, strides and regions are static.

    The entries of key k lie at the front of its region of ``capacities[k]`` places;
    the rest is -1 (weights: 0). So ``[]``, ``split``, ``permute`` and ``to_dict`` are
    slices known while tracing. Without ``capacity`` regions are exactly as large as
    needed, and a batch with other counts is another shape.

    Args:
      keys: names, each once.
      values: entries of all keys, one after the other: ids in NumPy, pairs of words
        from ``jde.ids``, or floats [n] or [n, D].
      weights: float[n], or None.
      lengths: integers [F * B], entries of each bag, by key first.
      offsets: integers [F * B + 1], instead of lengths.
      stride: B; computed if None.
      stride_per_key_per_rank: where keys differ in their number of bags, a list of
        bag counts for each key.
      stride_per_key: bags of each key, where they differ.
      length_per_key: compared with what follows from the others, as the three below.
      lengths_offset_per_key: compared.
      offset_per_key: compared.
      index_per_key: compared.
      jt_dict: ignored.
      inverse_indices: keys, and int[F, B]: which of its bags stands for each example.
      capacity: room for each key: an int, a dict by key, or a ``Capacity``.
      check: False skips the comparison of lengths with values.

    Arguments that contradict each other make a tensor, as TorchRec's do, from which no
    bag can be read: ``[]``, ``to_dict``, ``split``, ``permute``, ``validate`` and every
    lookup say what does not fit. With a ``capacity`` the constructor does.

    Raises:
      AssertionError: lengths or offsets are no integers; also a ValueError.
      TypeError: under jit, where ``from_lengths`` belongs.
      ValueError: arguments contradict each other, and there is a capacity; or they do
        not fit it.
    """

    def __init__(
        self,
        keys: Sequence[str],
        values: Any,
        weights: Any = None,
        lengths: Any = None,
        offsets: Any = None,
        stride: int | None = None,
        stride_per_key_per_rank: Any = None,
        stride_per_key: Any = None,
        length_per_key: Any = None,
        lengths_offset_per_key: Any = None,
        offset_per_key: Any = None,
        index_per_key: Any = None,
        jt_dict: Any = None,
        inverse_indices: tuple[Sequence[str], Any] | None = None,
        *,
        capacity: Any = None,
        check: bool = True,
    ):
        if not len(keys) and lengths is None and offsets is None:
            lengths = ()
        if stride_per_key_per_rank is None and len(set(stride_per_key or ())) > 1:
            stride_per_key_per_rank = [[bags] for bags in stride_per_key]
        others = (stride, stride_per_key_per_rank, inverse_indices)
        raw = _misfit.Raw(keys, values, lengths, offsets, weights, *others)
        told = {
            "length_per_key": length_per_key,
            "lengths_offset_per_key": lengths_offset_per_key,
            "offset_per_key": offset_per_key,
            "index_per_key": index_per_key,
        }
        try:
            self._set_fitting(raw, capacity, check)
            _misfit.check_told(told, self)
        except MisfitError as error:
            if capacity is not None or raw.is_traced():
                raise
            self._set(*_misfit.parts(raw, error))

    def _set_fitting(self, raw: _misfit.Raw, capacity: Any, check: bool) -> None:
        given = _construct.Given.of(*vars(raw).values())
        layout, arrays, lengths = _construct.on_host(given, capacity, check)
        inverse = None
        if raw.inverse is not None:
            inverse = check_inverse(layout, raw.inverse[1])
        weights = None if given.weights is None else arrays[1]
        self._set(layout, arrays[0], lengths, weights, None, inverse)

    @classmethod
    def _of(cls, layout: Layout, *leaves: Any) -> Self:
        """Takes arrays as they are, whatever they hold."""
        new = object.__new__(cls)
        new._set(layout, *leaves)
        return new

    def tree_flatten_with_keys(self) -> Any:
        """Names the leaves, for JAX."""
        names = ("values", "lengths", "weights", "dropped", "inverse_indices")
        keys = map(jax.tree_util.GetAttrKey, names)
        return tuple(zip(keys, self._leaves(), strict=True)), self._layout

    @classmethod
    def tree_unflatten(cls, layout: Layout, leaves: Any) -> Self:
        """Puts the leaves together again, for JAX."""
        return cls._of(layout, *leaves)

    @classmethod
    def from_lengths_sync(
        cls,
        keys: Sequence[str],
        values: Any,
        lengths: Any,
        weights: Any = None,
        stride: int | None = None,
        stride_per_key_per_rank: Any = None,
        inverse_indices: tuple[Sequence[str], Any] | None = None,
        *,
        capacity: Any = None,
        check: bool = True,
    ) -> Self:
        """Makes one from lengths on the host; arguments as for the class."""
        return cls(
            keys,
            values,
            weights,
            lengths,
            None,
            stride,
            stride_per_key_per_rank,
            inverse_indices=inverse_indices,
            capacity=capacity,
            check=check,
        )

    @classmethod
    def from_offsets_sync(
        cls,
        keys: Sequence[str],
        values: Any,
        offsets: Any,
        weights: Any = None,
        stride: int | None = None,
        stride_per_key_per_rank: Any = None,
        inverse_indices: tuple[Sequence[str], Any] | None = None,
        *,
        capacity: Any = None,
        check: bool = True,
    ) -> Self:
        """Makes one from offsets on the host; arguments as for the class."""
        return cls(
            keys,
            values,
            weights,
            None,
            offsets,
            stride,
            stride_per_key_per_rank,
            inverse_indices=inverse_indices,
            capacity=capacity,
            check=check,
        )

    @classmethod
    def from_lengths(
        cls,
        keys: Sequence[str],
        values: Any,
        lengths: Any,
        weights: Any = None,
        stride: int | None = None,
        stride_per_key_per_rank: Any = None,
        inverse_indices: tuple[Sequence[str], Any] | None = None,
        *,
        capacities: Any,
    ) -> Self:
        """Makes one from lengths that are data, under jit too.

        Args:
          keys: names, each once.
          values: entries of all keys, one after the other; the rest is passed over.
          lengths: integers [F * B].
          weights: float[n], or None.
          stride: B; computed if None.
          stride_per_key_per_rank: a list of bag counts for each key.
          inverse_indices: keys and int[F, B].
          capacities: room for each key: an int, a dict by key, or a sequence.

        Returns:
          One whose ``dropped``, uint32[F], says how many entries of each key had no
          room. Its lengths are those of the entries that it has. A negative length
          counts as one entry, and 3e9 entries and more as 2**32 - 1.
        """
        others = (stride, stride_per_key_per_rank, inverse_indices)
        given = _construct.Given.of(keys, values, lengths, None, weights, *others)
        layout, arrays, lengths, dropped = _construct.in_program(given, capacities)
        inverse = None
        if inverse_indices is not None:
            inverse = check_inverse(layout, inverse_indices[1])
        weights = None if weights is None else arrays[1]
        return cls._of(layout, arrays[0], lengths, weights, dropped, inverse)

    @classmethod
    def from_jt_dict(cls, jt_dict: Mapping[str, JaggedTensor]) -> Self:
        """Makes one from JaggedTensors by key; each keeps its capacity.

        Args:
          jt_dict: by key. Keys with different numbers of bags give a variable batch.

        Raises:
          ValueError: some have weights and others have none.
        """
        return cls._of(*_join.from_jagged(jt_dict))

    @classmethod
    def concat(cls, kjt_list: Sequence[KeyedJaggedTensor]) -> Self:
        """Puts the keys of several after each other.

        Args:
          kjt_list: of one batch, each key in one of them only. Of some that do not
            fit, the result does not either.

        Raises:
          ValueError: keys occur twice; weights or strides do not suit each other.
        """
        parts = [(kjt._layout, *kjt._leaves()) for kjt in kjt_list]
        return cls._of(*_join.concatenated(parts))

    @classmethod
    def empty(cls, is_weighted: bool = False, *args: Any, **kwargs: Any) -> Self:
        """Makes one without keys.

        Args:
          is_weighted: whether it has weights, none of them.
          args: as for ``JaggedTensor.empty``: device and dtypes.
          kwargs: likewise.
        """
        jt = JaggedTensor.empty(is_weighted, *args, **kwargs)
        leaves = jt._values, jt._lengths, jt._weights, None, None
        return cls._of(Layout((), (), (), 0), *leaves)

    @classmethod
    def empty_like(cls, kjt: KeyedJaggedTensor) -> Self:
        """Makes one without keys, with the batch and the dtypes of another.

        Args:
          kjt: the other.
        """
        return kjt.split([0])[0]  # pyright: ignore[reportReturnType]

    def __getitem__(self, key: str) -> JaggedTensor:
        """Returns the bags of one key; a slice.

        Raises:
          KeyError: there is no such key.
          TypeError: the key is no name.
        """
        if not isinstance(key, str):
            raise TypeError(
                f"a KeyedJaggedTensor has bags by name, not {kind_of(key)}: loop over "
                "kjt.to_dict().items(), or write kjt[kjt.keys()[0]]."
            )
        self._check_regions("[]")
        if key not in self._layout.keys:
            near = difflib.get_close_matches(str(key), self._layout.keys, 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise KeyError(f"no key '{key}': {hint}keys are {self.keys()}")
        return self._at(self._layout.keys.index(key))

    def _at(self, k: int) -> JaggedTensor:
        bags, places = self._layout.bag_starts, self._layout.starts
        bag, place = slice(bags[k], bags[k + 1]), slice(places[k], places[k + 1])
        weights = None if self._weights is None else self._weights[place]
        return JaggedTensor._of(self._values[place], self._lengths[bag], weights)

    def to_dict(self) -> dict[str, JaggedTensor]:
        """Returns the bags of each key by name; slices."""
        self._check_regions("to_dict")
        pairs = ((key, self._at(k)) for k, key in enumerate(self._layout.keys))
        return OrderedDict(pairs)  # jit keeps its order

    def jagged_by_feature(self) -> dict[str, Jagged]:
        """Returns what every lookup of the core takes, by key.

        Weights are not part of it: give them to a lookup of the core apart, or use
        ``jde.torchrec.EmbeddingBagCollection(..., is_weighted=True)``.
        """
        return {key: jt.jagged() for key, jt in self.to_dict().items()}

    def split(self, segments: Sequence[int]) -> list[KeyedJaggedTensor]:
        """Cuts the keys into groups of these sizes, one after the other.

        Args:
          segments: keys of each group, 0 or more; together at most as many as there
            are.

        Raises:
          TypeError: the segments are no list.
          ValueError: there are fewer keys.
        """
        if isinstance(segments, int):
            raise TypeError(
                f"split takes the number of keys of each part: write split([{segments},"
                f" {len(self._layout.keys) - segments}])."
            )
        self._check_regions("split")
        total = sum(segments)
        if total > len(self._layout.keys) or any(n < 0 for n in segments):
            raise ValueError(
                f"split({list(segments)}) takes {total} keys, but there are "
                f"{len(self._layout.keys)}: give sizes of 0 or more that fit."
            )
        ends = np.cumsum(segments)
        groups = zip(ends - segments, ends, strict=True)
        return [self.permute(list(range(a, b))) for a, b in groups]

    def permute(self, indices: Sequence[int]) -> KeyedJaggedTensor:
        """Picks keys by number, in this order; one may come twice.

        Args:
          indices: of keys; static.

        Raises:
          IndexError: there is no such key.
        """
        self._check_regions("permute")
        indices = [int(i) for i in indices]
        if wrong := [i for i in indices if not 0 <= i < len(self._layout.keys)]:
            raise IndexError(
                f"permute: no key {wrong[0]}; keys are 0 to "
                f"{len(self._layout.keys) - 1}: {self.keys()}"
            )
        layout = self._layout.select(indices)
        leaves = _join.selected(self._layout, self._leaves(), indices, layout)
        return type(self)._of(layout, *leaves)

    def packed(self) -> KeyedJaggedTensor:
        """Moves the entries of all keys one after the other.

        Returns:
          On the host exact regions. Under jit an array of the same size, with -1
          behind the last entry. There keys begin where ``offset_per_key()`` says, so
          it can no longer be cut by key.
        """
        _misfit.refuse(self._layout, "packed")
        known = not is_traced(self._lengths)
        if self._layout.compact and not known:
            return self
        sizes = tuple(np.asarray(self.length_per_key()).tolist()) if known else ()
        if known and sizes == self._layout.capacities and not self._layout.compact:
            return self
        arrays = [x for x in (self._values, self._weights) if x is not None]
        if not self._layout.compact:
            arrays = _regions.packed(arrays, self._lengths, self._layout)
        layout = dataclasses.replace(self._layout, compact=not known)
        if known:
            layout = dataclasses.replace(layout, capacities=sizes)
            arrays = [array[: sum(sizes)] for array in arrays]
        weights = None if self._weights is None else arrays[1]
        rest = (self.dropped, self._inverse)
        return type(self)._of(layout, arrays[0], self._lengths, weights, *rest)

    def sync(self) -> Self:
        """Returns itself: what is static needs no synchronisation."""
        return self

    def unsync(self) -> Self:
        """Returns itself."""
        return self

    def flatten_lengths(self) -> Self:
        """Returns itself: lengths have one axis."""
        return self

    def with_weights(self, weights: Any) -> KeyedJaggedTensor:
        """Returns the same entries with other weights.

        Args:
          weights: float[V], one number for each place of ``values()``.

        Raises:
          ValueError: they are of another size.
        """
        _misfit.refuse(self._layout, "with_weights")
        weights = stored(weights)
        if weights.shape != self._values.shape[:1]:
            raise ValueError(
                f"weights have shape {weights.shape}, but values() have "
                f"{self._values.shape[0]} places: give one weight a place."
            )
        leaves = (self._values, self._lengths, weights, self.dropped, self._inverse)
        return type(self)._of(self._layout, *leaves)

    def _check_regions(self, call: str) -> None:
        _misfit.refuse(self._layout, call)
        if self._layout.compact and len(self._layout.keys) > 1:
            raise ValueError(
                f"{call}: packed() made under jit has keys where data says. Call "
                f"{call} before packed(), or packed() outside of jit."
            )

    def __str__(self) -> str:
        """Shows bags by key; shapes where numbers are unknown."""
        layout = self._layout
        cut = layout.compact or layout.misfit is not None
        known = not (cut or is_traced(self._values, self._lengths))
        return _text.keyed_jagged_tensor(self) if known else repr(self)

    def __repr__(self) -> str:
        """Shows keys and sizes; what does not fit, of a tensor that does not."""
        if self._layout.misfit is not None:
            return f"KeyedJaggedTensor({self.keys()}: {self._layout.misfit.sentence})"
        sizes = ", ".join(
            f"{key}: {bags} bags, room {room}"
            for key, bags, room in zip(
                self._layout.keys,
                self._layout.strides,
                self._layout.capacities,
                strict=True,
            )
        )
        return f"KeyedJaggedTensor({sizes})"

    __getattr__ = refused_attribute
