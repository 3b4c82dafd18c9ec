# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Several tables behind the features that look them up."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from jax_dynemb_torch._embedding import DynamicEmbeddingBag, as_ids, bag_ends, only_bags
from jax_dynemb_torch._snapshot import Snapshot
from jax_dynemb_torch._source import load, load_joined, table_names


class _Bags(NamedTuple):
    """Bags of one feature: int64[n], int64[bags + 1], float32[n] or None."""

    ids: torch.Tensor
    offsets: torch.Tensor
    weights: torch.Tensor | None


class EmbeddingBagCollection(nn.Module):
    """Trained tables that pool the ids of features, like TorchRec's module.

    Features of one table share its lookup.

    Args:
      path: an export directory or file, or a DynamicEmb dump directory. Or a list of
        export directories without deltas, each with some rows of the same tables, as
        the processes of a job write them.
      tables: names; all if None.
      features: by table, the features that look it up; None takes what the export says,
        else the table's name.
      mode: "sum" or "mean" for all tables; None: what each was trained with, else sum.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        *,
        tables: Iterable[str] | None = None,
        features: Mapping[str, Iterable[str]] | None = None,
        mode: str | None = None,
    ):
        super().__init__()
        several = isinstance(path, list | tuple)
        paths = [Path(each) for each in (path if several else [path])]
        names = table_names(paths[0]) if tables is None else list(tables)
        sources = [
            load(paths[0], n) if len(paths) == 1 else load_joined(paths, n)
            for n in names
        ]
        given = features or {}
        self.features = {s.name: tuple(given.get(s.name, s.features)) for s in sources}
        self._table_of = {f: t for t, names in self.features.items() for f in names}
        if len(self._table_of) != sum(map(len, self.features.values())):
            raise ValueError(f"a feature is listed twice in {self.features}")
        # Not a ModuleDict: a table may have a name that is an attribute of one.
        self.bags = nn.ModuleList(DynamicEmbeddingBag(s, mode=mode) for s in sources)

    def forward(
        self, features: Any, weights: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """Looks up and pools.

        Args:
          features: by feature: integers [bags] (one id a bag) or [bags, length] padded
            with -1, or a JaggedTensor-like object (``values``, ``lengths``). Or a
            KeyedJaggedTensor-like object: ``keys``, ``values``, ``lengths`` and
            optionally ``weights``, as attributes or methods.
          weights: by feature, float32 in the shape of the ids. An object with
            ``weights`` has its own.

        Returns:
          float32[bags, dim] by feature, in the order of the input.
          ``torch.cat(list(result.values()), 1)`` is what TorchRec's KeyedTensor holds.

        Raises:
          ValueError: no table has a feature, or a feature has weights twice.
        """
        if not isinstance(features, Mapping):
            features = _split_keyed(features)
        bags = {f: _bags(f, x, (weights or {}).get(f)) for f, x in features.items()}
        if unknown := sorted(bags.keys() - self._table_of.keys()):
            raise ValueError(
                f"features {unknown} are in no table; known: {sorted(self._table_of)}"
            )
        pooled: dict[str, torch.Tensor] = {}
        for table in self.bags:
            names = [name for name in bags if self._table_of[name] == table.name]
            if names:
                pooled |= zip(
                    names, _pool(table, [bags[n] for n in names]), strict=True
                )
        return {name: pooled[name] for name in bags}

    def with_snapshots(
        self, snapshots: Mapping[str, Snapshot]
    ) -> EmbeddingBagCollection:
        """Returns a collection of the same features over other rows; this one stays.

        Args:
          snapshots: by table; other tables keep what they have.
        """
        new = copy.copy(self)
        new._modules = dict(self._modules)
        bags: Any = [bag for bag in self.bags]
        new.bags = nn.ModuleList(
            bag.at(snapshots[bag.name]) if bag.name in snapshots else bag
            for bag in bags
        )
        return new

    def apply_delta(self, path: str | Path) -> None:
        """Takes the deltas in a directory over, as ``DynamicEmbeddingBag`` does.

        Each table changes at once, one after the other; those without a delta stay.
        """
        for table in self.bags:
            table.apply_delta(path)


def _pool(table: Any, bags: list[_Bags]) -> tuple[torch.Tensor, ...]:
    """One lookup for all features of a table."""
    if len(bags) == 1:
        return (table.bags(*bags[0]),)
    starts, offsets = 0, []
    for each in bags:
        offsets.append(each.offsets[:-1] + starts)
        starts = starts + each.ids.shape[0]
    last = torch.full_like(bags[0].offsets[-1:], starts)
    ids, ends = torch.cat([each.ids for each in bags]), torch.cat([*offsets, last])
    pooled = table.bags(ids, ends, _weights(bags))
    return pooled.split([each.offsets.shape[0] - 1 for each in bags])


def _weights(bags: list[_Bags]) -> torch.Tensor | None:
    if all(each.weights is None for each in bags):
        return None
    return torch.cat(
        [
            torch.ones_like(each.ids, dtype=torch.float32)
            if each.weights is None
            else each.weights
            for each in bags
        ]
    )


def _bags(name: str, feature: Any, weights: torch.Tensor | None) -> _Bags:
    if not isinstance(feature, torch.Tensor):
        own = _get(feature, "weights_or_none", "weights")
        if own is not None and weights is not None:
            raise ValueError(
                f"feature '{name}' has weights of its own and in weights=...: give "
                "them once"
            )
        weights = weights if own is None else own
    if weights is not None:
        weights = weights.reshape(-1)
    if isinstance(feature, torch.Tensor):
        ids = as_ids(feature)
        bags = ids.unsqueeze(-1) if ids.dim() == 1 else ids
        return _Bags(ids.reshape(-1), bag_ends(bags), weights)
    ids, ends = as_ids(_get(feature, "values")), _get(feature, "lengths").cumsum(0)
    offsets = torch.nn.functional.pad(ends, (1, 0)).to(torch.int64)
    # Ids behind the last bag would fall to it beside another feature's.
    ids, weights = only_bags(ids, offsets, weights)
    return _Bags(ids, offsets, weights)


def _split_keyed(jagged: Any) -> dict[str, Any]:
    """The features of a KeyedJaggedTensor, whose values lie one after the other."""
    keys = list(_get(jagged, "keys"))
    values, weights = _get(jagged, "values"), _get(jagged, "weights_or_none", "weights")
    lengths = _get(jagged, "lengths").reshape(len(keys), -1)
    sizes = lengths.sum(dim=1).tolist()
    parts = values[: sum(sizes)].split(sizes)
    factors: Any = [None] * len(keys)
    if weights is not None:
        factors = weights[: sum(sizes)].split(sizes)
    each = zip(parts, lengths, factors, strict=True)
    return {key: _Jagged(*part) for key, part in zip(keys, each, strict=True)}


class _Jagged(NamedTuple):
    values: torch.Tensor
    lengths: torch.Tensor
    weights: torch.Tensor | None


def _get(holder: Any, *names: str) -> Any:
    """An attribute, or what a method of that name returns; None if there is none."""
    for name in names:
        if hasattr(holder, name):
            value = getattr(holder, name)
            return value() if callable(value) else value
    if names[0] == "weights_or_none":
        return None
    raise TypeError(
        f"{type(holder).__name__} has no '{names[0]}'; give a dict of features, or an "
        "object with keys, values and lengths like TorchRec's KeyedJaggedTensor."
    )
