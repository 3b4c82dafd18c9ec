# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers and pooling against numbers measured on FBGEMM."""

from typing import Any

import pytest

from golden.load_golden import TbeCase
from golden_replay import replay, supported_cases, tables_of
from support import Twins, export

CASES = supported_cases()


class LibraryRunner:
    def __init__(self, case: TbeCase):
        self.twins = Twins(*tables_of(case))

    def insert(self, ids: Any, rows: Any) -> None:
        self.twins.insert(ids, rows)

    def lookup(self, ids: Any, weights: Any) -> tuple[Any, Any]:
        return self.twins.lookup(ids, weights)

    def apply(self, residual: Any, d_rows: Any) -> None:
        self.twins.apply(residual, d_rows)

    def weight_gradients(self, residual: Any, d_rows: Any) -> Any:
        return self.twins.weight_gradients(residual, d_rows)

    def rows(self, table: str) -> dict[int, Any]:
        return export(self.twins.coll, self.twins.state, table)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_trace(platform, case):
    replay(case, LibraryRunner(case))
