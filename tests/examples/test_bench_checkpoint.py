# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/bench_checkpoint.py on a small table: every part runs and adds up."""

import json

import bench_checkpoint


def test_every_part_is_measured(tmp_path):
    result = tmp_path / "result.json"
    directory = tmp_path / "files"
    lines = bench_checkpoint.main(
        [
            "--gigabytes=0.002",
            f"--directory={directory}",
            f"--json={result}",
        ]
    )
    names = " ".join(line["what"] for line in lines)
    for word in ("plain: write", "save: until", "restore: files", "DynamicEmb"):
        assert word in names
    assert all(line["seconds"] >= 0 and line["GB/s"] > 0 for line in lines)
    written = json.loads(result.read_text())
    assert written["lines"] == lines and written["bytes"] > 1e6
    assert list(directory.iterdir()) == []  # nothing is left on the disk
