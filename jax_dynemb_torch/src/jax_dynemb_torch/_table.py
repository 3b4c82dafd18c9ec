# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One table as it is served: tensors that never change."""

from __future__ import annotations

import torch
from torch import nn

from jax_dynemb_torch import _search
from jax_dynemb_torch._large_pages import in_large_pages
from jax_dynemb_torch._perfect_hash import (
    PerfectHash,
    find,
    find_on_cpu,
    low_bytes,
    steps_of,
)

PADDING = -1
# The keys of the two rows behind the last: that of padding, and of an unknown id.
EXTRA_KEYS = (PADDING, -2)


class Table(nn.Module):
    """Keys, their perfect hash and rows; sorted keys where there is no such hash.

    The place of a row is its number and one; ``size + 1`` is that of padding, 0 and
    ``size + 2`` are those of unknown ids.

    Args:
      keys: int64[n + 2], distinct; the last two are those of ``extra_rows``.
      rows: [n, dim] floats or int8, or uint8[n, dim / 2] with two columns a byte; or
        floats[n + 3, dim] by place. float32 of that shape is the fastest.
      extra_rows: float32[2, dim]: zeros, and the row of an id that is not stored.
      scales: float32[n], factors of integer rows, or None.
      index: the perfect hash of the keys; without one they are sorted and searched, as
        those of a dump, of deltas and of files that have no index.
    """

    keys: torch.Tensor
    rows: torch.Tensor
    extra_rows: torch.Tensor
    words: torch.Tensor | None
    pilots: torch.Tensor | None
    sorted_keys: torch.Tensor | None
    sorted_places: torch.Tensor | None

    def __init__(
        self,
        keys: torch.Tensor,
        rows: torch.Tensor,
        extra_rows: torch.Tensor,
        scales: torch.Tensor | None = None,
        index: PerfectHash | None = None,
    ):
        super().__init__()
        self.size = len(keys) - 2
        self.dim = extra_rows.shape[1]
        self.whole = len(rows) == len(keys) + 1
        self._direct = self.whole and rows.dtype == torch.float32
        found_in = self._searched(keys) if index is None else self._hashed(index)
        buffers = {
            "keys": keys,
            "rows": rows,
            "extra_rows": extra_rows,
            "scales": scales,
            "words": None,
            "pilots": None,
            "sorted_keys": None,
            "sorted_places": None,
        }
        for name, tensor in (buffers | found_in).items():
            self.register_buffer(name, tensor, persistent=False)

    def _hashed(self, index: PerfectHash) -> dict[str, torch.Tensor]:
        self._steps = steps_of(index.numbers)
        self._on_cpu = self._steps.as_tensors(), low_bytes(index.pilots.cpu())
        return {"words": in_large_pages(index.words), "pilots": index.pilots}

    def _searched(self, keys: torch.Tensor) -> dict[str, torch.Tensor]:
        ordered, places = _search.sort(keys)
        return {"sorted_keys": ordered, "sorted_places": places}

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        """int64[n]: the place of each id of int64[n]."""
        # Straight from the dict: a lookup of one id takes as long as a few attributes.
        words, last = self._buffers["words"], self.size + 2
        if words is None:
            return _search.find(ids, self.sorted_keys, self.sorted_places)
        if torch.compiler.is_compiling() or ids.is_cuda:
            return find(ids, self._steps, words, self.pilots, last)
        steps, bytes_ = self._on_cpu
        return find_on_cpu(ids, steps, words, bytes_, last)

    def gather(self, places: torch.Tensor) -> torch.Tensor:
        """float32[n, dim]: rows at int64[n]."""
        if self.whole:
            return self.rows.index_select(0, places).float()
        stored = self.holds(places)
        unknown = (places != self.size + 1).long()
        special = self.extra_rows.index_select(0, unknown)
        if self.size == 0:
            return special
        rows = self._decoded((places - 1).clamp_(min=0, max=self.size - 1))
        return torch.where(stored.unsqueeze(1), rows, special)

    def holds(self, places: torch.Tensor) -> torch.Tensor:
        """bool[n]: which places are those of stored rows."""
        return (places > 0) & (places <= self.size)

    def bags(
        self,
        places: torch.Tensor,
        offsets: torch.Tensor,
        weights: torch.Tensor | None,
    ) -> torch.Tensor:
        """float32[bags, dim]: weighted sums of rows.

        Args:
          places: int64[n].
          offsets: int64[bags + 1]: where each bag begins, and where the last one ends.
          weights: float32[n], or None.
        """
        if self._direct:
            rows = self._buffers["rows"]
        else:
            rows = self.gather(places)
            places = torch.arange(places.shape[0], device=places.device)
        # What torch.nn.functional.embedding_bag calls when it has checked its input.
        return torch.embedding_bag(
            rows, places, offsets, False, 0, False, weights, True, None
        )[0]

    def _decoded(self, places: torch.Tensor) -> torch.Tensor:
        rows = self.rows.index_select(0, places)
        if rows.dtype == torch.uint8:  # two columns a byte, each plus eight
            pairs = torch.stack([rows & 15, rows >> 4], dim=-1)
            rows = pairs.view(places.shape[0], -1)[:, : self.dim].float() - 8.0
        rows = rows.float()
        if self.scales is None:
            return rows
        return rows * self.scales.index_select(0, places).unsqueeze(1)
