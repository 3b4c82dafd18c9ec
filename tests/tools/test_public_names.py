# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What a user finds by completion is what the documentation lists, and nothing else."""

import importlib
import operator
import re
from pathlib import Path
from types import ModuleType

import pytest

import jax_dynemb as jde

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    *("admission", "checkpoint", "distributed", "export", "import_", "initializers"),
    *("lifecycle", "metrics", "nnx", "one_embedding", "optim", "pipeline", "serving"),
    *("stores", "testing", "tiers", "torchrec", "tt"),
)
# Modules that the reference shows whole.
WHOLE = {"admission", "initializers", "testing"}


def shown(module: ModuleType) -> set[str]:
    """Lists the names without modules: TorchRec's paths appear when they are used."""
    names = {name for name in dir(module) if not name.startswith("_")}
    return {n for n in names if not isinstance(getattr(module, n), ModuleType)}


def documented() -> set[str]:
    pages = (ROOT / "docs" / "api").glob("*.md")
    text = "".join(page.read_text() for page in pages)
    return set(re.findall(r"^::: jax_dynemb\.(\S+)", text, re.MULTILINE))


def test_the_package_shows_modules_and_documented_names():
    assert shown(jde) <= documented(), sorted(shown(jde) - documented())
    modules = {name for name in dir(jde) if isinstance(getattr(jde, name), ModuleType)}
    assert {name for name in modules if not name.startswith("_")} == set(MODULES)


@pytest.mark.parametrize("name", [m for m in MODULES if m not in WHOLE])
def test_a_module_shows_documented_names(name):
    module = importlib.import_module(f"jax_dynemb.{name}")
    names = {f"{name}.{x}" for x in shown(module)}
    if name == "torchrec":  # names that are documented as the planner's
        names -= {f"torchrec.{x}" for x in shown(jde)}
    assert names <= documented(), sorted(names - documented())


@pytest.mark.parametrize(
    "former", ["tiers.ahead", "tiers.Ahead", "nnx.ahead", "nnx.Feed"]
)
def test_a_former_name_says_the_present_one(former):
    path, name = former.split(".")
    module = getattr(jde, path)
    with pytest.raises(AttributeError, match=f"jde.{former} has a new name") as caught:
        getattr(module, name)
    (present,) = re.findall(r"write jde\.(\S+)\.$", str(caught.value))
    assert present in documented() and operator.attrgetter(present)(jde)
    assert not hasattr(module, name) and not hasattr(module, "no_such_name")


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_says_what_it_is_for(name):
    assert importlib.import_module(f"jax_dynemb.{name}").__doc__
