# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/row_formats.py: smaller rows, hardly worse predictions."""

import json

import row_formats


def test_every_format_is_tested_on_the_whole_model(tmp_path):
    result = tmp_path / "figures.json"
    arguments = ["--rows=21000", "--dim=8", f"--json={result}"]
    exact, half, int8, int4, *frozen = row_formats.main(arguments)
    assert [x.dtype for x in (exact, half, int8, int4)] == list(row_formats.FORMATS)
    assert [x.row_bytes for x in (exact, half, int8, int4)] == [32, 16, 12, 8]
    assert exact.change == 0 and exact.auc > 0.55  # it has learned something
    assert 0 < half.change < int4.change and 0 < int8.change < int4.change
    for line in (half, int8, int4):
        assert abs(line.auc - exact.auc) < 0.01
        assert abs(line.log_loss - exact.log_loss) < 0.01
    assert [line.dtype for line in frozen] == [
        "frozen float8_e4m3fn",
        "frozen int8",
        "frozen int4",
    ]
    assert [line.row_bytes for line in frozen] == [12, 12, 8]
    # The integers are those of the files, the scales within a rounding.
    assert abs(frozen[1].auc - int8.auc) < 1e-4
    assert abs(frozen[2].auc - int4.auc) < 1e-4
    assert abs(frozen[0].auc - exact.auc) < 0.002
    assert json.loads(result.read_text())["lines"][3]["auc"] == int4.auc
