# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The arguments of one SplitTableBatchedEmbeddingBagsCodegen, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.host_tier import hbm_shares
from jax_dynemb._src.torchrec.configs import EmbeddingBagConfig
from jax_dynemb._src.torchrec.fused_names import MAPPED, plain
from jax_dynemb._src.torchrec.fused_params import from_fused_params, tier_of_share

_LOCATIONS = ("device", "managed", "managed_caching", "host", "mtia")


def tables_from_fbgemm(
    embedding_specs: Sequence[tuple[Any, ...]],
    feature_table_map: Sequence[int] | None = None,
    *,
    table_names: Sequence[str] | None = None,
    **arguments: Any,
) -> tuple[TableConfig, ...]:
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
      What ``jde.Tables``, ``jde.nnx`` and collections take.

    Raises:
      ValueError: a table without a feature or without a location, names that do not
        fit, or what ``from_fused_params`` refuses.

    Example:
      >>> specs = [(1000, 8, "MANAGED_CACHING", "CUDA"), (100, 16)]
      >>> big, small = jde.torchrec.tables_from_fbgemm(specs, cache_load_factor=0.25)
      >>> big.tier.hbm_fraction, small.feature_names
      (0.25, ('f1',))
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
    kept = {"pooling": "sum"} | {k: v for k, v in fields.items() if k != "tier"}
    tables = []
    for t, (rows, dim, *place) in enumerate(embedding_specs):
        features = [f"f{f}" for f, table in enumerate(of_features) if table == t]
        config = EmbeddingBagConfig(rows, dim, names[t], feature_names=features)
        tier = _tier(place[0], arguments, fields) if place else {}
        tables.append(config.to_table(optimizer=optimizer, **kept, **tier))
    return tuple(tables)


def _tier(location: Any, arguments: Any, fields: Any) -> dict[str, Any]:
    """Returns where the rows of a location lie, if not on the device."""
    where = plain(location)
    names = dict(enumerate(_LOCATIONS))
    if (where := names.get(where, where)) not in _LOCATIONS:
        raise ValueError(
            f"the location of a table is one of {list(_LOCATIONS)}, not {location!r}."
        )
    if arguments.get("enforce_hbm") or where not in ("managed", "managed_caching"):
        return {}
    if where == "managed":
        return tier_of_share(hbm_shares()[0])
    if "tier" in fields:
        return {"tier": fields["tier"]}
    return tier_of_share(
        arguments.get("cache_load_factor", MAPPED["cache_load_factor"][0])
    )
