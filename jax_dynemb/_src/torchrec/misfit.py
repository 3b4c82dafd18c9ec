# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""KeyedJaggedTensors whose lengths, weights or strides do not fit their values.

TorchRec's constructor takes them, and its validator or a kernel raises later. So the
constructor here stores what was given. Such a tensor can be shown, compared, moved and
concatenated. But what reads a bag of it raises an error, because an entry could be read
as one of another key.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.torchrec.arrays import is_traced, stored, xp
from jax_dynemb._src.torchrec.asserted import MisfitError
from jax_dynemb._src.torchrec.layout import Layout, Misfit

_PACKAGE = str(Path(__file__).parents[2])


@dataclasses.dataclass(frozen=True)
class Raw:
    """The arguments of a constructor, as they were given; each may be None."""

    keys: Sequence[str]
    values: Any
    lengths: Any
    offsets: Any
    weights: Any
    stride: int | None
    ranks: Any
    inverse: Any

    def is_traced(self) -> bool:
        """Tells whether some of the numbers are unknown until a program runs."""
        inverse = self.inverse[1] if self.inverse else None
        given = (self.values, self.lengths, self.offsets, self.weights, inverse)
        return is_traced(*given)


def parts(raw: Raw, error: MisfitError) -> tuple[Any, ...]:
    """Returns layout and leaves of a tensor that holds what was given."""
    values = stored(raw.values)
    offsets = None if raw.offsets is None else _numbers(raw.offsets)
    lengths = None if raw.lengths is None else _numbers(raw.lengths)
    words = _words(raw, values, lengths, offsets)
    kept = None if offsets is None else tuple(offsets.tolist())
    misfit = Misfit(str(error), words, kept, _caller())
    if lengths is None and offsets is not None:
        lengths = np.diff(offsets)
    layout = _layout(raw, 0 if lengths is None else len(lengths), misfit)
    inverse = None if raw.inverse is None else np.asarray(raw.inverse[1])
    weights = np.asarray(raw.weights) if isinstance(raw.weights, list) else raw.weights
    return layout, values, lengths, weights, None, inverse


def _numbers(x: Any) -> np.ndarray:
    return np.asarray(x).astype(np.int32).reshape(-1)


def _caller() -> str:
    """Names the line of a program outside of this package that made the tensor."""
    frames = reversed(traceback.extract_stack())
    outside = (f for f in frames if not f.filename.startswith(_PACKAGE))
    frame = next(outside, None)
    return "" if frame is None else f"{frame.filename}:{frame.lineno}"


def _layout(raw: Raw, bags: int, misfit: Misfit) -> Layout:
    """Counts bags where that can be done; a tensor that does not fit may have none."""
    keys, ranks = tuple(raw.keys), None
    strides: tuple[int, ...] = ()
    if raw.ranks is not None and len(raw.ranks):
        ranks = tuple(tuple(map(int, row)) for row in np.asarray(raw.ranks).tolist())
        strides = tuple(map(sum, ranks))
    elif keys and bags % len(keys) == 0:
        strides = (bags // len(keys),) * len(keys)
    stride = max(strides, default=0) if raw.stride is None else int(raw.stride)
    named = None
    if raw.inverse is not None:
        named, stride = tuple(raw.inverse[0]), int(np.shape(raw.inverse[1])[-1])
    return Layout(keys, strides, (), stride, ranks, named, misfit=misfit)


def _words(
    raw: Raw, values: Any, lengths: np.ndarray | None, offsets: np.ndarray | None
) -> str:
    """Returns what TorchRec's validator says of it first, or nothing."""
    count = values.shape[0]
    if lengths is None and offsets is None:
        return "lengths and offsets cannot be both empty"
    bags = len(offsets) - 1 if lengths is None and offsets is not None else 0
    bags = bags if lengths is None else len(lengths)
    found = (
        "" if lengths is None else _of_lengths(lengths, count),
        "" if offsets is None else _of_offsets(offsets, count),
        "" if lengths is None or offsets is None else _of_both(lengths, offsets),
        _of_keys(raw, bags),
        _of_weights(raw.weights, count),
    )
    return next(filter(None, found), "")


def _of_lengths(lengths: np.ndarray, count: int) -> str:
    fits = lengths.sum(dtype=np.int64) == count
    return "" if fits else "Sum of lengths must equal the number of values"


def _of_offsets(offsets: np.ndarray, count: int) -> str:
    if not len(offsets):
        return "offsets cannot be empty"
    if offsets[0] != 0:
        return "Expected first offset to be 0"
    fits = offsets[-1] == count
    words = "The last element of offsets must equal to the number of values"
    return "" if fits else words


def _of_both(lengths: np.ndarray, offsets: np.ndarray) -> str:
    if len(lengths) != len(offsets) - 1:
        return "Expected lengths size to be 1 more than offsets size"
    fits = np.array_equal(np.diff(offsets), lengths)
    return "" if fits else "offsets is not equal to the cumulative sum of lengths"


def _of_keys(raw: Raw, bags: int) -> str:
    if len(set(raw.keys)) != len(raw.keys):
        return "keys must be unique"
    if not len(raw.keys):
        return "keys is empty but lengths or offsets is not" if bags else ""
    fits = raw.ranks is not None or bags % len(raw.keys) == 0
    return "" if fits else "lengths size must be divisible by keys size"


def _of_weights(weights: Any, count: int) -> str:
    fits = weights is None or np.size(weights) == count
    return "" if fits else "weights size must equal to values size"


def check_told(told: Mapping[str, Any], kjt: Any) -> None:
    """Refuses lists that TorchRec would believe, and that do not follow from lengths.

    Args:
      told: what was given of each argument; None where nothing was.
      kjt: of keys and lengths, from which they follow.

    Raises:
      MisfitError: they differ.
    """
    for name, given in told.items():
        if given is None:
            continue
        plain = dict(given) if isinstance(given, Mapping) else list(given)
        own = getattr(kjt, name)()
        if plain != own:
            raise MisfitError(
                f"{name}={plain} contradicts keys and lengths, which give {own}: leave "
                "it out, since it follows from them."
            )


def refuse(layout: Layout, call: str) -> None:
    """Raises what does not fit, if anything.

    Raises:
      MisfitError: the layout is that of a tensor that does not fit.
    """
    if layout.misfit is None:
        return
    made = layout.misfit.made_at
    where = f" It was made at {made}." if made else ""
    raise MisfitError(f"{call}: {layout.misfit.sentence}{where}")


def offsets_of(layout: Layout, lengths: Any) -> Any:
    """Returns the offsets that were given, or those of the lengths."""
    assert layout.misfit is not None
    if layout.misfit.offsets is not None:
        return np.asarray(layout.misfit.offsets, np.int32)
    if lengths is None:
        refuse(layout, "offsets")
    return np.concatenate([[0], np.cumsum(np.asarray(lengths))]).astype(np.int32)


def same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Tells whether two, of which one does not fit, hold the same numbers.

    Args:
      a: layout and leaves of one.
      b: those of the other.
    """
    return a[0] == b[0] and all(
        x is y or (x is not None and y is not None and np.array_equal(x, y))
        for x, y in zip(a[1:], b[1:], strict=True)
    )


def concatenated(parts: Sequence[Any]) -> tuple[Any, ...]:
    """Joins tensors of which some do not fit. The result does not either.

    Its numbers may add up. But then entries that one of them had too many are taken for
    those of the next key.
    """
    layouts = [part[0] for part in parts]
    bad = next(layout.misfit for layout in layouts if layout.misfit is not None)
    misfit = dataclasses.replace(bad, offsets=None)
    leaves = [_joined(leaf) for leaf in zip(*(p[1:4] for p in parts), strict=True)]
    ranks = [layout.ranks for layout in layouts]
    layout = Layout(
        tuple(key for layout in layouts for key in layout.keys),
        tuple(bags for layout in layouts for bags in layout.strides),
        (),
        max(layout.stride for layout in layouts),
        None if None in ranks else tuple(row for each in ranks for row in each or ()),
        misfit=misfit,
    )
    return layout, *leaves, None, None


def _joined(arrays: Sequence[Any]) -> Any:
    some = [x for x in arrays if x is not None]
    return xp(*some).concatenate(some) if some else None
