# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table and what has changed since: what one lookup sees."""

from __future__ import annotations

import torch
from torch import nn

from jax_dynemb_torch._joined import JoinedTables
from jax_dynemb_torch._newer import Newer
from jax_dynemb_torch._table import EXTRA_KEYS, Table


class Snapshot(nn.Module):
    """A base table with an overlay of newer rows. Neither ever changes.

    A lookup sums what it reads from both. An id is in the overlay, and then reads zeros
    from the base, or the other way round.

    Args:
      base: the table as it was loaded.
      overlay: rows that replace those of the base, or None. ``Newer`` only of a base
        on the CPU.
      until: the first step whose rows may be missing, or None if that is not known.
      link: what the next delta names the newest file by, or None if that is not known.
    """

    def __init__(
        self,
        base: Table | JoinedTables,
        overlay: Table | Newer | None,
        until: int | None,
        link: str | None = None,
    ):
        super().__init__()
        self.base = base
        self.overlay = overlay
        self.until = until
        self.link = link

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """float32[n, dim] of int64[n]."""
        if ids.is_cuda:
            self._hold()
        places = self.base.find(ids)
        if self.overlay is None:
            return self.base.gather(places)
        places, newer = self._split(ids, places)
        return self.base.gather(places) + self.overlay.gather(newer)

    def bags(
        self, ids: torch.Tensor, offsets: torch.Tensor, weights: torch.Tensor | None
    ) -> torch.Tensor:
        """float32[bags, dim]: sums over bags of int64[n], see ``Table.bags``."""
        # As in Table.find: a module's own attributes are slow to reach.
        base, overlay = self._modules["base"], self.overlay
        assert isinstance(base, Table | JoinedTables)
        if ids.is_cuda:
            self._hold()
        places = base.find(ids)
        if overlay is None:
            return base.bags(places, offsets, weights)
        places, newer = self._split(ids, places)
        old = base.bags(places, offsets, weights)
        return old + overlay.bags(newer, offsets, weights)

    def _hold(self) -> None:
        """On a GPU, keeps the memory of the tables until this stream has read them.

        Another thread may let go of them while kernels wait to run; what it puts into
        the memory then would be read as rows.
        """
        if torch.compiler.is_compiling():
            return
        stream = torch.cuda.current_stream(self.base.keys.device)
        for tensor in self.buffers():
            tensor.record_stream(stream)

    def _split(
        self, ids: torch.Tensor, places: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Places in the base and in the overlay, one of which is a row of zeros."""
        assert self.overlay is not None
        newer = self.overlay.find(ids)
        zeros = self.base.size + 1
        return torch.where(self.overlay.holds(newer), zeros, places), newer

    def followed(
        self, keys: torch.Tensor, rows: torch.Tensor, removed: torch.Tensor
    ) -> Snapshot:
        """The snapshot behind the newest one, in time that grows with these rows.

        Only one thread may call it, and of the newest snapshot only.

        Args:
          keys: int64[n], distinct.
          rows: float32[n, dim].
          removed: int64[m]: ids that are no longer stored; those in keys are kept.
        """
        if self.base.keys.device.type != "cpu":
            return self.updated(keys, rows, removed, None)
        newer = self.overlay
        if newer is None:
            newer = Newer.empty(self.base.dim)
        assert isinstance(newer, Newer)
        keys, rows = self._with_removed(keys, rows, removed)
        return Snapshot(self.base, newer.with_rows(keys, rows), None)

    def _with_removed(
        self, keys: torch.Tensor, rows: torch.Tensor, removed: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and rows with those of removed ids, which read as unknown ones."""
        removed = removed[~torch.isin(removed, keys)].unique()
        unknown = self.base.extra_rows[1:].expand(len(removed), -1)
        return torch.cat([keys, removed]), torch.cat([rows, unknown])

    def updated(
        self,
        keys: torch.Tensor,
        rows: torch.Tensor,
        removed: torch.Tensor,
        until: int | None,
        link: str | None = None,
    ) -> Snapshot:
        """Another snapshot, with newer rows; the base is shared with this one.

        Args:
          keys: int64[n], distinct.
          rows: float32[n, dim].
          removed: int64[m]: ids that are no longer stored; those in keys are kept.
          until: of the new snapshot.
          link: of the new snapshot.
        """
        device = self.base.keys.device  # a GPU merges millions of rows in milliseconds
        keys, rows, removed = keys.to(device), rows.to(device), removed.to(device)
        keys, rows = self._with_removed(keys, rows, removed)
        if self.overlay is not None:
            assert isinstance(self.overlay, Table)
            old = self.overlay.keys[:-2]
            kept = ~torch.isin(old, keys)
            keys = torch.cat([keys, old[kept]])
            rows = torch.cat([rows, self.overlay.rows[1:-2][kept]])
        extra = torch.zeros(2, self.base.dim, device=device)
        overlay = Table(
            torch.cat([keys, torch.tensor(EXTRA_KEYS, device=device)]),
            torch.cat([extra[:1], rows, extra]),
            extra,
        )
        return Snapshot(self.base, overlay, until, link).moved(device)

    def moved(self, device: torch.device) -> Snapshot:
        """This one, when all of it is on a device and may be read from any stream."""
        self.to(device)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        return self
