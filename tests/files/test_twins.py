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
    name: OURS / folder / name
    for folder, names in {
        "": ("_errors.py",),
        "stored": (
            "_chain.py",
            "_json.py",
            "_side_file.py",
            "_sums.py",
            "_tensor_header.py",
        ),
    }.items()
    for name in names
}


def twin(source: Path) -> str:
    """The file as the other package has it."""
    text = source.read_text(encoding="utf-8")
    return re.sub(r"from jax_dynemb\.(stored\.)?_", "from jax_dynemb_torch._", text)


@pytest.mark.parametrize("name", TWINS)
def test_the_same_code(name):
    assert (THEIRS / name).read_text(encoding="utf-8") == twin(TWINS[name])


@pytest.mark.parametrize("name", TWINS)
def test_it_needs_nothing_but_python(name):
    """Neither package could use what needs the other's libraries."""
    imported = re.findall(r"^\s*(?:import|from) (\w+)", twin(TWINS[name]), re.MULTILINE)
    assert not {"jax", "numpy", "torch", "jax_dynemb", "safetensors"} & set(imported)


if __name__ == "__main__":
    for name, source in TWINS.items():
        (THEIRS / name).write_text(twin(source), encoding="utf-8")
