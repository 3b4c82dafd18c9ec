# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One table as it is served: tensors that never change."""

from __future__ import annotations

import torch
from torch import nn

from jax_dynemb_torch._perfect_hash import find, perfect_hash

PADDING = -1
# The keys of the two rows behind the last: that of an unknown id, and of padding.
EXTRA_KEYS = (-2, PADDING)


class Table(nn.Module):
    """Keys, their perfect hash and rows.

    Args:
      keys: int64[n + 2], distinct; the last two are those of ``extra_rows``.
      rows: [n, dim] floats or int8, or uint8[n, dim / 2] with two columns a byte; or
        floats[n + 2, dim] with the extra rows at the end. float32 of that shape is the
        fastest.
      extra_rows: float32[2, dim]: the row of an id that is not stored, and zeros.
      scales: float32[n], factors of integer rows, or None.
      index: seeds and slots of the perfect hash; made here if None.
    """

    keys: torch.Tensor
    rows: torch.Tensor
    extra_rows: torch.Tensor
    seeds: torch.Tensor
    slots: torch.Tensor

    def __init__(
        self,
        keys: torch.Tensor,
        rows: torch.Tensor,
        extra_rows: torch.Tensor,
        scales: torch.Tensor | None = None,
        index: tuple[torch.Tensor, torch.Tensor] | None = None,
    ):
        super().__init__()
        self.size = len(keys) - 2
        self.dim = extra_rows.shape[1]
        self.whole = len(rows) == len(keys)
        self._direct = self.whole and rows.dtype == torch.float32
        seeds, slots = perfect_hash(keys) if index is None else index
        buffers = {
            "keys": keys,
            "rows": rows,
            "extra_rows": extra_rows,
            "scales": scales,
            "seeds": seeds,
            "slots": slots,
        }
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        """int32[n]: the row of each id of int64[n]; of an unknown id ``size``."""
        # Straight from the dict: a lookup of one id takes as long as a few attributes.
        own = self._buffers
        return find(ids, own["keys"], own["seeds"], own["slots"], self.size)  # type: ignore[arg-type]

    def gather(self, places: torch.Tensor) -> torch.Tensor:
        """float32[n, dim]: rows at int32[n]."""
        if self.whole:
            return self.rows.index_select(0, places).float()
        extra = places >= self.size
        special = self.extra_rows.index_select(0, (places - self.size).clamp_(min=0))
        if self.size == 0:
            return special
        stored = self._decoded(places.clamp(max=self.size - 1))
        return torch.where(extra.unsqueeze(1), special, stored)

    def bags(
        self,
        places: torch.Tensor,
        offsets: torch.Tensor,
        weights: torch.Tensor | None,
    ) -> torch.Tensor:
        """float32[bags, dim]: weighted sums of rows.

        Args:
          places: int32[n].
          offsets: int32[bags + 1]: where each bag begins, and where the last one ends.
          weights: float32[n], or None.
        """
        if self._direct:
            rows = self._buffers["rows"]
        else:
            rows = self.gather(places)
            places = torch.arange(
                places.shape[0], dtype=torch.int32, device=places.device
            )
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
