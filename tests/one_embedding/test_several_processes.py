# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Two processes, each with a table above a store in a folder of its own."""

from pathlib import Path

import pytest

from processes import run_job

SCRIPT = Path(__file__).with_name("stores_of_processes.py")


@pytest.mark.slow
@pytest.mark.parametrize("paths", [1, 2])
def test_each_process_has_a_store_in_its_folder(tmp_path, paths):
    """Together with those below, the rows are those of a table with room for all."""
    given = [tmp_path / f"disk{n}" for n in range(paths)]
    pair = run_job(SCRIPT, 2, *given)
    for rank, said in enumerate(pair):
        here, below = said["here"], said["below"]
        assert len(below) > 100 and not here.keys() & below.keys()
        (alone,) = run_job(SCRIPT, 1, "none", rank)
        assert here | below == alone["here"]
        folder = given[0] / f"{rank}-2" if paths == 1 else given[rank]
        assert list((folder / "emb").iterdir())


@pytest.mark.slow
def test_processes_share_a_table_above_their_stores(tmp_path):
    """Each gives its part of a batch in NumPy; SGD has no order within a step."""
    pair = run_job(SCRIPT, 2, "shared", tmp_path)
    (alone,) = run_job(SCRIPT, 1, "none", 0, 1)
    parts = [said[where] for said in pair for where in ("here", "below")]
    assert min(map(len, parts)) > 100
    assert sum(map(len, parts)) == len(alone["here"])
    assert dict(pair for part in parts for pair in part.items()) == alone["here"]
    assert (tmp_path / "0-2/0-of-2/emb").exists()
