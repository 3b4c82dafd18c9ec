# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Both packages read files with the same code, though neither imports the other.

python tests/files/test_twins.py    # writes the copies of jax_dynemb_torch anew
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "jax_dynemb"
THEIRS = ROOT / "jax_dynemb_torch/src/jax_dynemb_torch"
TWINS = {
    "_errors.py": "_errors.py",
    "_integrity/__init__.py": "files/integrity/__init__.py",
    "_integrity/_json.py": "files/integrity/_json.py",
    "_integrity/_side_file.py": "files/integrity/_side_file.py",
    "_integrity/_sums.py": "files/integrity/_sums.py",
    "_integrity/_version.py": "files/integrity/_version.py",
    "_chain.py": "files/safetensors/_chain.py",
    "_tensor_header.py": "files/safetensors/_tensor_header.py",
}
# The packages of ours that stand elsewhere in the other package.
MOVED = {"files.integrity": "_integrity", "files.safetensors._": "_", "_": "_"}


def twin(name: str) -> str:
    """The file as the other package has it."""
    text = (OURS / TWINS[name]).read_text(encoding="utf-8")
    for ours, theirs in MOVED.items():
        text = text.replace(
            f"from jax_dynemb.{ours}", f"from jax_dynemb_torch.{theirs}"
        )
    return text


@pytest.mark.parametrize("name", TWINS)
def test_the_same_code(name):
    assert (THEIRS / name).read_text(encoding="utf-8") == twin(name)


@pytest.mark.parametrize("name", TWINS)
def test_it_needs_nothing_but_python(name):
    """Neither package could use what needs the other's libraries."""
    imported = re.findall(r"^\s*(?:import|from) (\w+)", twin(name), re.MULTILINE)
    assert not {"jax", "numpy", "torch", "jax_dynemb", "safetensors"} & set(imported)


if __name__ == "__main__":
    for name in TWINS:
        (THEIRS / name).write_text(twin(name), encoding="utf-8")
