# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Stores that say of which table, run and moment their rows are."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jax_dynemb._src.rows import Identity


@runtime_checkable
class Identified(Protocol):
    """Describes a store that remembers of which table and moment its rows are.

    A commit keeps the identity, and ``open`` brings it back. A store may also have a
    method ``identity_at(tag)``, which reads that of a commit. A restore calls it before
    ``open``, so that a store that does not fit stays as it is.

    Attributes:
      identity: as it was noted last; None if nothing is known.
    """

    identity: Identity | None
