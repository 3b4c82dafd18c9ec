# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads one table from the files that the processes of a job have written."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from jax_dynemb_torch._table import PADDING, Table


class JoinedTables(nn.Module):
    """Serves tables of distinct keys as one; like ``Table`` it never changes.

    A lookup searches each of them, so it takes longer with more. Places of one table
    stand behind those of the one before. Behind the last, ``size + 1`` is padding, and
    0 and ``size + 2`` are those of unknown ids.

    Args:
      tables: with the same columns and the same row for unknown ids.

    Raises:
      ValueError: their rows have different widths.
    """

    def __init__(self, tables: Sequence[Table]):
        super().__init__()
        if len({table.dim for table in tables}) != 1:
            raise ValueError(
                f"Tables of {sorted({table.dim for table in tables})} columns cannot "
                "be one: give the folders of all processes of one job."
            )
        self.tables = nn.ModuleList(tables)
        self.dim = tables[0].dim
        self._sizes = [table.size for table in tables]
        self._before = [sum(self._sizes[:n]) for n in range(len(tables))]
        self.size = sum(self._sizes)

    @property
    def keys(self) -> torch.Tensor:
        """Keys of the first table, which lie where all tensors do."""
        return self._tables()[0].keys

    @property
    def extra_rows(self) -> torch.Tensor:
        """float32[2, dim]: zeros, and the row of an id that is not stored."""
        return self._tables()[0].extra_rows

    def find(self, ids: torch.Tensor) -> torch.Tensor:
        """int64[n]: the place of each id of int64[n]."""
        places = torch.where(ids == PADDING, self.size + 1, 0)
        for table, before in zip(self._tables(), self._before, strict=True):
            own = table.find(ids)
            places = torch.where(table.holds(own), own + before, places)
        return places

    def holds(self, places: torch.Tensor) -> torch.Tensor:
        """bool[n]: which places are those of stored rows."""
        return (places > 0) & (places <= self.size)

    def gather(self, places: torch.Tensor) -> torch.Tensor:
        """float32[n, dim]: rows at int64[n]."""
        rows = [table.gather(own) for table, own in self._split(places)]
        return torch.stack(rows).sum(dim=0)

    def bags(
        self,
        places: torch.Tensor,
        offsets: torch.Tensor,
        weights: torch.Tensor | None,
    ) -> torch.Tensor:
        """float32[bags, dim]: weighted sums of rows, as ``Table.bags``."""
        rows = [table.bags(own, offsets, weights) for table, own in self._split(places)]
        return torch.stack(rows).sum(dim=0)

    def _split(self, places: torch.Tensor) -> list[tuple[Table, torch.Tensor]]:
        """Places in each table: a row of zeros in all but one of them."""
        unknown = (places == 0) | (places == self.size + 2)
        found = []
        for n, table in enumerate(self._tables()):
            own = places - self._before[n]
            own = torch.where((own > 0) & (own <= table.size), own, table.size + 1)
            if n == 0:
                own = torch.where(unknown, 0, own)
            found.append((table, own))
        return found

    def _tables(self) -> list[Table]:
        return list(self.tables)  # type: ignore[arg-type]
