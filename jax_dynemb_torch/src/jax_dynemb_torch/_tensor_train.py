# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tensor-train tables in PyTorch: rows as products of small cores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from jax_dynemb_torch._embedding import as_ids, bag_ends
from jax_dynemb_torch._table import PADDING

# A row reads R * q * R' numbers of a core; so many rows at once bound the memory.
_CHUNK_ROWS = 8192


class TTEmbeddingBag(nn.Module):
    """A tensor-train table that pools the rows of bags, like ``nn.EmbeddingBag``.

    The cores are parameters, so autograd trains them. Products are float32.

    Args:
      arrays: what ``jde.tt.to_torch`` returns, as NumPy arrays or tensors.
      mode: "sum" or "mean"; None: what the table was trained with. A mean divides by
        the ids of a bag that are not padding, whatever their weights.
      include_last_offset: whether offsets end with the number of ids.

    Raises:
      ValueError: an array is missing or does not fit the others.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        *,
        mode: str | None = None,
        include_last_offset: bool = False,
    ):
        super().__init__()
        cores = _cores_of(arrays)
        self.cores = nn.ParameterList(cores)
        self.mode = mode or ("mean" if bool(arrays["mean"]) else "sum")
        if self.mode not in ("sum", "mean"):
            raise ValueError(f"mode must be 'sum' or 'mean', not {mode!r}")
        self.include_last_offset = include_last_offset
        self.num_rows = math.prod(core.shape[0] for core in cores)
        self.num_embeddings = int(arrays["num_embeddings"])
        factors = torch.as_tensor(arrays["hash_factors"], dtype=torch.int64)
        self.hash_multipliers = tuple(int(factor) for factor in factors)
        if len(self.hash_multipliers) not in (0, 2):
            raise ValueError(
                f"hash_factors has {len(self.hash_multipliers)} numbers, not 0 or 2; "
                "pass what jde.tt.to_torch returns"
            )

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> TTEmbeddingBag:
        """Reads a file that ``np.savez(path, **jde.tt.to_torch(...))`` wrote.

        Args:
          path: of the file.
          options: ``mode`` and ``include_last_offset``.
        """
        import numpy as np

        with np.load(path, allow_pickle=False) as arrays:
            return cls({name: arrays[name] for name in arrays.files}, **options)

    @property
    def dim(self) -> int:
        """Columns of a row."""
        return math.prod(core.shape[2] for core in self.cores)

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
        flat, ends = as_ids(ids).reshape(-1), self._ends(ids, offsets)
        rows = self.rows(flat)
        if per_sample_weights is not None:
            if per_sample_weights.shape != ids.shape:
                raise ValueError(
                    f"per_sample_weights have shape {tuple(per_sample_weights.shape)}, "
                    f"the ids {tuple(ids.shape)}; give one weight an id"
                )
            rows = rows * per_sample_weights.reshape(-1, 1)
        live = (flat != PADDING).to(rows.dtype)
        bag = torch.bucketize(
            torch.arange(flat.shape[0], device=flat.device), ends[1:], right=True
        )
        # Ids behind the last bag go to a bag that is cut off.
        sums = rows.new_zeros(ends.shape[0], self.dim).index_add(0, bag, rows)[:-1]
        if self.mode == "sum":
            return sums
        count = live.new_zeros(ends.shape[0]).index_add(0, bag, live)[:-1]
        return sums / count.clamp(min=1).unsqueeze(1)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Looks up one row an id.

        Args:
          ids: integers of any shape. -1 is padding and reads zeros, and so does an id
            outside of a table whose ids are row numbers.

        Returns:
          float32[..., dim].
        """
        flat = as_ids(ids).reshape(-1)
        numbers, found = self._numbers(flat)
        if torch.compiler.is_compiling():  # a program has one number of chunks
            rows = self._product(numbers)
        else:
            parts = numbers.split(_CHUNK_ROWS)
            rows = torch.cat([self._product(part) for part in parts])
        rows = torch.where(found.unsqueeze(1), rows, 0.0)
        return rows.view(*ids.shape, self.dim)

    def _numbers(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The number of each id's row, 0 where it has none, and whether it has one."""
        if self.hash_multipliers:
            found = ids != PADDING
            hashed = _hash(ids, *self.hash_multipliers)
            numbers = _scaled(hashed, self.num_rows)
        else:
            found = (ids >= 0) & (ids < self.num_embeddings)
            numbers = ids
        return torch.where(found, numbers, 0), found

    def _product(self, numbers: torch.Tensor) -> torch.Tensor:
        """Multiplies one slice of each core, from the first to the last."""
        digits = []
        for core in reversed(self.cores):
            digits.append(numbers % core.shape[0])
            numbers = numbers // core.shape[0]
        n, columns = numbers.shape[0], 1
        product = numbers.new_ones(n, 1, 1, dtype=self.cores[0].dtype)
        for core, digit in zip(self.cores, reversed(digits), strict=True):
            _, before, q, after = core.shape
            piece = core.index_select(0, digit).view(n, before, q * after)
            columns *= q
            product = torch.bmm(product, piece).view(n, columns, after)
        return product.view(n, columns)

    def _ends(self, ids: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
        """int64[bags + 1]: where bags begin, and where the last one ends."""
        if ids.dim() == 2 and offsets is None:
            return bag_ends(ids)
        if ids.dim() != 1 or offsets is None:
            raise ValueError(
                f"ids have shape {tuple(ids.shape)}; give [bags, length] without "
                "offsets, or [n] and offsets. For bags of one id: ids.unsqueeze(-1)."
            )
        offsets = offsets.to(torch.int64)
        if self.include_last_offset:
            return offsets
        return nn.functional.pad(offsets, (0, 1), value=ids.shape[0])


def _cores_of(arrays: Mapping[str, Any]) -> list[nn.Parameter]:
    """Reads the cores and checks that their ranks meet.

    Raises:
      ValueError: they do not, or an array is missing.
    """
    names = [
        f"core_{t}" for t in range(sum(name.startswith("core_") for name in arrays))
    ]
    wanted = [*names, "num_embeddings", "mean", "hash_factors"]
    missing = [name for name in wanted if name not in arrays]
    if missing or len(names) < 2:
        raise ValueError(
            f"the arrays lack {missing or 'cores'}; pass what jde.tt.to_torch returns"
        )
    cores = [
        torch.as_tensor(arrays[name], dtype=torch.float32).clone() for name in names
    ]
    shapes = [tuple(core.shape) for core in cores]
    meet = all(len(shape) == 4 for shape in shapes) and all(
        left[3] == right[1] for left, right in itertools.pairwise(shapes)
    )
    if not meet or shapes[0][1] != 1 or shapes[-1][3] != 1:
        raise ValueError(
            f"cores of shapes {shapes} do not meet: core t must be [p, R_t, q, R_t+1], "
            "with rank 1 at both ends"
        )
    return [nn.Parameter(core) for core in cores]


def _hash(ids: torch.Tensor, first: int, second: int) -> torch.Tensor:
    """MurmurHash3's finaliser with the multipliers of a table, modulo 2**64."""
    for multiplier in (first, second):
        ids = (ids ^ _shifted(ids, 33)) * multiplier
    return ids ^ _shifted(ids, 33)


def _scaled(hashed: torch.Tensor, rows: int) -> torch.Tensor:
    """``hashed * rows >> 64`` of unsigned numbers; ``rows`` is below 2**32."""
    low, high = hashed & 0xFFFF_FFFF, _shifted(hashed, 32)
    return _shifted(high * rows + _shifted(low * rows, 32), 32)


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifts unsigned numbers to the right; PyTorch's own shift repeats the sign."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
