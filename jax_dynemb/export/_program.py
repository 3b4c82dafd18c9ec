# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Programs that look tables up, as bytes for another process: ``jax.export``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export

from jax_dynemb import _ffi
from jax_dynemb.ops._state import TableState
from jax_dynemb.optim._fused import sgd
from jax_dynemb.table import Tables
from jax_dynemb.table._tables import States

# The operation that a frozen table needs. jax.export keeps a list of the custom calls
# that JAX itself promises to keep; others have to be named.
_CUSTOM_CALLS = ("dynemb_find",)

jax.export.register_pytree_node_serialization(
    TableState,
    serialized_name="jax_dynemb.TableState",
    serialize_auxdata=lambda _: b"",
    deserialize_auxdata=lambda _: (),
)


def frozen(coll: Tables, state: States) -> tuple[Tables, States]:
    """The same tables with keys and rows only, to be read with ``Tables.find``.

    The arrays are those of the state, not copies. For tables on one device.

    Args:
      coll: the tables.
      state: their state.

    Returns:
      Tables whose optimizers keep no states, and their state.
    """
    tables = [dataclasses.replace(t, optimizer=sgd(0.0)) for t in coll.tables.values()]
    states = {
        name: dataclasses.replace(arrays, optimizer={}, extra=())
        for name, arrays in state.items()
    }
    return coll.with_tables(tables), states


def program(
    function: Callable[..., Any],
    *arguments: Any,
    platforms: Sequence[str] | None = None,
) -> bytes:
    """Traces a function that reads tables and returns it as bytes.

    The tables should be arguments (see ``frozen``): an array that the function closes
    over becomes a constant inside of the bytes.

    Args:
      function: uses ``Tables.find``; returns arrays. Not jitted.
      *arguments: examples of its arguments: dicts, lists and tuples of arrays, and
        states of tables.
      platforms: "cpu", "cuda"; the default platform if None.

    Returns:
      For ``load_program``. JAX reads it in later versions too, for as long as
      ``jax.export`` promises; ``jax_dynemb`` has to be installed there.
    """
    check = jax.export.DisabledSafetyCheck.custom_call
    exported = jax.export.export(
        jax.jit(function),
        platforms=platforms,
        disabled_checks=[check(name) for name in _CUSTOM_CALLS],
    )(*arguments)
    return bytes(exported.serialize())


def load_program(data: bytes) -> jax.export.Exported:
    """Reads what ``program`` returned; no code of the model is needed.

    Args:
      data: the bytes.

    Returns:
      Its ``call`` takes arguments of the structure ``in_tree``, of the same shapes and
      dtypes; jit it to keep what was compiled.
    """
    _ffi.loaded()  # registers what the program calls
    return jax.export.deserialize(bytearray(data))
