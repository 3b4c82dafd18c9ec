# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that the configs of all kinds of tables share."""

from __future__ import annotations

from typing import Any, NoReturn

from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.names import feature_name_problem
from jax_dynemb._src.shown import Shown


class CheckedFields(Shown):
    """Checks fields of a frozen dataclass about one table, each in its one form.

    Attributes:
      name: of the table.
      feature_names: features that look it up.
      hash_seed: a secret in the hash of its ids.
    """

    name: str
    feature_names: tuple[str, ...]
    hash_seed: int

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)

    def _fail(self, message: str) -> NoReturn:
        raise ValueError(f"Table '{self.name}': {message}")

    def _choose(self, field: str, allowed: tuple[Any, ...]) -> None:
        if getattr(self, field) not in allowed:
            self._fail(
                f"{field} must be one of {allowed}, not {getattr(self, field)!r}"
            )

    def _set_features(self) -> None:
        names: Any = self.feature_names
        if isinstance(names, str):
            self._fail(f"feature_names must be a tuple: write ({names!r},)")
        if not isinstance(names, (tuple, list)):
            self._fail(f"feature_names must be a tuple of names, not {names!r}")
        names = tuple(names) or (self.name,)
        if problem := feature_name_problem(names):
            self._fail(problem)
        if len(set(names)) != len(names):
            self._fail(f"feature_names {names} has a name twice; give each once")
        self._set("feature_names", names)

    def _check_hash_seed(self) -> None:
        seed = self.hash_seed
        if not is_whole(seed):
            self._fail(f"hash_seed must be an int, not {seed!r}")
        if not 0 <= seed < 1 << 64:
            self._fail(
                f"hash_seed must be 0 to 2**64 - 1, not {seed}; "
                "secrets.randbits(64) makes one"
            )
        self._set("hash_seed", int(seed))
