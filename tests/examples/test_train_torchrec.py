# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A DLRM in TorchRec's names learns what the same one on jde.nnx learns."""

import pytest

import train_ctr
import train_torchrec

SHORT = [
    "--rows",
    "28000",
    "--epochs",
    "2",
    "--capacity",
    "4096",
    "--batch-size",
    "512",
]


def test_learns_what_the_nnx_example_learns(tmp_path):
    ours = train_torchrec.main(SHORT)
    runs = train_ctr.main([*SHORT, "--out", str(tmp_path)])
    for epoch, other in zip(ours, runs["dynamic table"], strict=True):
        assert epoch.auc == pytest.approx(other.auc, abs=1e-4)
        assert epoch.train_loss == pytest.approx(other.train_loss, rel=1e-4)
        assert epoch.table["rows"] == other.table["rows"]
    assert ours[-1].auc > 0.55


@pytest.mark.slow
def test_a_mesh_learns_the_same():
    shorter = ["--rows", "14000", "--epochs", "1", "--capacity", "8192"]
    alone, shared = (
        train_torchrec.main([*shorter, *more])[-1] for more in ([], ["--mesh", "8"])
    )
    assert shared.auc == pytest.approx(alone.auc, abs=1e-4)
    assert shared.table["rows"] == alone.table["rows"]


def test_a_missing_folder_is_one_sentence(tmp_path):
    with pytest.raises(SystemExit, match="no such folder"):
        train_torchrec.main(["--data", str(tmp_path / "nowhere")])
