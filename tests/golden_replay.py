# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Golden training traces, fed to the library or to the oracle."""

from collections.abc import Callable
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde
from golden.load_golden import TbeCase, tbe_cases
from support import TOLERANCE, HostJagged

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "EXACT_SGD": jde.optim.sgd,
    "EXACT_ADAGRAD": jde.optim.adagrad,
    "EXACT_ROWWISE_ADAGRAD": jde.optim.rowwise_adagrad,
    "ADAM": jde.optim.adam,
    "NONE": jde.optim.none,
    "PARTIAL_ROWWISE_ADAM": jde.optim.partial_rowwise_adam,
    "LAMB": jde.optim.lamb,
    "PARTIAL_ROWWISE_LAMB": jde.optim.partial_rowwise_lamb,
    "LARS_SGD": jde.optim.lars,
    "ROWWISE_RMSPROP_AR": jde.optim.rowwise_rmsprop,
}
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
CLIPPING = {"gradient_clipping", "max_gradient"}  # of the table, not the optimizer
DECAY = {"weight_decay", "weight_decay_mode"}
CATCH_UP = {"gwd_lower_bound", "gwd_start_iter"}
COW_CLIP = {"counter_weight_decay_mode", "counter_halflife"}
COW_CLIP |= {"weight_norm_coefficient", "lower_bound"}
COUNTER = {"adjustment_iter", "adjustment_ub", "learning_rate_mode"}
COUNTER |= {"max_counter", "tail_id_threshold", "is_tail_id_thresh_ratio"}
ADAM = {"learning_rate", "eps", "beta1", "beta2", "weight_decay"}
HYPER = {
    "EXACT_SGD": {"learning_rate", "eps"} | CLIPPING,
    "EXACT_ADAGRAD": {"learning_rate", "eps"} | CLIPPING,
    "EXACT_ROWWISE_ADAGRAD": {"learning_rate", "eps", "max_norm"}
    | (DECAY | CLIPPING | CATCH_UP | COW_CLIP | COUNTER),
    "ADAM": ADAM | {"use_rowwise_bias_correction"},
    "NONE": set(),
    "PARTIAL_ROWWISE_ADAM": ADAM,
    "LAMB": ADAM,
    "PARTIAL_ROWWISE_LAMB": ADAM,
    "LARS_SGD": {"learning_rate", "eta", "momentum", "weight_decay"},
    "ROWWISE_RMSPROP_AR": {"learning_rate", "eps", "ar_alpha", "ema_beta"}
    | {"min_shrinkage"},
}
DEFAULTS = {
    "learning_rate": 0.01,
    "eps": 1e-8,
    "beta1": 0.9,
    "beta2": 0.999,
    "eta": 0.001,
    "momentum": 0.9,
}
ARGUMENTS = {
    "beta1": "b1",
    "beta2": "b2",
    "ema_beta": "decay",
}  # others keep their name
OURS = {"catch_up", "catch_up_floor", "catch_up_start", "catch_up_forward"}
OURS |= {"cow_clip", "counter"}
VALUES = {  # what an option of FBGEMM is here
    ("weight_decay_mode", "DECOUPLE"): ("weight_decay_mode", "decoupled"),
    ("weight_decay_mode", "L2"): ("weight_decay_mode", "l2"),
    ("use_rowwise_bias_correction", True): ("bias_correction", "row"),
    ("use_rowwise_bias_correction", False): ("bias_correction", "table"),
}


def supported_cases() -> list[TbeCase]:
    """The traces whose optimizer and options the library has."""
    sources = ("fbgemm_cpu", "fbgemm_cpu_shim", "numpy_ref")
    cases = tbe_cases(sources=sources, optimizers=tuple(OPTIMIZERS))
    return [case for case in cases if _is_supported(case)]


def _is_supported(case: TbeCase) -> bool:
    known = case.hyper_params.keys() <= HYPER[case.optimizer]
    trains = case.optimizer != "NONE"
    return known and trains


def cases_without_optimizer() -> list[TbeCase]:
    """Lists the cases that record the summed gradients of rows instead."""
    return list(tbe_cases(sources=("numpy_ref",), optimizers=("NONE",)))


def tables_of(case: TbeCase) -> list[jde.TableConfig]:
    """The tables of a trace; features are f0, f1, ..."""
    features = [
        tuple(f"f{f}" for f, owner in enumerate(case.feature_table_map) if owner == t)
        for t in range(len(case.tables))
    ]
    return [
        jde.TableConfig(
            name=f"t{t}",
            dim=dim,
            capacity=256,
            feature_names=features[t],
            optimizer=optimizer_of(case),
            max_gradient=_max_gradient(case),
            pooling=None if case.pooling == "NONE" else case.pooling.lower(),
        )
        for t, (_, dim) in enumerate(case.tables)
    ]


def optimizer_of(case: TbeCase) -> Any:
    """The optimizer of a trace; a list of learning rates becomes a schedule."""
    given = {k: v for k, v in case.hyper_params.items() if k not in CLIPPING}
    hyper = DEFAULTS | _rowwise_options(given)
    if case.lr_schedule is not None:
        rates = jnp.array(case.lr_schedule, jnp.float32)
        hyper["learning_rate"] = lambda count: rates[count]
    wanted = {"EXACT_SGD": {"learning_rate"}}.get(
        case.optimizer, HYPER[case.optimizer] - CLIPPING | OURS
    )
    arguments = dict(
        VALUES.get((k, v), (ARGUMENTS.get(k, k), v))
        if isinstance(v, (str, bool))
        # a schedule and a number cannot be an option
        else (ARGUMENTS.get(k, k), v)
        for k, v in hyper.items()
        if k in wanted
    )
    if arguments.get("weight_decay_mode") == "NONE":
        del arguments["weight_decay_mode"]
    return OPTIMIZERS[case.optimizer](**arguments)


def _rowwise_options(given: dict[str, Any]) -> dict[str, Any]:
    """Two modes of weight decay in FBGEMM are options of their own here."""
    mode = given.get("weight_decay_mode")
    if mode == "DECOUPLE_GLOBAL":
        own = {
            "catch_up": "decay",
            "catch_up_floor": given.pop("gwd_lower_bound", 0.0),
            "catch_up_start": given.pop("gwd_start_iter", 0),
            "catch_up_forward": True,
        }
        return given | {"weight_decay_mode": "DECOUPLE"} | own
    if mode == "COUNTER":
        return _with_counter(given)
    if mode != "COWCLIP":
        return given
    inner = given.pop("counter_weight_decay_mode", "NONE")
    clip = jde.optim.CowClip(
        given.pop("weight_norm_coefficient", 0.0),
        given.pop("lower_bound", 0.0),
        given.pop("counter_halflife"),
    )
    decay = 0.0 if inner == "NONE" else given["weight_decay"]
    own = {"weight_decay": decay, "weight_decay_mode": inner, "cow_clip": clip}
    return given | own


def _with_counter(given: dict[str, Any]) -> dict[str, Any]:
    half_life = given.pop("counter_halflife")
    inner = given.pop("counter_weight_decay_mode")
    if inner == "ADAGRADW":
        inner = {-1: "ADAGRADW_ROOT", -2: "ADAGRADW_CAPPED"}[half_life]
    mode = given.pop("learning_rate_mode", "EQUAL").removeprefix("TAIL_ID_LR_")
    most = given.pop("max_counter", 1.0)
    threshold = given.pop("tail_id_threshold", 0.0)
    if given.pop("is_tail_id_thresh_ratio", False):
        threshold = float(np.floor(threshold * most))
    counter = jde.optim.Counter(
        None if half_life < 0 else half_life,
        "decoupled" if inner == "DECOUPLE" else inner.lower(),
        mode.removeprefix("COUNTER_").lower(),
        start=max(0, given.pop("adjustment_iter", -1)),
        bound=given.pop("adjustment_ub", 1.0),
        threshold=threshold,
        max_count=most,
    )
    return given | {"weight_decay_mode": "NONE", "counter": counter}


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


def _max_gradient(case: TbeCase) -> float | None:
    clips = case.hyper_params.get("gradient_clipping")
    return case.hyper_params["max_gradient"] if clips else None


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
