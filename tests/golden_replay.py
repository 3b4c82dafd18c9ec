# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Golden training traces, fed to the library or to the oracle."""

from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from golden.load_golden import TbeCase, tbe_cases
from support import TOLERANCE, HostJagged

STATE_NAMES = {
    "EXACT_SGD": {},
    "EXACT_ADAGRAD": {"momentum1": "sum_of_squares"},
    "EXACT_ROWWISE_ADAGRAD": {"momentum1": "sum_of_squares"},
    "ADAM": {"momentum1": "mu", "momentum2": "nu"},
    "NONE": {},
    "PARTIAL_ROWWISE_ADAM": {"momentum1": "mu", "momentum2": "nu"},
    "LAMB": {"momentum1": "mu", "momentum2": "nu"},
    "PARTIAL_ROWWISE_LAMB": {"momentum1": "mu", "momentum2": "nu"},
    "LARS_SGD": {"momentum1": "trace"},
    "ROWWISE_RMSPROP_AR": {"momentum1": "nu", "prev_iter": "last"},
}
# Some options of FBGEMM add these states.
MORE_STATES = {"prev_iter": "last", "row_counter": "count"}
NORMS = {"rtol": 1e-4, "atol": 2e-6}  # norms of rows make rounding larger
# The fields of FBGEMM's definitions, which traces have beside the other numbers.
DEFINITIONS = {
    "DECOUPLE_GLOBAL": (
        "global_weight_decay",
        {"gwd_lower_bound": "lower_bound", "gwd_start_iter": "start_iter"},
    ),
    "COUNTER": ("counter_based_regularization", {}),
    "COWCLIP": ("cowclip_regularization", {}),
}
FIELDS = (
    *("counter_weight_decay_mode", "counter_halflife", "adjustment_iter"),
    *("adjustment_ub", "learning_rate_mode", "max_counter", "tail_id_threshold"),
    *("is_tail_id_thresh_ratio", "weight_norm_coefficient", "lower_bound"),
    *("gwd_lower_bound", "gwd_start_iter"),
)


def supported_cases() -> list[TbeCase]:
    """The traces whose optimizer the library has."""
    sources = ("fbgemm_cpu", "fbgemm_cpu_shim", "numpy_ref")
    names = tuple(name for name in STATE_NAMES if name != "NONE")
    return list(tbe_cases(sources=sources, optimizers=names))


def cases_without_optimizer() -> list[TbeCase]:
    """Lists the cases that record the summed gradients of rows instead."""
    return list(tbe_cases(sources=("numpy_ref",), optimizers=("NONE",)))


def tables_of(case: TbeCase) -> list[jde.TableConfig]:
    """The tables of a trace; features are f0, f1, ..."""
    features = [
        tuple(f"f{f}" for f, owner in enumerate(case.feature_table_map) if owner == t)
        for t in range(len(case.tables))
    ]
    optimizer, fields = jde.torchrec.from_fused_params(arguments_of(case))
    return [
        jde.TableConfig(
            name=f"t{t}",
            dim=dim,
            capacity=256,
            feature_names=features[t],
            optimizer=optimizer,
            **{"pooling": "sum"} | fields,
        )
        for t, (_, dim) in enumerate(case.tables)
    ]


def arguments_of(case: TbeCase) -> dict[str, Any]:
    """FBGEMM's arguments of a trace; a list of learning rates becomes a schedule."""
    given = dict(case.hyper_params)
    given |= {"optimizer": case.optimizer, "pooling_mode": case.pooling}
    if case.lr_schedule is not None:
        rates = jnp.array(case.lr_schedule, jnp.float32)
        given["learning_rate"] = lambda count: rates[count]
    own = {name: given.pop(name) for name in FIELDS if name in given}
    if own:
        name, renamed = DEFINITIONS[given["weight_decay_mode"]]
        if "tail_id_threshold" in own:
            ratio = own.pop("is_tail_id_thresh_ratio", False)
            own["tail_id_threshold"] = {
                "val": own["tail_id_threshold"],
                "is_ratio": ratio,
            }
        given[name] = {renamed.get(k, k): v for k, v in own.items()}
    return given


class Runner(Protocol):
    """Has what a replay needs: the library's or the oracle's operations."""

    def insert(self, ids: Any, rows: Any) -> None: ...

    def lookup(self, ids: Any, weights: Any) -> tuple[Any, Any]: ...

    def apply(self, residual: Any, d_rows: Any) -> None: ...

    def weight_gradients(self, residual: Any, d_rows: Any) -> Any: ...

    def rows(self, table: str) -> dict[int, Any]: ...


def replay(case: TbeCase, runner: Runner) -> None:
    """Trains as the trace did and compares every number that it recorded."""
    for t, weights in enumerate(case.initial_weights):
        runner.insert({f"t{t}": np.arange(len(weights))}, {f"t{t}": weights})
    for step, batch in enumerate(case.batches):
        inputs = Inputs(case, step)
        ids = {f"f{f}": inputs.ids(f) for f in inputs.features}
        weights = {f"f{f}": inputs.weights(f) for f in inputs.features}
        out, residual = runner.lookup(ids, weights if case.weighted else None)
        d_out = inputs.split(batch.grad)
        for name, expected in inputs.split(case.out[step]).items():
            np.testing.assert_allclose(
                np.asarray(out[name])[: len(expected)], expected, **TOLERANCE
            )
        d_out = {
            name: _padded(d, np.asarray(out[name]).shape) for name, d in d_out.items()
        }
        psw_grad = case.psw_grad[step]
        if psw_grad is not None:
            got = runner.weight_gradients(residual, d_out)
            for f in inputs.features:
                expected = psw_grad[inputs.span(f)]
                np.testing.assert_allclose(
                    np.asarray(got[f"f{f}"])[: len(expected)], expected, **TOLERANCE
                )
        runner.apply(residual, d_out)
    _compare_tables(case, runner)


def _compare_tables(case: TbeCase, runner: Runner) -> None:
    scaled = case.optimizer in ("LAMB", "PARTIAL_ROWWISE_LAMB", "LARS_SGD")
    tolerance = NORMS if scaled else TOLERANCE
    for t, weights in enumerate(case.weights):
        rows = runner.rows(f"t{t}")
        assert set(rows) == set(range(len(weights)))
        for key, row in rows.items():
            np.testing.assert_allclose(row.values, weights[key], **tolerance)
            names = STATE_NAMES[case.optimizer]
            more = {k: v for k, v in MORE_STATES.items() if v in row.state}
            for golden, name in (names | more).items():
                if golden not in case.states:
                    continue
                np.testing.assert_allclose(
                    row.state[name], case.states[golden][t][key], **tolerance
                )


def _padded(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    out = np.zeros(shape, np.float32)
    out[: len(x)] = x
    return out


class Inputs:
    """Ids of one step, cut into features and padded to one size for all steps."""

    def __init__(self, case: TbeCase, step: int):
        self.case = case
        self.batch = case.batches[step]
        self.features = range(len(case.feature_table_map))
        sizes = case.vbe or [[case.batch_size]] * len(self.features)
        self.bags = [sum(of_ranks) for of_ranks in sizes]
        self.ranks = sizes
        starts = np.concatenate([[0], np.cumsum(self.bags)])
        self.offsets = [
            self.batch.offsets[starts[f] : starts[f + 1] + 1] for f in self.features
        ]
        # one capacity for every step: one compilation for the whole trace
        self.capacity = max(len(b.indices) for b in case.batches)

    def span(self, feature: int) -> slice:
        """Where the feature's ids lie in the flat arrays."""
        return slice(self.offsets[feature][0], self.offsets[feature][-1])

    def ids(self, feature: int) -> Any:
        indices = self.batch.indices[self.span(feature)]
        values = np.full(self.capacity, -1, np.int64)
        values[: len(indices)] = indices
        if self.case.pooling == "NONE":
            return values
        return HostJagged(values, np.diff(self.offsets[feature]).astype(np.int32))

    def weights(self, feature: int) -> np.ndarray:
        return _padded(self.batch.psw[self.span(feature)], (self.capacity,))

    def split(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """An output of the trace to one [bags, dim] for each feature."""
        dims = [self.case.tables[t][1] for t in self.case.feature_table_map]
        if self.case.pooling == "NONE":
            return {f"f{f}": array[self.span(f)] for f in self.features}
        if self.case.vbe is None:
            columns = np.split(array, np.cumsum(dims)[:-1], axis=1)
            return {f"f{f}": columns[f] for f in self.features}
        parts: dict[str, list[np.ndarray]] = {f"f{f}": [] for f in self.features}
        position = 0
        for rank in range(len(self.case.vbe[0])):
            for f in self.features:
                size = self.ranks[f][rank] * dims[f]
                block = array[position : position + size]
                parts[f"f{f}"].append(block.reshape(-1, dims[f]))
                position += size
        return {name: np.concatenate(blocks) for name, blocks in parts.items()}
