# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""GPUs of several processes of one host read each other's memory."""

import json
from pathlib import Path

import numpy as np
import pytest

from meshes import gpus
from processes import described, run_job, start_job

AGREEMENT = Path(__file__).with_name("peer_agreement.py")
TRAINING = Path(__file__).with_name("peer_processes.py")

FAULTS = {
    ("piecemeal", "across"): "in process 1: XLA allocates memory of a GPU piece by",
    ("hosts", "across"): "the devices belong to several hosts",
    ("other memory", "all"): "in process 0: the memory that was mapped is not that",
    ("unreachable", "across"): "in process 1: it has no room",
}
FINE = [("none", "across"), ("none", "all"), ("none", "within"), ("hosts", "within")]


HOSTS = {
    ("hosts", "by host"): [2, 2],
    ("hosts", "mixed"): [1, 1],  # neighbours belong to different hosts
    ("none", "by host"): [1, 1],  # there is one
}
PLACED = ("none", "tables")


@pytest.fixture(scope="module")
def agreed() -> dict[tuple[str, str], list[dict]]:
    """What each of two processes says of each case."""
    cases = [*FINE, *FAULTS, *HOSTS, PLACED]
    both = run_job(AGREEMENT, 2, json.dumps(cases))
    return dict(zip(cases, zip(*both, strict=True), strict=True))


@pytest.mark.parametrize("case", FINE)
def test_processes_map_the_memory_of_each_other(agreed, case):
    for process, said in enumerate(agreed[case]):
        assert (said["reason"], said["descriptors left"]) == ("", 0)
        for members in said["prepared"]:
            for key, *member in members:
                _check(process, *divmod(key, 10), *member)
        keys = [[member[0] for member in group] for group in said["prepared"]]
        within = [[10 * process, 10 * process + 1]]
        expected = {"across": [[0, 10], [1, 11]], "all": [[0, 10, 1, 11]]}
        assert keys == expected.get(case[1], within)


def _check(process, owner, place, ordinal, name, mailbox, shift, begin, size):
    """Compares what a process makes of a GPU with where the stand-in put it."""
    assert name == f"GPU {place} of process {owner}"
    its_begin = 10**6 * (1 + place) + 10**7 * owner
    if owner == process:
        assert (ordinal, mailbox, shift) == (place, 7000 + place, 0)
        assert (begin, size) == (its_begin, 4096)
        return
    assert (ordinal, begin, size) == (-1, 0, 0)
    here = its_begin + shift  # mapped right before the mailbox
    assert here > 0 and here % 2**40 == 0
    assert mailbox == here + 2**40


@pytest.mark.parametrize("case", FAULTS)
def test_processes_agree_on_why_they_cannot(agreed, case):
    one, other = agreed[case]
    assert one["reason"] == other["reason"]
    assert one["reason"].startswith(FAULTS[case])
    assert [one["descriptors left"], other["descriptors left"]] == [0, 0]


@pytest.mark.parametrize("case", HOSTS)
def test_gpus_of_a_host_exchange_first_where_there_are_several(agreed, case):
    for said in agreed[case]:
        assert said["hosts"] == HOSTS[case]
        assert (said["reason"], said["descriptors left"]) == ("", 0)
    prepared = [bool(said["prepared"]) for said in agreed[case]]
    assert prepared == [HOSTS[case] == [2, 2]] * 2


def test_processes_agree_when_tables_are_made(agreed):
    """JAX refuses the collectives that they agree by while it traces a step."""
    for said in agreed[PLACED]:
        assert (said["reason"], said["descriptors left"]) == ("", 0)
        assert [len(group) for group in said["prepared"]] == [4]


def _sharing_a_gpu(number: int, processes: int, port: int) -> dict[str, str]:
    on_gpu = {
        "JAX_PLATFORMS": "cuda",
        "CUDA_VISIBLE_DEVICES": "0",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1",
        "JAX_DYNEMB_PEER_TIMEOUT": "60",
    }
    return described(number, processes, port) | on_gpu


def _with_a_gpu_each(number: int, processes: int, port: int) -> dict[str, str]:
    environment = _sharing_a_gpu(number, processes, port)
    return environment | {"CUDA_VISIBLE_DEVICES": str(number)}


def _agree(together: list[dict], alone: dict) -> None:
    assert alone["transport"].startswith("collectives")
    assert {one["transport"] for one in together} == {"peers"}
    for t, rows in enumerate(alone["rows"]):
        for name, expected in rows.items():
            parts = [one["rows"][t][name] for one in together]
            np.testing.assert_allclose(
                np.concatenate(parts), expected, rtol=1e-5, atol=1e-6
            )
    exported = {k: v for one in together for k, v in one["exported"].items()}
    assert sum(len(one["exported"]) for one in together) == len(exported)  # own parts
    assert exported.keys() == alone["exported"].keys()
    for key, row in exported.items():
        np.testing.assert_allclose(row, alone["exported"][key], rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_processes_on_one_gpu_train_as_one_process():
    together = run_job(TRAINING, 2, "one gpu", describe=_sharing_a_gpu)
    (alone,) = run_job(TRAINING, 1, "one gpu", describe=_sharing_a_gpu)
    _agree(together, alone)


@pytest.mark.multigpu
def test_processes_with_a_gpu_each_train_as_one_process():
    processes = gpus().size
    together = run_job(TRAINING, processes, "own gpus", describe=_with_a_gpu_each)
    (alone,) = run_job(TRAINING, 1, "one gpu", describe=_sharing_a_gpu)
    _agree(together, alone)


@pytest.mark.gpu
def test_processes_whose_memory_comes_in_pieces_say_so():
    def describe(number: int, processes: int, port: int) -> dict[str, str]:
        preallocate = {"XLA_PYTHON_CLIENT_PREALLOCATE": str(number != 1).lower()}
        return _sharing_a_gpu(number, processes, port) | preallocate

    both = run_job(TRAINING, 2, "refused", describe=describe)
    assert both[0] == both[1]
    error, transport = both[0]
    reason = "in process 1: XLA allocates memory of a GPU piece by piece"
    assert reason in error and reason in transport


@pytest.mark.gpu
def test_a_process_that_does_not_arrive_is_named():
    def describe(number: int, processes: int, port: int) -> dict[str, str]:
        environment = _sharing_a_gpu(number, processes, port)
        return environment | {"JAX_DYNEMB_PEER_TIMEOUT": "3"}

    started = start_job(TRAINING, 2, "dead", describe=describe)
    try:
        _, error = started[0].communicate(timeout=60)
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert started[0].returncode == 3
    assert "GPU 0 of process 0 waited 3 s for GPU 0 of process 1, which did" in error
