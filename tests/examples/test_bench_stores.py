# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/bench_stores.py with few rows: every store that is there is measured."""

import json

import bench_stores


def test_stores_are_measured(tmp_path):
    result = tmp_path / "result.json"
    lines = bench_stores.main(
        [
            "--rows=2000",
            "--batch=500",
            "--repeats=1",
            "--stores",
            "Memory",
            "Log",
            f"--directory={tmp_path}",
            f"--json={result}",
        ]
    )
    assert [line["store"] for line in lines] == ["Memory", "Log"]
    assert all(line["put"] > 0 and line["get"] > 0 for line in lines)
    assert json.loads(result.read_text()) == lines
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
