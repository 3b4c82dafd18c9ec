# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Steps that several processes take together: they all succeed, or all raise."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from jax_dynemb._src.files.integrity import DamagedFileError
from jax_dynemb._src.ops import texts_of_processes

P = ParamSpec("P")
T = TypeVar("T")

_MOST_PROBLEM = 1000
_DAMAGE = "damage "


def together(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a function that may fail in one process; then no other waits for it.

    Elsewhere it raises ValueError then, or DamagedFileError.
    """
    if jax.process_count() == 1:
        return work(*args, **kwargs)
    try:
        result, error = work(*args, **kwargs), None
    except (ValueError, OSError) as raised:
        result, error = None, raised
    sentences = texts_of_processes("" if error is None else _spelled(error))
    if error is not None:
        raise error
    for process, sentence in enumerate(sentences):
        if sentence.startswith(_DAMAGE):
            raise DamagedFileError(*json.loads(sentence.removeprefix(_DAMAGE)))
        if sentence:
            raise ValueError(f"In process {process}: {sentence}")
    return result  # pyright: ignore[reportReturnType]


def _spelled(error: Exception) -> str:
    if not isinstance(error, DamagedFileError):
        return str(error)
    parts = [error.path, error.problem[:_MOST_PROBLEM], error.fix]
    return _DAMAGE + json.dumps(parts)


def share(items: list[T]) -> list[T]:
    """This process's part of what all of them do once."""
    return items[jax.process_index() :: jax.process_count()]
