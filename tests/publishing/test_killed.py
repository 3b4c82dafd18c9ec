# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Publishers and subscribers that are killed: no row is torn, missed or doubled."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from processes import NIGHTLY, counts_of
from publishing.counted_training import DIM, IDS, counts_at, faults_of

SCRIPT = str(Path(__file__).with_name("kill_serving.py"))
FAULTS = ("torn", "missed", "twice")
KILLS = 2500 if NIGHTLY else 40  # of each channel
COLD_KILLS = 250 if NIGHTLY else 6


def killed(capsys, kind, kills, *options):
    """Kills so many, and prints what came of it."""
    if kind == "redis":
        pytest.importorskip("redis", reason="needs pip install 'jax-dynemb[redis]'")
        if shutil.which("redis-server") is None:
            pytest.skip("no redis-server is installed on this machine")
    counts = counts_of(SCRIPT, "--kills", kills, "--channels", kind, *options)
    with capsys.disabled():
        print(f"\nkilled publishers and subscribers: {counts}")
    assert counts["kills"] >= kills and counts["versions"] >= kills // 4
    assert [counts[fault] for fault in FAULTS] == [0, 0, 0]


def rows_at(step):
    """What a version must hold, by a loop over the steps' own draws."""
    rows = np.zeros((IDS, DIM), np.float32)
    for each in range(1, step + 1):
        draw = np.random.default_rng(each)
        used, removed = draw.permutation(IDS)[:60], draw.permutation(IDS)[:15]
        rows[removed] = 0
        rows[used] += 1
    return rows


def test_the_checker_finds_planted_faults():
    rows, used = rows_at(30), int(counts_at(30).argmax())
    right = {"a": rows, "b": rows}
    assert faults_of(30, np.full(2, 30), right) == (0, 0, 0)
    assert faults_of(30, np.array([30, 29]), right) == (1, 0, 0)

    def planted(change):
        wrong = rows.copy()
        change(wrong)
        return faults_of(30, np.full(2, 30), {"a": rows, "b": wrong})

    assert planted(lambda wrong: wrong[used].__iadd__(1)) == (0, 0, 1)
    assert planted(lambda wrong: wrong[used].__isub__(1)) == (0, 1, 0)
    assert planted(lambda wrong: wrong[used].__imul__(0)) == (0, 1, 0)  # not there
    assert planted(lambda wrong: wrong[used, :2].__isub__(1)) == (1, 1, 0)
    # The step before, as a whole version: some rows lack a step, removed ones are back.
    torn, missed, twice = faults_of(30, np.full(2, 30), {"a": rows, "b": rows_at(29)})
    assert torn == 0 and missed > 40 and twice > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "socket", "redis", "bucket"])
def test_killed_at_any_moment(capsys, kind):
    killed(capsys, kind, KILLS)


@pytest.mark.slow
def test_killed_with_the_threads_of_xla(capsys):
    killed(capsys, "folder", COLD_KILLS, "--cold")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "redis"])
def test_readers_in_pytorch(capsys, kind):
    pytest.importorskip("torch")
    killed(capsys, kind, KILLS, "--framework", "torch")
