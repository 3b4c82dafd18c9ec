# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the loops of a step may be part of a CUDA graph.

Two kinds of steps have loops which seldom run. Row-wise tables between GPUs that read
each other's memory may need several rounds, and so may the update of a tier. The host
waits for the device at each loop, unless XLA records it. By default XLA of jaxlib 0.11
records none. If it does, a condition that only returns an operand of its loop is read
before the operand is computed. So loops are recorded only where all of them are those
of this library. Those of a tier on a mesh were not tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from jax.extend import core

# The version of JAX with which recorded loops were tested on GPUs.
_TRIED = (0, 11)
# Calls in the loops of this library: an exchange, and a round of a tier.
_EXCHANGE, _FETCH = "dynemb_exchange", "dynemb_fetch"


def may_gain(arrays: Any) -> bool:
    """Tells whether a step on these arrays may have loops worth recording."""
    if jax.__version_info__[:2] != _TRIED:
        return False
    return any(_is_looped_over(leaf) for leaf in jax.tree.leaves(arrays))


def _is_looped_over(leaf: Any) -> bool:
    """Tells whether an array lies on several GPUs, or in host memory beside one."""
    sharding = getattr(leaf, "sharding", None)
    devices = getattr(sharding, "device_set", ())
    if not devices or next(iter(devices)).platform != "gpu":
        return False
    return len(devices) > 1 or getattr(sharding, "memory_kind", None) == "pinned_host"


def has_recordable_loops(jaxpr: core.Jaxpr) -> bool:
    """Tells whether all loops are this library's, and their conditions compute."""
    loops, equations = list(_loops(jaxpr)), list(_equations(jaxpr))
    names = {eqn.primitive.name for eqn in equations}
    is_ours = _exchanges if "shard_map" in names else _fetches
    whiles = [eqn for eqn in equations if eqn.primitive.name == "while"]
    return bool(loops) and all(map(is_ours, loops)) and all(map(_computes, whiles))


def _loops(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """Yields the loops of a program, without those inside of others."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("while", "scan"):
            yield eqn
        else:
            for inner in _programs_in(eqn):
                yield from _loops(inner)


def _exchanges(loop: core.JaxprEqn) -> bool:
    """Tells whether an exchange between peers is in a loop."""
    return _calls(loop, _EXCHANGE)


def _fetches(loop: core.JaxprEqn) -> bool:
    """Tells whether a round of a tier is in a loop."""
    return _calls(loop, _FETCH)


def _calls(loop: core.JaxprEqn, target: str) -> bool:
    inside = [eqn for inner in _programs_in(loop) for eqn in _equations(inner)]
    return any(eqn.params.get("target_name") == target for eqn in inside)


def _computes(loop: core.JaxprEqn) -> bool:
    """Tells whether the condition of a ``while`` is more than one of its operands."""
    condition = loop.params["cond_jaxpr"].jaxpr
    made = {var for eqn in condition.eqns for var in eqn.outvars}
    return condition.outvars[0] in made


def _equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """Yields the equations of a program, and of all programs in it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in _programs_in(eqn):
            yield from _equations(inner)


def _programs_in(equation: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """Yields the programs that an equation runs."""
    kinds = (core.Jaxpr, core.ClosedJaxpr)
    leaves = jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: isinstance(x, kinds)
    )
    for leaf in leaves:
        if isinstance(leaf, core.ClosedJaxpr):
            yield leaf.jaxpr
        elif isinstance(leaf, core.Jaxpr):
            yield leaf
