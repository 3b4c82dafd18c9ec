# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Assertions for your own train step: tables stay in place, nothing recompiles."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from jax_dynemb._src.ops import TableState

# These opcodes pass an array on without making another of its size.
_PASS_ON = {
    "parameter",
    "tuple",
    "get-tuple-element",
    "custom-call",
    "while",
    "conditional",
    "call",
    "bitcast",
    "opt-barrier",
    "async-start",
    "async-done",
    "async-update",
}
_FIXES = {
    "copy": (
        "An old value of the table is read after, or beside, its update: use the state "
        "that each operation returns and nothing older. A loop that carries the table "
        "must carry it unchanged in shape."
    ),
    "all-gather": (
        "A sharded table left shard_map: make it with jde.Tables(tables, mesh=..., "
        "axis=...) and touch it through that only."
    ),
    "dynamic-update-slice": (
        "The table is stacked, scanned over or under vmap: keep it in the carry of "
        "lax.scan and do not vmap a lookup."
    ),
}
_FIX = (
    "A table must not be reshaped, sliced, cast or combined with jnp operations: use "
    "jde.Tables.export, gather or find to read it."
)
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.+?) ([a-z][\w\-]*)\(")
_ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
_FUSED = re.compile(r"\bfusion\(.*\bcalls=%?([\w.\-]+)")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{\s*$")


def assert_in_place(
    jitted: Any,
    *args: Any,
    table_bytes: int | None = None,
    allow: Iterable[str] = (),
    **kwargs: Any,
) -> None:
    """Asserts that a jitted step updates its tables without copying them.

    Reads the compiled program, which does not run. No instruction may make an array of
    a table's size, and temporary memory must be smaller than a table. Tables that it
    returns must be aliased from argument to result. Use tables larger than anything
    else in the step, or a batch will be taken for a table.

    Args:
      jitted: what ``jax.jit``, ``nnx.jit`` or ``jde.nnx.jit`` returned.
      *args: arguments of a step, as in a call.
      table_bytes: size of the tables; by default read from the ``TableState``s among
        the arguments, with the largest array as the size to look for.
      allow: opcodes that may make such an array after all, e.g. a wanted "scatter".
      **kwargs: keyword arguments of a step.

    Raises:
      AssertionError: naming the instruction and what to change.
      ValueError: there is no table among the arguments and no ``table_bytes``.

    Example:
      >>> jde.testing.assert_in_place(
      ...     train_step, model, optimizer, batch
      ... )  # doctest: +SKIP
    """
    largest, total = _table_sizes((args, kwargs), table_bytes)
    compiled = jitted.lower(*args, **kwargs).compile()
    memory = compiled.memory_analysis()
    returned = memory.output_size_in_bytes - memory.alias_size_in_bytes
    if memory.alias_size_in_bytes < total and returned >= largest // 2:
        raise AssertionError(
            f"{memory.alias_size_in_bytes} bytes of the arguments are updated in "
            f"place, but the tables take {total}. Donate them: @jde.nnx.jit, or "
            "jax.jit(..., donate_argnums=...) on the outermost jit, and return the "
            "state from it."
        )
    allowed = _PASS_ON | set(allow)
    if memory.temp_size_in_bytes < largest // 2 and _platform(args) == "gpu":
        # There XLA wraps a custom call and the slice of its operand in one fusion
        # of the table's size, which makes nothing.
        allowed.add("fusion")
    for name, opcode, size in large_instructions(compiled.as_text(), largest // 2):
        if opcode not in allowed:
            raise AssertionError(
                f"{opcode} {name!r} makes {size} bytes, the size of a table. "
                f"{_FIXES.get(opcode, _FIX)}"
            )
    if memory.temp_size_in_bytes >= largest // 2:
        raise AssertionError(
            f"the step takes {memory.temp_size_in_bytes} bytes of temporary memory "
            f"beside a table array of {largest} bytes. {_FIXES['copy']}"
        )


def assert_no_recompilation(
    fn: Callable[..., Any], calls: Iterable[tuple[Any, ...]]
) -> None:
    """Asserts that all calls after the first run without compiling anything.

    Args:
      fn: the step; called as ``fn(*call)`` for each of ``calls``.
      calls: the arguments of each call, as tuples.

    Raises:
      AssertionError: naming the call and what was compiled.
    """
    for number, call in enumerate(calls):
        with _compilations() as compiled:
            fn(*call)
        if compiled and number > 0:
            raise AssertionError(
                f"call {number} compiled {', '.join(compiled)}. Shapes, dtypes, "
                "shardings and static arguments must be those of the first call: pad "
                "batches to one size, and pass changing numbers as arrays."
            )


def large_instructions(text: str, size: int) -> Iterator[tuple[str, str, int]]:
    """Finds the instructions of an HLO text whose result holds a large array.

    Bodies of fusions are left out: only the fusion's own result is ever stored.

    Args:
      text: ``compiled.as_text()``.
      size: bytes from which an array is large.

    Yields:
      Name, opcode and the bytes of the largest array.
    """
    fused = set(_FUSED.findall(text))
    inside = None
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            inside = match[1]
        elif (match := _INSTRUCTION.match(line)) and inside not in fused:
            name, result, opcode = match.groups()
            largest = max(map(_bytes, _ARRAY.finditer(result)), default=0)
            if largest >= size:
                yield name, opcode, largest


def _bytes(array: re.Match[str]) -> int:
    bits = 8 if array[1] == "pred" else int(array[2])
    return math.prod(int(n) for n in array[3].split(",") if n) * bits // 8


def _table_sizes(tree: Any, given: int | None) -> tuple[int, int]:
    """Returns the bytes of the largest table array and of all tables, on a device."""
    if given is not None:
        return given, given
    leaves = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, TableState))
    tables = {id(x): x for x in leaves if isinstance(x, TableState)}
    sizes = [_bytes_on_a_device(x) for x in jax.tree.leaves(list(tables.values()))]
    if not sizes:
        raise ValueError(
            "there is no table state among the arguments; pass table_bytes=..."
        )
    return max(sizes), sum(sizes)


def _bytes_on_a_device(x: jax.Array) -> int:
    return math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize


def _platform(tree: Any) -> str:
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array):
            return next(iter(leaf.devices())).platform
    return jax.default_backend()


@contextlib.contextmanager
def _compilations() -> Iterator[list[str]]:
    names: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs
        # Lowering comes before any compilation cache, so nothing hides from it.
        if event == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            names.append(str(kwargs.get("fun_name", "a function")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
