# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Two processes publish their shards, and subscribers see one moment of both."""

import threading
from pathlib import Path

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from processes import run_job
from publishing.publish_in_processes import IDS, SHARDINGS, counts_at, tables

SCRIPT = Path(__file__).with_name("publish_in_processes.py")


def check(served):
    """Compares all rows of a version with what they must be; returns its step."""
    ids = {name: jde.ids(np.arange(IDS)) for name in SHARDINGS}
    with served.reading() as (version, state):
        rows, found, _ = served._coll.find(state, ids)
        rows, found = jax.device_get((rows, found))
    want = counts_at(version.step)
    for name in SHARDINGS:
        np.testing.assert_array_equal(rows[name], np.repeat(want[:, None], 4, 1))
        np.testing.assert_array_equal(found[name], want > 0)
    assert version.dense["w"].tolist() == [version.step] * 2
    return version.step


@pytest.mark.slow
def test_a_subscriber_sees_one_moment_of_two_processes(tmp_path):
    folders = [tmp_path / f"process-{n}" for n in range(2)]
    said, steps = [], []

    def run(first, last):
        said.extend(run_job(SCRIPT, 2, tmp_path, 2, first, last))

    served = None
    for first, last in [(1, 25), (26, 40)]:
        job = threading.Thread(target=run, args=(first, last))
        job.start()
        if served is None:
            served = jde.serving.Subscriber(folders, tables(), interval=0, wait=240)
        while job.is_alive() or served.update():
            served.update()
            if served.version().step not in steps:
                steps.append(check(served))
        job.join()
        assert len(said) == 2 and said.clear() is None
        assert check(served) == last
    assert steps == sorted(steps) and len(steps) > 5
    late = jde.serving.Subscriber(folders, tables(), interval=0)
    assert check(late) == 40 and served.stats()["snapshots"] == 1
    with pytest.raises(ValueError, match="2 processes publish"):
        jde.serving.Subscriber(folders[0], tables(), interval=0)
