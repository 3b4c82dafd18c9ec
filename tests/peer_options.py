# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The list of all options of the peers' calls, docs/migration/options.toml."""

import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax_dynemb as jde

LIST = Path(__file__).parents[1] / "docs/migration/options.toml"
PEERS = tomllib.loads(LIST.read_text(encoding="utf-8"))


def options_of(peer: str) -> dict[str, dict[str, Any]]:
    """The options of one call: default, other, with, and gives, note or refused."""
    options = PEERS[peer]["options"]
    for option in options.values():
        assert option.keys() <= {"default", "other", "with", "gives", "note", "refused"}
        assert len(option.keys() & {"gives", "note", "refused"}) == 1
        assert "other" in option and option["other"] != option.get("default")
    return options


def given(name: str, option: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the example."""
    return option.get("with", {}) | {name: option["other"]}


def wanted(option: dict[str, Any]) -> dict[str, Any]:
    """What the example becomes, by field."""
    return eval(f"dict({option['gives']})", {"jde": jde})


def as_objects(value: Any) -> Any:
    """Dicts as objects with attributes, as the peers have them."""
    return SimpleNamespace(**value) if isinstance(value, dict) else value
