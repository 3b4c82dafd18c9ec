# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What the packages of a release say about themselves fits together."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest

import jax_dynemb as jde
from jax_dynemb._src import cuda_module

ROOT = Path(__file__).resolve().parents[2]
CUDAS = ("cuda12", "cuda13")
MAIN = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCRIPT = ROOT / "tools/build_wheels.sh"


def plugin(cuda: str) -> dict:
    """Returns the pyproject.toml of a plugin, filled in as the script does."""
    text = (ROOT / "tools/cuda_plugin.toml").read_text(encoding="utf-8")
    text = text.replace("@CUDA@", cuda).replace("@VERSION@", jde.__version__)
    assert "@" not in text
    return tomllib.loads(text)


def test_one_version():
    torch = ROOT / "jax_dynemb_torch/src/jax_dynemb_torch/_version.py"
    version = f'__version__ = "{jde.__version__}"'
    assert version in torch.read_text(encoding="utf-8").splitlines()
    assert metadata("jax-dynemb")["Version"] == jde.__version__
    for cuda in CUDAS:
        project = plugin(cuda)["project"]
        assert project["version"] == jde.__version__
        assert project["dependencies"] == [f"jax-dynemb=={jde.__version__}"]


@pytest.mark.parametrize("cuda", CUDAS)
def test_a_plugin_puts_its_module_where_its_entry_point_says(cuda):
    project, build = plugin(cuda)["project"], plugin(cuda)["tool"]["scikit-build"]
    target = project["entry-points"][cuda_module.GROUP][cuda]
    assert project["name"] == f"jax-dynemb-{cuda}"
    folder = build["cmake"]["define"]["DYNEMB_INSTALL_FOLDER"]
    assert target == f"{folder}.{cuda_module.NAME}"
    assert build["install"]["components"] == [cuda_module.NAME]
    assert build["wheel"]["packages"] == []
    for key in ("requires", "build-backend"):
        assert plugin(cuda)["build-system"][key] == MAIN["build-system"][key]
    for key in ("requires-python", "license"):
        assert project[key] == MAIN["project"][key]
    assert build["wheel"]["py-api"] == MAIN["tool"]["scikit-build"]["wheel"]["py-api"]


def test_the_script_adds_plugins_to_the_extras(tmp_path):
    """It edits a copy of pyproject.toml, with the command that is read here."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    script = SCRIPT.read_text(encoding="utf-8")
    (command,) = re.findall(r"^ *(sed -i .*)$", script, re.MULTILINE)
    environment = os.environ | {"source": str(tmp_path), "version": jde.__version__}
    subprocess.run(["bash", "-c", command], env=environment, check=True)
    edited = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))
    extras = edited["project"]["optional-dependencies"]
    for cuda in CUDAS:
        expected = [f"jax[{cuda}]", f"jax-dynemb-{cuda}=={jde.__version__}"]
        assert extras.pop(cuda) == expected
    unedited = MAIN["project"]["optional-dependencies"]
    assert extras == {k: v for k, v in unedited.items() if k not in CUDAS}


def test_packages_name_no_address_that_others_do_not():
    """None has one before there is a public repository; then all have the same."""
    torch = (ROOT / "jax_dynemb_torch/pyproject.toml").read_text(encoding="utf-8")
    projects = [MAIN, tomllib.loads(torch), *map(plugin, CUDAS)]
    urls = MAIN["project"].get("urls", {})
    for each in projects:
        assert each["project"].get("urls", {}).items() <= urls.items()


def test_pythons():
    project = MAIN["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={pythons[0]}"
    api = MAIN["tool"]["scikit-build"]["wheel"]["py-api"]
    assert api == f"cp{pythons[1].replace('.', '')}"  # all later ones share its wheel


@pytest.mark.parametrize("name", ["tests", "wheels"])
def test_workflows_run_what_is_there(name):
    yaml = pytest.importorskip("yaml")
    path = ROOT / f".github/workflows/{name}.yml"
    if not path.exists():
        pytest.skip("a source archive has no workflows")
    text = path.read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    commands = "\n".join(
        step.get("run", "") for job in jobs.values() for step in job["steps"]
    )
    scripts = re.findall(r"(?:\.ci|tools)/\w+(?:\.sh)?", commands)
    assert scripts
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)


def test_symptoms_are_what_is_printed():
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    symptoms = set(re.findall(r"^\*\*`([^`]+)`\*\*", page, re.MULTILINE))
    of_pip = {"... is not a supported wheel on this platform", "jax-dynemb-cuda13"}
    assert of_pip < symptoms
    printed = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8") + "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "jax_dynemb/_src").glob("*.py")
    )
    printed = re.sub(r'"\s+"', "", printed)  # literals that the compiler joins
    assert [each for each in sorted(symptoms - of_pip) if each not in printed] == []
