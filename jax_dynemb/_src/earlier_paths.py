# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Lets pickles load that were made before modules moved to ``jax_dynemb._src``.

A pickle names the module of each class that it holds. These names lead to the modules
of now, for what people keep in pickles: configs, states, batches and errors. A name
imports its module when a pickle reads a class of it. Imports of the earlier names by
users are no part of the interface.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_PACKAGE = "jax_dynemb"
_EARLIER = (
    *("_host_tier", "_store_tier", "config", "jagged"),
    *("engines.shard._rule", "metrics._auc", "metrics._rates", "metrics._windowed"),
    *("ops._residual", "ops._state", "ops._tier_state", "optim._adagrad"),
    *("optim._adam", "optim._base", "optim._counter", "optim._functor"),
    *("optim._fused", "optim._momentum", "optim._optax", "optim._rmsprop"),
    *("planner._constraints", "planner._storage", "planner._topology"),
    *("rows._exported", "rows._identity", "rows._schema", "table._marks"),
    *("torchrec._capacity", "torchrec._configs", "torchrec._jagged_tensor"),
    *("torchrec._keyed_jagged_tensor", "torchrec._keyed_tensor", "torchrec._layout"),
    *("tt._config", "tt._initializers", "tt._state"),
)
_ELSEWHERE = {"_errors": "files.integrity.errors"}


class _Moved(ModuleType):
    """Stands for a module under its earlier name."""

    def __init__(self, name: str, now: str) -> None:
        super().__init__(name)
        self._now = now

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._now), name)


def install() -> None:
    """Gives the earlier names to the modules of now."""
    now = {path: path.replace("._", ".").removeprefix("_") for path in _EARLIER}
    for path, here in (now | _ELSEWHERE).items():
        name = f"{_PACKAGE}.{path}"
        sys.modules.setdefault(name, _Moved(name, f"{_PACKAGE}._src.{here}"))
