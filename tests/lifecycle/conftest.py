# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Counts what is compiled while a test runs."""

import threading
from collections.abc import Iterator
from typing import Any

import jax
import pytest

_COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Names the functions that the main thread compiles."""
    names: list[str] = []

    def listen(event: str, duration_secs: float, **options: Any) -> None:
        del duration_secs
        on_main = threading.current_thread() is threading.main_thread()
        if event == _COMPILED and on_main:
            names.append(options["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    jax.monitoring.unregister_event_duration_listener(listen)
