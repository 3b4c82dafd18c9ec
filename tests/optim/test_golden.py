# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers and pooling against numbers measured on FBGEMM."""

from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from golden.load_golden import TbeCase
from golden_replay import (
    Inputs,
    cases_without_optimizer,
    replay,
    supported_cases,
    tables_of,
)
from support import TOLERANCE, Twins, export, to_device

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


@pytest.mark.parametrize("case", cases_without_optimizer(), ids=lambda case: case.name)
def test_sums_of_rows_without_an_optimizer(platform, case):
    coll = jde.Tables(tables_of(case))
    state = coll.init(0)
    starts = np.cumsum([0] + [rows for rows, _ in case.tables])
    for t, weights in enumerate(case.initial_weights):
        keys = jde.ids(np.arange(len(weights)))
        state = coll.insert(state, {f"t{t}": keys}, {f"t{t}": weights})
    for step, (rows, sums) in enumerate(case.sparse_grads):
        inputs = Inputs(case, step)
        ids = {f"f{f}": to_device(inputs.ids(f)) for f in inputs.features}
        weights = {f"f{f}": inputs.weights(f) for f in inputs.features}
        out, residual, state = coll.lookup(
            state, ids, weights=weights if case.weighted else None
        )
        d_rows = {}
        for name, grad in inputs.split(case.batches[step].grad).items():
            padded = np.zeros(out[name].shape, np.float32)
            padded[: len(grad)] = grad
            d_rows[name] = padded
        reduced, state = coll.reduce_gradients(state, residual, d_rows)
        got = {}
        for t in range(len(case.tables)):
            own = reduced[f"t{t}"]
            for place in np.flatnonzero(np.asarray(own.slots) >= 0):
                key = int(own.keys[place, 0]) + int(starts[t])
                got[key] = np.asarray(own.grads[place])
        want = {int(row): total for row, total in zip(rows, sums, strict=True)}
        assert got.keys() == want.keys()
        for key, total in want.items():
            np.testing.assert_allclose(got[key], total, **TOLERANCE)
