# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One table as a module."""

from __future__ import annotations

import copy
import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from jax_dynemb_torch._snapshot import Snapshot
from jax_dynemb_torch._source import Source, load, with_deltas
from jax_dynemb_torch._table import PADDING

if TYPE_CHECKING:
    from typing import Self


class _TableModule(nn.Module):
    """Holds the current snapshot of a table and exchanges it."""

    def __init__(self, source: str | Path | Source, table: str | None = None):
        super().__init__()
        loaded = source if isinstance(source, Source) else load(source, table)
        self.name = loaded.name
        self.snapshot = loaded.snapshot
        self._writing = threading.Lock()
        self._pooling = loaded.pooling

    @property
    def dim(self) -> int:
        """Columns of a row."""
        return self.snapshot.base.dim

    @property
    def overlay_rows(self) -> int:
        """Rows that deltas have brought, and ids that they removed."""
        overlay = self.snapshot.overlay
        return 0 if overlay is None else overlay.size

    def apply_delta(self, path: str | Path) -> None:
        """Takes newer rows over, while other threads go on looking up.

        A lookup sees all of a delta or nothing of it. What is known already is passed
        over. The rows of all deltas are kept in memory, beside the mapped table, each
        that changed since the export once; load a new export when they are many.

        Args:
          path: a delta of this table, or a directory: then all of them, in order.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: the delta is of another table, or one before it is missing.
        """
        with self._writing:
            # One assignment: a thread reads the old snapshot or the new one.
            self.snapshot = with_deltas(self.snapshot, self.name, Path(path))

    def replace(self, source: str | Path | Source) -> None:
        """Serves another export of the table from now on, without an interruption.

        Raises:
          ValueError: its rows have another width.
        """
        loaded = source if isinstance(source, Source) else load(source, self.name)
        with self._writing:
            if loaded.snapshot.base.dim != self.dim:
                raise ValueError(
                    f"table '{self.name}' has rows of {self.dim} columns; those of the "
                    f"new one have {loaded.snapshot.base.dim}. Make a new module."
                )
            self.snapshot = loaded.snapshot.moved(self.snapshot.base.keys.device)

    def at(self, snapshot: Snapshot) -> Self:
        """Returns a module like this one over other rows of the same table."""
        new = copy.copy(self)
        new._modules = self._modules | {"snapshot": snapshot}
        return new

    def __getstate__(self) -> dict:
        state = self.__dict__.copy()
        del state["_writing"]
        return state

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._writing = threading.Lock()


class DynamicEmbedding(_TableModule):
    """A trained table that gives one row an id, like ``torch.nn.Embedding``.

    Args:
      source: an export directory or file, or a DynamicEmb dump directory.
      table: the table's name; may be left out if there is only one.
    """

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Looks up rows.

        Args:
          ids: integers of any shape. -1 is padding and reads zeros; an id that is not
            stored reads the table's evaluation row, zeros by default.

        Returns:
          float32[..., dim].
        """
        rows = self.snapshot.rows(as_ids(ids).reshape(-1))
        return rows.view(*ids.shape, self.dim)


class DynamicEmbeddingBag(_TableModule):
    """A trained table that pools the rows of bags, like ``torch.nn.EmbeddingBag``.

    Args:
      source: an export directory or file, or a DynamicEmb dump directory.
      table: the table's name; may be left out if there is only one.
      mode: "sum" or "mean"; None takes what the table was trained with, else "sum". A
        mean divides by the ids of a bag that are not padding, whatever their weights.
      include_last_offset: whether offsets end with the number of ids.
    """

    def __init__(
        self,
        source: str | Path | Source,
        table: str | None = None,
        *,
        mode: str | None = None,
        include_last_offset: bool = False,
    ):
        super().__init__(source, table)
        self.mode = mode or self._pooling or "sum"
        if self.mode not in ("sum", "mean"):
            raise ValueError(f"mode must be 'sum' or 'mean', not {mode!r}")
        self.include_last_offset = include_last_offset

    def forward(
        self,
        ids: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Looks up and pools rows.

        Args:
          ids: integers: [bags, length], padded with -1; or [n], with offsets.
          offsets: integers[bags]: where each bag begins; [bags + 1] with
            ``include_last_offset``.
          per_sample_weights: float32 in the shape of the ids, or None.

        Returns:
          float32[bags, dim]; zeros for an empty bag.

        Raises:
          TypeError: the ids are no integers.
          ValueError: shapes do not fit together.
        """
        flat, weights = as_ids(ids).reshape(-1), per_sample_weights
        if weights is not None:
            if weights.shape != ids.shape:
                raise ValueError(
                    f"per_sample_weights have shape {tuple(weights.shape)}, the ids "
                    f"{tuple(ids.shape)}; give one weight an id"
                )
            weights = weights.reshape(-1)
        ends = self._ends(ids, offsets)
        if self.include_last_offset and flat.is_cuda:
            # PyTorch's kernel for GPUs lets the last bag go on to the end of the ids.
            flat, weights = only_bags(flat, ends, weights)
        return self.bags(flat, ends, weights)

    def bags(
        self, ids: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor | None
    ) -> torch.Tensor:
        """Pools bags that lie one after the other.

        Args:
          ids: int64[n].
          offsets: int64[bags + 1]: where each bag begins, and where the last one ends.
            Behind it stand no other ids than padding (``only_bags``).
          weights: float32[n], or None.
        """
        rows = self._modules["snapshot"].bags(ids, offsets, weights)  # type: ignore[union-attr]
        if self.mode == "sum":
            return rows
        real = torch.nn.functional.pad((ids != PADDING).cumsum(0), (1, 0))
        ends = real.index_select(0, offsets)
        return rows / (ends[1:] - ends[:-1]).clamp_(min=1).unsqueeze(1)

    def _ends(self, ids: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
        """int64[bags + 1]."""
        if ids.dim() == 2:
            if offsets is not None:
                raise ValueError("ids [bags, length] are whole bags; leave out offsets")
            return bag_ends(ids)
        if ids.dim() != 1 or offsets is None:
            raise ValueError(
                f"ids have shape {tuple(ids.shape)}; give [bags, length], or [n] and "
                "offsets. For bags of one id: ids.unsqueeze(-1)."
            )
        offsets = offsets.to(torch.int64)
        if self.include_last_offset:
            return offsets
        return torch.nn.functional.pad(offsets, (0, 1), value=ids.shape[0])


def only_bags(
    ids: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The same, with padding and no weight behind the last bag."""
    inside = torch.arange(ids.shape[0], device=ids.device) < offsets[-1]
    if weights is not None:
        weights = torch.where(inside, weights, 0.0)
    return torch.where(inside, ids, PADDING), weights


def bag_ends(ids: torch.Tensor) -> torch.Tensor:
    """int64[bags + 1]: where bags of [bags, length] begin, and the last ends."""
    if torch.compiler.is_compiling():
        return _ends_of(*ids.shape, ids.device)
    return _kept_ends(*ids.shape, ids.device)


@functools.lru_cache(maxsize=16)
def _kept_ends(bags: int, length: int, device: torch.device) -> torch.Tensor:
    """A server sees the same few shapes; making these numbers is a tenth of a call."""
    with torch.inference_mode(False):  # they may be kept for a backward pass
        return _ends_of(bags, length, device)


def _ends_of(bags: int, length: int, device: torch.device) -> torch.Tensor:
    if length == 0:
        return torch.zeros(bags + 1, dtype=torch.int64, device=device)
    return torch.arange(0, bags * length + 1, length, dtype=torch.int64, device=device)


def as_ids(ids: torch.Tensor) -> torch.Tensor:
    """int64 ids.

    Raises:
      TypeError: they are no integers.
    """
    if ids.dtype == torch.int64:
        return ids
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(
            f"ids have dtype {ids.dtype}, but must be integers: 64-bit ids lose their "
            "low digits as floats, so keep them as torch.int64 from the start."
        )
    return ids.to(torch.int64)
