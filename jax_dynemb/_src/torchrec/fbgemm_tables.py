# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The arguments of one SplitTableBatchedEmbeddingBagsCodegen, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax_dynemb._src.host_tier import hbm_shares
from jax_dynemb._src.torchrec.configs import EmbeddingBagConfig, EmbeddingConfig
from jax_dynemb._src.torchrec.fused_names import MAPPED, plain
from jax_dynemb._src.torchrec.fused_params import WAYS, from_fused_params, tier_of_share

_LOCATIONS = ("device", "managed", "managed_caching", "host", "mtia")


def tables_from_fbgemm(
    embedding_specs: Sequence[tuple[Any, ...]],
    feature_table_map: Sequence[int] | None = None,
    *,
    table_names: Sequence[str] | None = None,
    **arguments: Any,
) -> tuple[EmbeddingBagConfig | EmbeddingConfig, ...]:
    """Makes the tables of FBGEMM's ``SplitTableBatchedEmbeddingBagsCodegen``.

    Args:
      embedding_specs: by table (rows, dim, location, compute device), or two of them.
        MANAGED_CACHING and MANAGED become host tiers; MANAGED has the fewest rows on
        the device that there can be. The compute device is that of JAX.
      feature_table_map: the table of each feature; one feature a table if None.
        Features are named "f0", "f1", ..., as FBGEMM counts them.
      table_names: "t0", "t1", ... if None.
      arguments: the others, as ``from_fused_params`` takes them.

    Returns:
      Configs for the collections; ``to_table()`` of each is what ``jde.Tables`` takes.
      With PoolingMode.NONE they are of an ``EmbeddingCollection``.

    Raises:
      ValueError: a table without a feature or without a location, names that do not
        fit, or what ``from_fused_params`` refuses.

    Example:
      >>> specs = [(1000, 8, "MANAGED_CACHING", "CUDA"), (100, 16)]
      >>> big, small = jde.torchrec.tables_from_fbgemm(specs, cache_load_factor=0.25)
      >>> big.to_table().tier.hbm_fraction, small.feature_names
      (0.25, ['f1'])
    """
    optimizer, fields = from_fused_params(arguments)
    count = len(embedding_specs)
    of_features = list(range(count) if feature_table_map is None else feature_table_map)
    names = [f"t{t}" for t in range(count)] if table_names is None else table_names
    if len(names) != count or set(of_features) != set(range(count)):
        raise ValueError(
            f"there are {count} embedding_specs: give as many table_names, not "
            f"{list(names)}, and a feature_table_map in which each has a feature, not "
            f"{of_features}."
        )
    pooling = fields.pop("pooling", "sum")
    kind = EmbeddingBagConfig if pooling else EmbeddingConfig
    more = {"pooling": pooling.upper()} if pooling else {}
    fields.pop("tier", None)
    share = _cached_share(embedding_specs, arguments)
    configs = []
    for t, (rows, dim, *place) in enumerate(embedding_specs):
        features = [f"f{f}" for f, table in enumerate(of_features) if table == t]
        tier = _tier(place[0], arguments, share) if place else {}
        configs.append(
            kind(
                rows,
                dim,
                names[t],
                feature_names=features,
                optimizer=optimizer,
                table_fields=fields | tier,
                **more,
            )
        )
    return tuple(configs)


def _location(given: Any) -> str:
    """Returns the name of a location, which FBGEMM's enum numbers."""
    where = plain(given)
    where = dict(enumerate(_LOCATIONS)).get(where, where)
    if where not in _LOCATIONS:
        raise ValueError(
            f"the location of a table is one of {list(_LOCATIONS)}, not {given!r}."
        )
    return where


def _cached_share(specs: Sequence[tuple[Any, ...]], arguments: Any) -> float:
    """Returns the share of rows in a cache, which all tables that are cached share."""
    if not (sets := arguments.get("cache_sets")):
        return arguments.get("cache_load_factor", MAPPED["cache_load_factor"][0])
    cached = [s[0] for s in specs if s[2:] and _location(s[2]) == "managed_caching"]
    return WAYS * sets / max(1, sum(cached))


def _tier(location: Any, arguments: Any, share: float) -> dict[str, Any]:
    """Returns where the rows of a location lie, if not on the device."""
    where = _location(location)
    if arguments.get("enforce_hbm") or where not in ("managed", "managed_caching"):
        return {}
    return tier_of_share(hbm_shares()[0] if where == "managed" else share)
