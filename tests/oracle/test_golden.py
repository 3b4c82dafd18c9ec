# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The oracle itself against numbers measured on FBGEMM."""

from typing import Any

import pytest

from golden.load_golden import TbeCase
from golden_replay import replay, supported_cases, tables_of
from oracle import ReferenceTables

CASES = supported_cases()


class OracleRunner:
    def __init__(self, case: TbeCase):
        self.oracle = ReferenceTables(tables_of(case))

    def insert(self, ids: Any, rows: Any) -> None:
        self.oracle.insert(ids, rows)

    def lookup(self, ids: Any, weights: Any) -> tuple[Any, Any]:
        return self.oracle.lookup(ids, weights)

    def apply(self, residual: Any, d_rows: Any) -> None:
        self.oracle.apply_gradients(residual, d_rows)

    def weight_gradients(self, residual: Any, d_rows: Any) -> Any:
        return self.oracle.weight_gradients(residual, d_rows)

    def rows(self, table: str) -> dict[int, Any]:
        return self.oracle.export(table)


def test_every_kind_of_trace_is_replayed():
    assert len(CASES) >= 107
    assert {case.optimizer for case in CASES} == {
        "EXACT_SGD",
        "EXACT_ADAGRAD",
        "EXACT_ROWWISE_ADAGRAD",
        "ADAM",
        "PARTIAL_ROWWISE_ADAM",
        "LAMB",
        "PARTIAL_ROWWISE_LAMB",
        "LARS_SGD",
        "ROWWISE_RMSPROP_AR",
    }
    assert {case.pooling for case in CASES} == {"SUM", "MEAN", "NONE"}
    assert any(case.weighted for case in CASES)
    assert any(case.lr_schedule for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_trace(case: TbeCase):
    replay(case, OracleRunner(case))
