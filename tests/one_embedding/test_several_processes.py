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
