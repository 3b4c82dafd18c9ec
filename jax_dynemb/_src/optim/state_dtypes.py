# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Which optimizer states of a table are stored in 16 bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jax_dynemb._src.optim.base import FusedOptimizer, StateSpec
from jax_dynemb._src.row_formats import dtype_name

StateDtypes = tuple[tuple[str, str], ...]

# They forget what they hold, so what rounding to nearest loses stays small. A sum, or
# a mean that decays by less than half a unit in its last place, would stop instead.
_FORGETFUL = ("mu", "trace")


def checked_state_dtypes(
    optimizer: Any, dim: int, rounding: str, given: Any
) -> StateDtypes:
    """Checks ``TableConfig(state_dtype=)``; returns the bfloat16 ones, by name.

    ValueError for an optimizer, a state or a dtype that cannot be had. Likewise for a
    state that does not learn in bfloat16 with rounding to nearest.
    """
    if given is None:
        return ()
    pairs = dict(given) if isinstance(given, Mapping) else _pairs(given)
    if pairs is None:
        raise ValueError(
            "state_dtype names the states that it is for: write {'mu': 'bfloat16'}, "
            f"not {given!r}"
        )
    if not pairs:
        return ()
    if not isinstance(optimizer, FusedOptimizer):
        raise ValueError(
            "state_dtype is for the optimizers of jde.optim; optax transforms and "
            "none() keep float32 states. Leave state_dtype out"
        )
    known = optimizer.states(dim)
    wide = [name for name, spec in known.items() if spec.shape]
    names = {name: dtype_name(dtype) for name, dtype in pairs.items()}
    for name, dtype in names.items():
        if name not in wide:
            raise ValueError(
                f"state_dtype has no state {name!r}: those with a number for each "
                f"column are {wide}. States of one number a row are always float32 or "
                "int32"
            )
        if dtype not in ("float32", "bfloat16") or pairs[name] is None:
            raise ValueError(
                f"state_dtype[{name!r}] must be 'float32' or 'bfloat16', not "
                f"{pairs[name]!r}"
            )
        if dtype == "bfloat16" and name not in _FORGETFUL:
            _check_rounding(name, rounding)
    return tuple(sorted((n, d) for n, d in names.items() if d != "float32"))


def _pairs(given: Any) -> dict[Any, Any] | None:
    """Makes a dict of (name, dtype) pairs; None of anything else."""
    if not isinstance(given, (tuple, list)):
        return None
    whole = all(isinstance(x, (tuple, list)) and len(x) == 2 for x in given)
    return dict(given) if whole else None


def _check_rounding(name: str, rounding: str) -> None:
    if rounding != "stochastic":
        raise ValueError(
            f"state_dtype[{name!r}]='bfloat16' needs rounding='stochastic': rounded to "
            "nearest a sum of squares stops growing at 256 and a slow mean stops "
            "decaying. Set rounding='stochastic', or leave the state float32"
        )


def stored_states(
    optimizer: Any, dim: int, dtypes: StateDtypes
) -> dict[str, StateSpec]:
    """Lists the states of a row, each with the dtype of its array."""
    known = optimizer.states(dim)
    stored = dict(dtypes)
    return {
        name: _stored(spec, stored[name]) if name in stored else spec
        for name, spec in known.items()
    }


def _stored(spec: StateSpec, dtype: str) -> StateSpec:
    """Returns it with an initial value that the dtype can hold."""
    initial = float(jnp.dtype(dtype).type(spec.initial))
    return dataclasses.replace(spec, stored=dtype, initial=initial)
