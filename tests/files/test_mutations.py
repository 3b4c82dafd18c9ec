# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Damaged files over every reader; ``make nightly`` runs thousands."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import mutate  # noqa: E402
import mutations  # noqa: E402


@pytest.mark.slow
def test_damage_is_refused_by_name_or_changes_nothing(tmp_path):
    torch = os.environ.get(mutate.TORCH)
    results = mutate.run(tmp_path, 300, seed=0, torch=torch)
    assert len(results) == 300
    bad = [each for each in results if each["outcome"] not in mutate.GOOD]
    assert not bad, bad[:3]
    # The cases are not all of one kind.
    outcomes = [each["outcome"] for each in results]
    assert outcomes.count("refused") > 150 and outcomes.count("equal") > 4


@pytest.mark.slow
def test_files_without_checksums_never_end_a_reader(tmp_path):
    torch = os.environ.get(mutate.TORCH)
    results = mutate.run(tmp_path, 100, seed=1, torch=torch, unchecked=True)
    good = (*mutate.GOOD, mutate.UNNOTICED)
    bad = [each for each in results if each["outcome"] not in good]
    assert len(results) == 100 and not bad, bad[:3]


def test_the_harness_notices_what_a_careless_reader_does(tmp_path):
    """A reader without checks: other numbers, and exceptions of all kinds."""
    import corpus

    sound = tmp_path / "sound"
    (sound / "careless").mkdir(parents=True)
    np.arange(64).tofile(sound / "careless" / "numbers")

    def read(path: Path):
        return np.fromfile(path / "numbers", np.int64)[:32]

    truth, outcomes = corpus.digest(read(sound / "careless")), set()
    reader = corpus.Reader("careless", read)
    for case in range(300):
        place = tmp_path / "work" / "careless"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(sound / "careless", place)
        mutations.mutate(np.random.default_rng(case), place)
        if (place / "numbers").is_char_device() or (place / "numbers").is_fifo():
            continue  # it would read for ever
        outcomes.add(mutate.outcome_of(reader, place, truth, corpus)[:9])
    assert {"equal", mutate.UNNOTICED[:9], "IsADirect"} <= outcomes
