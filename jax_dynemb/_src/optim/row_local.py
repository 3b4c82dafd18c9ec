# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Is an optax transformation row-local? Asked of its numbers, not of its name.

A table updates the rows of one batch and nothing else. That equals an update of the
whole table only if the update of a row depends on that row alone. So two steps run on a
set of rows, and again on a shuffled part of it between rows of zeros. Omitted rows hold
huge values and NaN, which exposes every norm, mean or finiteness test over the batch.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

_Why = Callable[[optax.GradientTransformation], str | None]

# More than 128 rows, and more than 128 columns when the table has them: below that
# size some transformations do not show what they do (factored second moments).
_ROWS, _KEPT, _PADDING, _STEPS = 160, 120, 9, 2

_PART_OF = {
    "scale_by_trust_ratio": "lamb and lars",
    "scale_by_factored_rms": "adafactor",
    "clip_by_block_rms": "adafactor",
    "scale_by_param_block_rms": "adafactor",
    "scale_by_lbfgs": "lbfgs",
    "scale_by_muon": "muon",
    "scale_by_sm3": "sm3",
    "scale_by_novograd": "novograd",
    "add_noise": "noisy_sgd",
}
_ROW_LOCAL = (
    "Use a row-local one: sgd, momentum, adagrad, adam(w), rmsprop, lion, schedules "
    "and clipping by value"
)
_CLIP = (
    "Use jde.optim.clip_by_global_norm, which clips dense and row gradients together, "
    "before the update"
)


def check_row_local(tx: optax.GradientTransformation, dim: int) -> None:
    """Raises ValueError unless every row's update depends on that row alone."""
    refuse(tx, functools.partial(_why_not, dim=_probe_dim(dim)), _ROW_LOCAL)


def refuse(tx: optax.GradientTransformation, why: _Why, fix: str) -> None:
    """Raises when ``why(tx)`` has a reason, naming the part of ``tx`` it holds for."""
    if why(tx):
        culprit = _culprit(tx, why)
        name, reason = _name(culprit), why(culprit)
        part = f"it is part of {_PART_OF[name]}, and " if name in _PART_OF else ""
        fix = _CLIP if "global_norm" in name else fix
        raise ValueError(
            f"optax {name} is not row-local and cannot be applied to the touched rows "
            f"of a table; {part}{reason}. {fix}."
        )


def _name(tx: optax.GradientTransformation) -> str:
    """The function that made ``tx``, and the one inside inject_hyperparams."""
    name = getattr(tx.update, "__qualname__", type(tx).__name__).split(".")[0]
    inner = _held(tx.update).get("inner_factory")
    return name if inner is None else f"{name}({inner.__name__})"


@contextlib.contextmanager
def optax_rules() -> Iterator[None]:
    """Runs optax under the promotion rules it was written for."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _probe_dim(dim: int) -> int:
    return dim if dim < 8 else 8 if dim < 128 else 136


@functools.lru_cache(maxsize=256)
def _why_not(tx: optax.GradientTransformation, dim: int) -> str | None:
    """Returns the reason in words, or None when ``tx`` is row-local."""
    rows, grads, keep = probe(dim)
    part_rows, part_grads = _kept(rows, keep), [_kept(g, keep) for g in grads]
    try:
        with jax.ensure_compile_time_eval(), jax.debug_nans(False), optax_rules():
            run = jax.jit(functools.partial(updates_of, tx))
            whole, part = run(rows, grads), run(part_rows, part_grads)
    except Exception as error:  # optax raises whatever the transformation raises
        reason = str(error).splitlines()[0] if str(error) else ""
        return f"its update fails on rows alone ({type(error).__name__}: {reason})"
    for a, b in zip(whole[0], part[0], strict=True):
        if not same(np.asarray(a)[keep], np.asarray(b)[: len(keep)]):
            return "the update of a row changes with the other rows of the batch"
    for a, b in zip(whole[1], part[1], strict=True):
        if a.shape == b.shape and not np.allclose(a, b, rtol=1e-4, equal_nan=True):
            return "it keeps one number for all rows that follows their gradients"
    return None


def updates_of(tx: Any, rows: jax.Array, grads: list[jax.Array]):
    """Returns the update of each step, and the float leaves of the last state."""
    params: Any = rows
    state, out = tx.init(params), []
    for g in grads:
        updates, state = tx.update(g, state, params)
        params = optax.apply_updates(params, updates)
        out.append(updates)
    leaves = map(jnp.asarray, jax.tree.leaves(state))
    return out, [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]


def probe(dim: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Rows, one gradient a step, and the order in which a part of them is kept."""
    draw = np.random.default_rng(20260101)
    scale = 10.0 ** draw.uniform(-3, 3, size=(_STEPS + 1, _ROWS, 1))
    values = draw.normal(size=(_STEPS + 1, _ROWS, dim)) * scale
    values[:, _KEPT : _KEPT + 20] *= 1e9
    values[-1, _KEPT + 20 :] = np.nan
    values[0, :_KEPT] = draw.normal(size=(_KEPT, dim))
    rows, *grads = values.astype(np.float32)
    return rows, grads, draw.permutation(_KEPT)


def _kept(rows: np.ndarray, keep: np.ndarray) -> np.ndarray:
    return np.pad(rows[keep], ((0, _PADDING), (0, 0)))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal up to rounding, measured against the largest entry of each row."""
    with np.errstate(all="ignore"):
        size = np.abs(a).max(axis=1, keepdims=True, initial=0)
        near = np.abs(a - b) <= 1e-4 * np.abs(a) + 1e-6 * size
    return bool(np.all(near | (a == b)))


def _culprit(tx: optax.GradientTransformation, why: _Why):
    """Walks into chains and wrappers for the innermost part with a reason."""
    for part in _parts(tx):
        if why(part):
            return _culprit(part, why)
    return tx


def _parts(tx: optax.GradientTransformation) -> list[optax.GradientTransformation]:
    """The transformations that the closures of ``tx`` hold, in order."""
    update, init = _held(tx.update), _held(tx.init)
    parts = [t for value in [*update.values(), *init.values()] for t in _found(value)]
    # optax.chain keeps its parts as two tuples of functions.
    inits, updates = _functions(init), _functions(update)
    if inits and len(inits) == len(updates):
        pairs = zip(inits, updates, strict=True)
        parts += [optax.GradientTransformationExtraArgs(*pair) for pair in pairs]
    return [part for part in dict.fromkeys(parts) if part != tx]


def _held(function: Any) -> dict[str, Any]:
    owner = getattr(function, "__self__", None)
    if owner is not None:
        return dict(getattr(owner, "__dict__", {}))
    cells = getattr(function, "__closure__", None) or ()
    names = function.__code__.co_freevars if cells else ()
    return dict(zip(names, (cell.cell_contents for cell in cells), strict=True))


def _found(value: Any) -> Iterator[optax.GradientTransformation]:
    if isinstance(value, optax.GradientTransformation):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _found(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _found(item)


def _functions(held: dict[str, Any]) -> tuple[Any, ...]:
    for value in held.values():
        if isinstance(value, optax.GradientTransformation):
            continue  # a tuple of two functions, but not the one meant
        if isinstance(value, tuple) and value and all(map(callable, value)):
            return value
    return ()
