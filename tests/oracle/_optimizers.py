# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One update of one table's touched rows, in float64 on float32 storage.

The formulas are FBGEMM's where it has the optimizer. Epsilon stands outside the square
root. Adam's weight decay is decoupled and multiplied by the learning rate.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

State = dict[str, np.ndarray]
Hyper = Mapping[str, float]
Step = tuple[np.ndarray, State]

# These sum the squares of a row's gradient, which must not overflow.
SUMS_SQUARES = (
    "rowwise_adagrad",
    "partial_rowwise_adam",
    "partial_rowwise_lamb",
    "rowwise_rmsprop",
    "lars",
    "caught_up_rowwise_adagrad",
    "cow_clip_rowwise_adagrad",
    "counter_rowwise_adagrad",
    "shrinking_rowwise_rmsprop",
)
# States that count; all others are float32.
INTEGERS = ("row_counted_adam/count",)
# An optimizer has states with a number for each column, then those of one number.
_STATES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "none": ((), ()),
    "sgd": ((), ()),
    "momentum": (("trace",), ()),
    "adagrad": (("sum_of_squares",), ()),
    "rowwise_adagrad": ((), ("sum_of_squares",)),
    "adam": (("mu", "nu"), ()),
    "row_counted_adam": (("mu", "nu"), ("count",)),
    "partial_rowwise_adam": (("mu",), ("nu",)),
    "lamb": (("mu", "nu"), ()),
    "partial_rowwise_lamb": (("mu",), ("nu",)),
    "lars": (("trace",), ()),
    "lion": (("mu",), ()),
    "rmsprop": (("nu",), ()),
    "rowwise_rmsprop": ((), ("nu",)),
    "ftrl": (("z", "n"), ()),
    "caught_up_rowwise_adagrad": ((), ("sum_of_squares", "last")),
    "caught_up_adam": (("mu", "nu"), ("last",)),
    "smart_adam": (("mu", "nu"), ("last",)),
    "smart_momentum": (("trace",), ("last",)),
    "shrinking_rowwise_rmsprop": ((), ("nu", "last")),
    "cow_clip_rowwise_adagrad": ((), ("sum_of_squares", "count", "last")),
    "counter_rowwise_adagrad": ((), ("sum_of_squares", "count", "last")),
}


def initial_state(optimizer: Any, dim: int) -> State:
    """Returns a new row's state: by name float32[dim], or float32[] if one a row."""
    if optimizer.kind not in _STATES:
        raise ValueError(f"no reference for the optimizer {optimizer.kind!r}")
    wide, single = _STATES[optimizer.kind]
    shapes = {name: (dim,) for name in wide} | {name: () for name in single}
    first = dict(getattr(optimizer, "initial", ()))
    fresh = getattr(optimizer, "initial_accumulator_value", 0.0)
    first = {"sum_of_squares": fresh} | first
    return {
        n: np.full(s, first.get(n, 0.0), dtype_of_state(optimizer.kind, n))
        for n, s in shapes.items()
    }


def dtype_of_state(kind: str, name: str) -> str:
    """Returns "int32" for a state that counts, else "float32"."""
    counts = name == "last" or f"{kind}/{name}" in INTEGERS
    return "int32" if counts else "float32"


def updated_row(
    kind: str, hyper: Hyper, step: int, row: Any, g: np.ndarray
) -> tuple[np.ndarray, State]:
    """Applies the sum of a row's gradients, float64[dim], once.

    ``hyper`` has the learning rate of this step; ``step`` counts this update too.
    Returns float64 values and state.
    """
    # the kernels take float, so 1 - beta is 1 - float32(beta)
    h = {name: float(np.float32(value)) for name, value in hyper.items()}
    w = row.values.astype(np.float64)
    state = {name: x.astype(np.float64) for name, x in row.state.items()}
    return _FORMULAS[kind](h, step, w, state, _clipped(h, np.asarray(g, np.float64)))


def _clipped(h: Hyper, g: np.ndarray) -> np.ndarray:
    value, norm = h.get("clip_row_value", 0.0), h.get("clip_row_norm", 0.0)
    g = np.clip(g, -value, value) if value > 0 else g
    length = np.linalg.norm(g)
    return g * (norm / length) if 0 < norm < length else g


def _sgd(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    return w - h["learning_rate"] * g, {}


def _momentum(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    trace = h["momentum"] * s["trace"] + g
    direction = g + h["momentum"] * trace if h["nesterov"] else trace
    return w - h["learning_rate"] * direction, {"trace": trace}


def _adagrad(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    total = s["sum_of_squares"] + g * g
    direction = _ratio(g, np.sqrt(total) + h["eps"])
    return w - h["learning_rate"] * direction, {"sum_of_squares": total}


def _rowwise_adagrad(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    l2 = h.get("l2", 0.0)
    total = s["sum_of_squares"] + np.mean((g + l2 * w) ** 2)
    root = np.sqrt(total) + h["eps"]
    # once divided: a zero gradient on zero sums moves nothing
    shrunk = w - h["learning_rate"] * (_ratio(l2 * w, root) + h["weight_decay"] * w)
    new = shrunk - h["learning_rate"] * _ratio(g, root)
    most, norm = h.get("max_norm", 0.0), np.linalg.norm(new)
    if 0 < most < norm:
        new = new * (most / norm)
    return new, {"sum_of_squares": total}


def _adam_step(
    h: Hyper, count: float, w: np.ndarray, mu: Any, nu: Any, corrects: bool
) -> np.ndarray:
    """Computes the direction of Adam: corrected moments, their quotient, decay."""
    if corrects:
        mu = mu / (1 - h["b1"] ** count)
        nu = nu / (1 - h["b2"] ** count)
    return _ratio(mu, np.sqrt(nu) + h["eps"]) + h["weight_decay"] * w


def _moments(h: Hyper, s: State, g: np.ndarray, squares: Any) -> State:
    mu = h["b1"] * s["mu"] + (1 - h["b1"]) * g
    return {"mu": mu, "nu": h["b2"] * s["nu"] + (1 - h["b2"]) * squares}


def _adam(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    new = _moments(h, s, g, g * g)
    corrects = bool(h.get("corrects", 1.0))
    return w - h["learning_rate"] * _adam_step(
        h, step, w, **new, corrects=corrects
    ), new


def _row_counted_adam(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    new, count = _moments(h, s, g, g * g), s["count"] + 1
    direction = _adam_step(h, float(count), w, **new, corrects=True)
    return w - h["learning_rate"] * direction, new | {"count": count}


def _partial_rowwise_adam(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    new = _moments(h, s, g, np.mean(g * g))
    direction = _adam_step(h, step, w, **new, corrects=bool(h["corrects"]))
    return w - h["learning_rate"] * direction, new


def _trusted(h: Hyper, w: np.ndarray, r: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(w), np.linalg.norm(r)
    ratio = norms[0] / norms[1] if min(norms) > 0 else 1.0
    return w - h["learning_rate"] * ratio * r


def _lamb(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    new = _moments(h, s, g, g * g)
    r = _adam_step(h, step, w, **new, corrects=bool(h["corrects"]))
    return _trusted(h, w, r), new


def _partial_rowwise_lamb(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    new = _moments(h, s, g, np.mean(g * g))
    r = _adam_step(h, step, w, **new, corrects=bool(h["corrects"]))
    return _trusted(h, w, r), new


def _lars(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    length, decay = np.linalg.norm(w), h["weight_decay"]
    below = np.linalg.norm(g) + decay * length
    ratio = (length / below if length > 0 else 1.0) if below > 0 else 0.0
    rate = h["learning_rate"] * h["eta"] * ratio
    trace = h["momentum"] * s["trace"] + rate * (g + decay * w)
    return w - trace, {"trace": trace}


def _lion(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    sign = np.sign(h["b1"] * s["mu"] + (1 - h["b1"]) * g)
    mu = h["b2"] * s["mu"] + (1 - h["b2"]) * g
    return w - h["learning_rate"] * (sign + h["weight_decay"] * w), {"mu": mu}


def _rmsprop(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    nu = h["decay"] * s["nu"] + (1 - h["decay"]) * g * g
    inside, outside = (h["eps"], 0.0) if h["eps_in_sqrt"] else (0.0, h["eps"])
    root = np.sqrt(nu + inside) + outside
    return w - h["learning_rate"] * _ratio(g, root), {"nu": nu}


def _rowwise_rmsprop(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    nu = h["decay"] * s["nu"] + (1 - h["decay"]) * np.mean(g * g)
    return w - h["learning_rate"] * _ratio(g, np.sqrt(nu) + h["eps"]), {"nu": nu}


def _ftrl(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    rate, p = h["learning_rate"], -h["lr_power"]
    if rate == 0:
        return w, s
    z, before = s["z"], s["n"] ** p
    if h["consistent"]:
        fresh = (z == 0) & (s["n"] == h["initial_accumulator_value"])
        z = np.where(fresh, -w * (h["beta"] + before) / rate, z)
    n = s["n"] + g * g
    after = n**p
    z = z + g + 2 * h["l2_shrinkage"] * w - (after - before) / rate * w
    slope = (h["beta"] + after) / rate + h["l2"]
    new = -_ratio(z - np.sign(z) * h["l1"], slope)
    return np.where(np.abs(z) <= h["l1"], 0.0, new), {"z": z, "n": n}


def _interval(s: State, step: int) -> float:
    """Counts the updates of the table since the row's last one; 1 if it had none."""
    return step - float(s["last"]) if s["last"] else 1.0


def due_decay(h: Hyper, step: int, state: Mapping[str, Any]) -> float:
    """Computes the decay of a row for the updates that it missed before ``step``."""
    if step < h["start"]:
        return 1.0
    keep = max(0.0, 1 - float(np.float32(h["learning_rate"])) * h["weight_decay"])
    return max(h["floor"], keep ** (_interval(dict(state), step) - 1))


def _caught_up(inner: str) -> Callable[..., Step]:
    """Decays the row for the updates that it missed, then updates it."""

    def formula(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
        new, state = _FORMULAS[inner](h, step, w * due_decay(h, step, s), s, g)
        last = s["last"] if step < h["start"] else np.asarray(step, np.float64)
        return new, state | {"last": last}

    return formula


def _smart_adam(h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray) -> Step:
    missed = int(_interval(s, step)) - 1
    rate, b1, b2 = h["learning_rate"], h["b1"], h["b2"]
    mu, nu, late = s["mu"], s["nu"], np.zeros_like(w)
    for _ in range(missed):
        mu, nu, w = b1 * mu, b2 * nu, w * (1 - rate * h["weight_decay"])
        late = late + mu
    mu, nu = b1 * mu + (1 - b1) * g, b2 * nu + (1 - b2) * g * g
    direction = _ratio(mu + late, np.sqrt(nu) + h["eps"]) + h["weight_decay"] * w
    last = {"last": np.asarray(step, np.float64)}
    return w - rate * direction, {"mu": mu, "nu": nu} | last


def _smart_momentum(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    missed, state = int(_interval(s, step)) - 1, {"trace": s["trace"]}
    for _ in range(missed):
        w, state = _momentum(h, step, w, state, np.zeros_like(g))
    w, state = _momentum(h, step, w, state, g)
    return w, state | {"last": np.asarray(step, np.float64)}


def _shrinking_rowwise_rmsprop(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    shrinkage = h["learning_rate"] * h["ar_alpha"] * _interval(s, step)
    kept = max(h["min_shrinkage"], 1 - min(max(shrinkage, 0.0), 1.0))
    nu = h["decay"] * s["nu"] + (1 - h["decay"]) * np.mean(g * g)
    new = kept * w - h["learning_rate"] * _ratio(g, np.sqrt(nu) + h["eps"])
    return new, {"nu": nu, "last": np.asarray(step, np.float64)}


def _cow_clip_rowwise_adagrad(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    half_life = h["half_life"] or np.inf
    count = 1 + 0.5 ** (_interval(s, step) / half_life) * s["count"]
    whole = g + h["l2"] * w
    total = s["sum_of_squares"] + np.mean(whole**2)
    limit = count * max(h["coefficient"] * np.linalg.norm(w), h["lower_bound"])
    length = np.linalg.norm(whole)
    share = min(1.0, limit / length) if length > 0 else 1.0
    rate = h["learning_rate"] * share
    root = np.sqrt(total) + h["eps"]
    decay = h["learning_rate"] * h["weight_decay"]
    new = w - rate * _ratio(h["l2"] * w, root) - decay * w - rate * _ratio(g, root)
    last = {"last": np.asarray(step, np.float64)}
    return new, {"sum_of_squares": total, "count": np.asarray(count)} | last


def _counter_rowwise_adagrad(
    h: Hyper, step: int, w: np.ndarray, s: State, g: np.ndarray
) -> Step:
    rate, decay = h["learning_rate"], h["weight_decay"]
    step_mode, decay_mode = divmod(int(h["mode"]), 8)
    interval = _interval(s, step)
    kept = 0.5 ** (interval / h["half_life"]) if h["half_life"] else h["counts_forever"]
    count = 1 + kept * float(s["count"])
    squares = (g + decay * w) ** 2 if decay_mode == 1 else g**2
    total = s["sum_of_squares"] + np.mean(squares)
    root = np.sqrt(total) + h["eps"]
    since = step - h["start"] if h["start"] > 0 else step + 1
    factor, shrinks, over = 1.0, 1.0, root
    if since > 0:
        if count > h["threshold"]:
            ratio = h["max_count"] / (count + 1)
            if step_mode == 1:
                factor = np.clip(ratio ** h["bound"], 1, 10)
            if step_mode == 2:
                factor = np.clip(ratio ** -h["bound"], 0.1, 1)
            if step_mode == 3:
                over = np.sqrt(h["bound"] * count) + h["eps"]
        if decay_mode == 1:
            shrinks = 1 - h["half_life"] / count * decay * _ratio(np.array(rate), root)
        if decay_mode == 2:
            shrinks = 1 - h["half_life"] / count * decay * rate
        if decay_mode > 2:
            capped = min(rate * count, h["bound"]) / rate if rate else 0.0
            lazy = (1 - decay * rate) ** (min(interval, since) - 1)
            factor = lazy * (np.sqrt(count) if decay_mode == 3 else capped)
            over, shrinks = root, (1 - decay * rate) * lazy
    new = shrinks * w - rate * factor * _ratio(g, over)
    last = {"last": np.asarray(step, np.float64)}
    return new, {"sum_of_squares": total, "count": np.asarray(count)} | last


def _ratio(a: np.ndarray, b: Any) -> np.ndarray:
    """A / b, and 0 / 0 is 0: with eps=0 a zero gradient moves nothing."""
    return np.divide(a, b, out=np.zeros_like(a), where=(a != 0) | (b != 0))


_FORMULAS: dict[str, Callable[..., Step]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "adagrad": _adagrad,
    "rowwise_adagrad": _rowwise_adagrad,
    "adam": _adam,
    "row_counted_adam": _row_counted_adam,
    "partial_rowwise_adam": _partial_rowwise_adam,
    "lamb": _lamb,
    "partial_rowwise_lamb": _partial_rowwise_lamb,
    "lars": _lars,
    "lion": _lion,
    "rmsprop": _rmsprop,
    "rowwise_rmsprop": _rowwise_rmsprop,
    "ftrl": _ftrl,
    "caught_up_rowwise_adagrad": _caught_up("rowwise_adagrad"),
    "caught_up_adam": _caught_up("adam"),
    "smart_adam": _smart_adam,
    "smart_momentum": _smart_momentum,
    "shrinking_rowwise_rmsprop": _shrinking_rowwise_rmsprop,
    "cow_clip_rowwise_adagrad": _cow_clip_rowwise_adagrad,
    "counter_rowwise_adagrad": _counter_rowwise_adagrad,
}
