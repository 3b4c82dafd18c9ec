# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what a publisher is given."""

from __future__ import annotations

from typing import Any

import jax

from jax_dynemb._src.engines import States
from jax_dynemb._src.files.live import check_whole
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.serving.capture import hash_tables
from jax_dynemb._src.table import Tables

_DTYPES = ("float32", "bfloat16", "int8")


def check_here(coll: Tables, state: States, name: str) -> None:
    """Raises ValueError where this process cannot write its part of a table."""
    if name in coll.engine.catalog.dynamic and jax.process_count() > 1:
        coll.hash_engine.shards(state, name)  # it refuses columns on other processes
    else:
        check_whole(coll, state, name)


def check_options(
    coll: Any, every: Any, dtype: Any, snapshot_every: Any, keep: Any
) -> None:
    """Refuses arguments and tables that a publisher cannot work with."""
    if not isinstance(coll, Tables):
        raise TypeError(
            "Publisher takes the jde.Tables; of a module that is module.coll, and "
            "step takes module.get_state()."
        )
    whole = {"every": every, "snapshot_every": snapshot_every, "keep": keep}
    for name, value in whole.items():
        if value is not None and not (is_whole(value) and value > 0):
            raise ValueError(f"Publisher: {name}={value!r} must be a number above 0.")
    if dtype not in _DTYPES:
        raise ValueError(f"Publisher: dtype must be one of {_DTYPES}, not {dtype!r}.")
    if not hash_tables(coll):
        raise ValueError(
            "Publisher: all tables are tensor trains. Save their cores, which are "
            "small: np.savez(path, **jde.tt.to_torch(config, state[name]))."
        )
    for name, config in coll.engine.catalog.dynamic.items():
        if not config.log_removed:
            raise ValueError(
                f"Publisher: table '{name}' has no log of removed keys, so nothing "
                "says what left it: set TableConfig(log_removed=n), n as many keys as "
                "leave between two segments."
            )
