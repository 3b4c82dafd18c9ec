# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/notebooks: their cells run in order, and their outputs are stored."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples/notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_run(path, monkeypatch):
    plots = pytest.importorskip("matplotlib.pyplot", reason="needs matplotlib")
    plots.switch_backend("Agg")
    monkeypatch.chdir(FOLDER)
    names = {"__name__": "notebook"}
    for number, cell in enumerate(code_cells(path)):
        exec(compile("".join(cell["source"]), f"{path}:{number}", "exec"), names)
    assert plots.get_fignums()
    plots.close("all")


def test_outputs_are_those_of_a_run_from_begin_to_end():
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        cells = code_cells(path)
        counts = [cell["execution_count"] for cell in cells]
        assert counts == list(range(1, len(cells) + 1))
        outputs = [output for cell in cells for output in cell["outputs"]]
        assert not [x for x in outputs if x["output_type"] == "error"]
        assert any("image/png" in x.get("data", {}) for x in outputs)
        assert path.stat().st_size < 150_000
