# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The two reasons for which there is no plan."""

from __future__ import annotations

import enum


class PlannerErrorType(enum.StrEnum):
    """Names the reason of a ``PlannerError``, with TorchRec's words.

    INSUFFICIENT_STORAGE: the tables do not fit, however they are placed.
    STRICT_CONSTRAINTS: a constraint leaves a table without a sharding.
    """

    INSUFFICIENT_STORAGE = "insufficient_storage"
    STRICT_CONSTRAINTS = "strict_constraints"


class PlannerError(ValueError):
    """Says why no plan exists; ``error_type`` has the reason."""

    def __init__(self, message: str, error_type: PlannerErrorType):
        super().__init__(f"{error_type.name}: {message}")
        self.error_type = error_type
