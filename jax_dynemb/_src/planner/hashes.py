# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hashes the inputs of a plan, so that a stored plan is recognised."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from jax_dynemb._src.config import TableConfig


def described(config: TableConfig) -> dict[str, Any]:
    """Returns what of a table decides its bytes and its work."""
    fields = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    for name in ("hash_seed", "max_capacity", "grow_at", "sharding"):
        del fields[name]
    fields["optimizer"] = sorted((k, v.shape) for k, v in config.states.items())
    return {name: str(value) for name, value in fields.items()}


def hash_of(inputs: list[Any]) -> str:
    """Hashes what ``repr`` shows of some values."""
    return hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]
