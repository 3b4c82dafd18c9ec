# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Keys of several tensors in one, and some keys of one: concatenations of slices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jax_dynemb._src.torchrec import misfit as _misfit
from jax_dynemb._src.torchrec.arrays import xp
from jax_dynemb._src.torchrec.asserted import AssertedError
from jax_dynemb._src.torchrec.check import check_keys
from jax_dynemb._src.torchrec.jagged_tensor import JaggedTensor
from jax_dynemb._src.torchrec.layout import Layout

Parts = tuple[Any, ...]
_SOME_WEIGHTS = (
    "{some} have weights and {others} have none: give all of them weights, or none."
)


def selected(
    layout: Layout, leaves: Sequence[Any], indices: Sequence[int], new: Layout
) -> list[Any]:
    """The leaves of some keys."""
    values, lengths, weights, dropped, inverse = leaves
    places = _runs(layout.starts, indices)
    moved = [_cut(values, places), _cut(lengths, _runs(layout.bag_starts, indices))]
    moved.append(None if weights is None else _cut(weights, places))
    chosen = np.asarray(indices, np.int32)
    moved.append(None if dropped is None else dropped[chosen])
    if inverse is not None:
        old, kept = layout.inverse_keys or (), new.inverse_keys or ()
        if kept != old:
            inverse = inverse[np.array([old.index(key) for key in kept], np.int32)]
    return [*moved, inverse]


def _runs(begins: np.ndarray, indices: Sequence[int]) -> list[slice]:
    """The slices of some parts; neighbours are one slice."""
    runs: list[slice] = []
    for i in indices:
        part = slice(int(begins[i]), int(begins[i + 1]))
        if runs and runs[-1].stop == part.start:
            part = slice(runs.pop().start, part.stop)
        runs.append(part)
    return runs


def _cut(array: Any, runs: Sequence[slice]) -> Any:
    if not runs:
        return array[:0]
    if len(runs) == 1:
        whole = runs[0] == slice(0, array.shape[0])
        return array if whole else array[runs[0]]
    return xp(array).concatenate([array[run] for run in runs])


def from_jagged(jt_dict: Mapping[str, JaggedTensor]) -> Parts:
    """Returns the parts of a KeyedJaggedTensor with these keys; all or no weights."""
    parts = []
    for key, jt in jt_dict.items():
        if not isinstance(jt, JaggedTensor):
            raise TypeError(
                f"from_jt_dict: '{key}' is {type(jt).__name__}, not a JaggedTensor: "
                "write JaggedTensor(values, lengths=lengths)."
            )
        bags, room = jt._lengths.shape[0], jt._values.shape[0]
        layout = Layout((key,), (bags,), (room,), bags)
        parts.append((layout, jt._values, jt._lengths, jt._weights, None, None))
    if len({layout.stride for layout, *_ in parts}) > 1:
        parts = [(_variable(layout), *leaves) for layout, *leaves in parts]
    return concatenated(parts)


def _variable(layout: Layout) -> Layout:
    return dataclasses.replace(layout, ranks=tuple((n,) for n in layout.strides))


def concatenated(parts: Sequence[Any]) -> Parts:
    """Joins keys one after the other; they and weights and batches must agree."""
    if not parts:
        raise ValueError(
            "concat needs one tensor or more; KeyedJaggedTensor.empty() has no keys."
        )
    parts = [part for part in parts if part[0].keys] or list(parts[:1])
    if any(part[0].misfit is not None for part in parts):
        return _misfit.concatenated(parts)
    layout = _joined([part[0] for part in parts])
    check_keys(layout.keys)
    leaves = list(zip(*(part[1:] for part in parts), strict=True))
    _all_or_none(parts, leaves[2])
    values, lengths, weights = (_concatenate(leaf) for leaf in leaves[:3])
    dropped = None
    if any(leaf is not None for leaf in leaves[3]):
        dropped = _concatenate(
            [
                np.zeros(len(part[0].keys), np.uint32) if leaf is None else leaf
                for part, leaf in zip(parts, leaves[3], strict=True)
            ]
        )
    inverse = _concatenate(leaves[4]) if layout.inverse_keys is not None else None
    return layout, values, lengths, weights, dropped, inverse


def _concatenate(arrays: Sequence[Any]) -> Any:
    if arrays[0] is None:
        return None
    return arrays[0] if len(arrays) == 1 else xp(*arrays).concatenate(list(arrays))


def _all_or_none(parts: Sequence[Any], weights: Sequence[Any]) -> None:
    some = [p[0].keys for p, w in zip(parts, weights, strict=True) if w is not None]
    others = [p[0].keys for p, w in zip(parts, weights, strict=True) if w is None]
    if some and others:
        names = [[key for keys in each for key in keys] for each in (some, others)]
        raise ValueError(_SOME_WEIGHTS.format(some=names[0], others=names[1]))


def _joined(layouts: Sequence[Layout]) -> Layout:
    first = layouts[0]
    if any(layout.compact for layout in layouts):
        raise ValueError("concat: call packed() under jit after concat, not before.")
    if len({layout.ranks is None for layout in layouts}) > 1:
        raise AssertedError(
            "concat: some tensors have one stride for all keys, others have "
            "stride_per_key_per_rank: give it to all of them."
        )
    with_inverse = [layout.inverse_keys is not None for layout in layouts]
    if any(with_inverse) and not all(with_inverse):
        raise AssertedError(
            "concat: some tensors have inverse_indices and others have none: give "
            "them to all, or to none."
        )
    strides = {layout.stride for layout in layouts}
    if len(strides) > 1 and (first.ranks is None or all(with_inverse)):
        raise AssertedError(
            f"concat: strides {sorted(strides)} differ: take tensors of one batch, or "
            "give stride_per_key_per_rank."
        )
    keys, sizes, capacities, ranks = [], [], [], []
    for layout in layouts:
        keys += layout.keys
        sizes += layout.strides
        capacities += layout.capacities
        ranks += layout.ranks or ()
    inverse = [key for layout in layouts for key in layout.inverse_keys or ()]
    return Layout(
        tuple(keys),
        tuple(sizes),
        tuple(capacities),
        max(strides),
        None if first.ranks is None else tuple(ranks),
        tuple(inverse) if all(with_inverse) else None,
    )
