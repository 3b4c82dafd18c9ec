# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/row_formats.py: smaller rows, hardly worse predictions."""

import json

import row_formats


def test_every_format_is_tested_on_the_whole_model(tmp_path):
    result = tmp_path / "figures.json"
    arguments = ["--rows=21000", "--dim=8", f"--json={result}"]
    exact, half, int8, int4 = row_formats.main(arguments)
    assert [x.dtype for x in (exact, half, int8, int4)] == list(row_formats.FORMATS)
    assert [x.row_bytes for x in (exact, half, int8, int4)] == [32, 16, 12, 8]
    assert exact.change == 0 and exact.auc > 0.55  # it has learned something
    assert 0 < half.change < int4.change and 0 < int8.change < int4.change
    for line in (half, int8, int4):
        assert abs(line.auc - exact.auc) < 0.01
        assert abs(line.log_loss - exact.log_loss) < 0.01
    assert json.loads(result.read_text())["lines"][3]["auc"] == int4.auc
