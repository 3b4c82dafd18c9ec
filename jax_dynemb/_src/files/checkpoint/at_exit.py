# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Something to do when a program ends, while it can still start threads."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable


def before_threads_end(function: Callable[[], None]) -> None:
    """Calls a function at the end of the main thread.

    What ``atexit`` calls comes after ``concurrent.futures`` has closed, and orbax
    writes with its threads: the last checkpoint of a script would be lost. Python has
    no public way to come before (python/cpython#86813), and 3.12.0 to 3.12.2 start no
    thread even there (#113964).
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    register(function)
