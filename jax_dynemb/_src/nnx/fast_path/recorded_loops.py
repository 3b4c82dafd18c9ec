# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the loops of a step may be part of a CUDA graph.

In a step of row-wise tables between GPUs that read each other's memory there are loops
which seldom do anything. The host waits for the device at each of them, unless XLA
records them. But XLA of jaxlib 0.11 reads a condition that computes nothing before the
operands of the loop are known, so a program with such a loop is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from jax.extend import core

# Of jax: those on whose GPUs recorded loops were run.
_TRIED = (0, 11)
_EXCHANGE = "dynemb_exchange"


def may_gain(arrays: Any) -> bool:
    """Tells whether a step on these arrays may have loops worth recording."""
    if jax.__version_info__[:2] != _TRIED:
        return False
    return any(_lies_on_gpus(leaf) for leaf in jax.tree.leaves(arrays))


def _lies_on_gpus(leaf: Any) -> bool:
    devices = getattr(getattr(leaf, "sharding", None), "device_set", ())
    return len(devices) > 1 and next(iter(devices)).platform == "gpu"


def has_recordable_loops(jaxpr: core.Jaxpr) -> bool:
    """Tells whether a loop goes between peers, and each one's condition computes."""
    loops = [eqn for eqn in _equations(jaxpr) if eqn.primitive.name == "while"]
    bodies = [loop.params["body_jaxpr"].jaxpr for loop in loops]
    return any(map(_exchanges, bodies)) and all(map(_computes, loops))


def _exchanges(jaxpr: core.Jaxpr) -> bool:
    """Tells whether an exchange between peers is in a program."""
    return any(eqn.params.get("target_name") == _EXCHANGE for eqn in _equations(jaxpr))


def _computes(loop: core.JaxprEqn) -> bool:
    """Tells whether the condition of a loop is more than one of its operands."""
    condition = loop.params["cond_jaxpr"].jaxpr
    made = {var for eqn in condition.eqns for var in eqn.outvars}
    return condition.outvars[0] in made


def _equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """Yields the equations of a program, and of all programs in it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for leaf in jax.tree.leaves(
            list(eqn.params.values()),
            is_leaf=lambda x: isinstance(x, core.Jaxpr | core.ClosedJaxpr),
        ):
            if isinstance(leaf, core.ClosedJaxpr):
                yield from _equations(leaf.jaxpr)
            elif isinstance(leaf, core.Jaxpr):
                yield from _equations(leaf)
