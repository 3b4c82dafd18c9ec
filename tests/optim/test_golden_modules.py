# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Collections of tables against numbers measured on TorchRec's modules."""

from typing import Any

import numpy as np
import pytest

import jax_dynemb as jde
from golden.load_golden import ModuleCase, module_cases
from support import TOLERANCE, HostJagged, Twins, export

PLAIN = ("ebc/sum", "ebc/mean", "ebc/weighted")
FUSED = ("fused_ebc/sgd", "fused_ebc/adagrad", "fused_ebc/rowwise_adagrad")
CASES = {case.name: case for case in module_cases()}


def twins_of(case: ModuleCase, optimizer: Any, weights: dict[str, np.ndarray]) -> Twins:
    twins = Twins(
        *(
            jde.TableConfig(
                name=table["name"],
                dim=table["embedding_dim"],
                capacity=256,
                feature_names=tuple(table["feature_names"]),
                optimizer=optimizer,
                pooling=table.get("pooling", "SUM").lower(),
            )
            for table in case.spec["tables"]
        )
    )
    for name, rows in weights.items():
        twins.insert({name: np.arange(len(rows))}, {name: rows})
    return twins


def inputs_of(case: ModuleCase) -> tuple[dict[str, HostJagged], dict | None]:
    features = case.spec["kjt"]["keys"]
    lengths = case.arrays["kjt/lengths"].reshape(len(features), -1)
    ends = np.cumsum(lengths.sum(axis=1))
    spans = [slice(end - n, end) for end, n in zip(ends, lengths.sum(1), strict=True)]
    ids, weights = {}, {}
    for feature, span, of_feature in zip(features, spans, lengths, strict=True):
        values = case.arrays["kjt/values"][span].astype(np.int64)
        ids[feature] = HostJagged(values, of_feature.astype(np.int32))
        weights[feature] = case.arrays.get("kjt/weights", np.zeros(0))[span]
    return ids, weights if "kjt/weights" in case.arrays else None


def step(case: ModuleCase, twins: Twins) -> None:
    """One training step: compares the output, then applies the gradients."""
    ids, weights = inputs_of(case)
    rows, residuals = twins.lookup(ids, weights)
    features = case.spec["kjt"]["keys"]
    out = np.concatenate([rows[feature] for feature in features], axis=1)
    np.testing.assert_allclose(out, case.arrays["out"], **TOLERANCE)
    ends = np.cumsum([rows[feature].shape[1] for feature in features])
    parts = np.split(case.arrays["upstream"], ends[:-1], axis=1)
    d_rows = dict(zip(features, parts, strict=True))
    if weights is not None:
        inner = twins.weight_gradients(residuals, d_rows)
        got = np.concatenate([inner[feature] for feature in features])
        np.testing.assert_allclose(got, case.arrays["kjt_weights_grad"], **TOLERANCE)
    twins.apply(residuals, d_rows)


@pytest.mark.parametrize("name", PLAIN)
def test_dense_gradient_is_what_sgd_takes_off(platform, name):
    case = CASES[name]
    tables = [table["name"] for table in case.spec["tables"]]
    before = {table: case.arrays[f"weights/{table}"] for table in tables}
    twins = twins_of(case, jde.optim.sgd(1.0), before)
    step(case, twins)
    for table in tables:
        for key, row in export(twins.coll, twins.state, table).items():
            gradient = before[table][key] - row.values
            expected = case.arrays[f"grad/{table}"][key]
            np.testing.assert_allclose(gradient, expected, **TOLERANCE)


@pytest.mark.parametrize("name", FUSED)
def test_fused_step(platform, name):
    case = CASES[name]
    kind, options = case.spec["optimizer"], dict(case.spec["kwargs"])
    optimizer = getattr(jde.optim, kind)(options.pop("lr"), **options)
    tables = [table["name"] for table in case.spec["tables"]]
    of = {table: f"embedding_bags.{table}.weight" for table in tables}
    before = {table: case.arrays[f"weights_before/{of[table]}"] for table in tables}
    twins = twins_of(case, optimizer, before)
    step(case, twins)
    for table in tables:
        after = case.arrays[f"weights_after/{of[table]}"]
        for key, row in export(twins.coll, twins.state, table).items():
            np.testing.assert_allclose(row.values, after[key], **TOLERANCE)
            for state in row.state.values():
                name = f"opt/{table}.weight/{table}.weight.momentum_1"
                np.testing.assert_allclose(state, case.arrays[name][key], **TOLERANCE)
