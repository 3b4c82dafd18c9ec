# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Says which name of a module has taken the place of a former one."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def refuse(module: str, now: Mapping[str, str]) -> Callable[[str], object]:
    """Makes the ``__getattr__`` of a module some of whose names have changed.

    Args:
      module: as users write it, such as "jde.tiers".
      now: the present name by the former one.
    """

    def missing(name: str) -> object:
        """Raises AttributeError, with the present name if there is one."""
        if name in now:
            raise AttributeError(
                f"{module}.{name} has a new name: write {module}.{now[name]}."
            )
        raise AttributeError(f"module '{module}' has no attribute {name!r}")

    return missing
