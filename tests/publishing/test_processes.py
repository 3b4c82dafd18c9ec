# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Two processes publish their shards, and subscribers see one moment of both."""

import random
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from processes import NIGHTLY, run_job, start_job
from publishing.publish_in_processes import IDS, SHARDINGS, counts_at, tables

KILLS = 50 if NIGHTLY else 3
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


def follow(served, steps):
    """Takes what is there, and compares each version that it serves."""
    taken = served.update()
    if not steps or steps[-1] != served.version().step:
        steps.append(check(served))
    return taken


@pytest.mark.slow
def test_a_subscriber_sees_one_moment_of_two_processes(tmp_path):
    folders = [tmp_path / f"process-{n}" for n in range(2)]
    said, steps = [], []

    def run(last):
        said.extend(run_job(SCRIPT, 2, tmp_path, 2, last, 25))

    served = None
    for last in (25, 40):
        job = threading.Thread(target=run, args=(last,))
        job.start()
        if served is None:
            served = jde.serving.Subscriber(folders, tables(), interval=0, wait=240)
        while job.is_alive() or follow(served, steps):
            follow(served, steps)
        job.join()
        assert len(said) == 2 and said.clear() is None
        assert check(served) == last
    assert steps == sorted(steps) and len(steps) > 5
    late = jde.serving.Subscriber(folders, tables(), interval=0)
    assert check(late) == 40 and served.stats()["snapshots"] == 1
    with pytest.raises(ValueError, match="2 processes publish"):
        jde.serving.Subscriber(folders[0], tables(), interval=0)


@pytest.mark.slow
def test_jobs_that_are_killed(tmp_path, capsys):
    """One process after the other, at any moment; the next job goes on."""
    folders = [tmp_path / f"process-{n}" for n in range(2)]
    draw, steps, served = random.Random(0), [], None
    for _ in range(KILLS):
        job = start_job(SCRIPT, 2, tmp_path, 2, 100_000, 6)
        try:
            if served is None:
                served = jde.serving.Subscriber(folders, tables(), interval=0, wait=240)
            wanted = len(steps) + draw.randint(2, 30)
            until = time.monotonic() + 240
            while len(steps) < wanted and time.monotonic() < until:
                follow(served, steps)
            assert len(steps) >= wanted
        finally:
            draw.shuffle(job)
            for process in job:
                process.kill()
                time.sleep(0.05 * draw.random())
            for process in job:
                process.communicate()
        while follow(served, steps):
            pass
    with capsys.disabled():
        print(f"\nkilled jobs of two processes: {KILLS}, {len(steps)} versions")
    assert served is not None
    late = jde.serving.Subscriber(folders, tables(), interval=0)
    assert check(late) == check(served)
