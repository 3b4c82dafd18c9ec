# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""examples/recipes/cluster: jobs of two processes, preempted and started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jax_dynemb as jde
from processes import described, free_port

FOLDER = Path(__file__).parents[2] / "examples/recipes/cluster"
SECONDS = 240


def environment(**more):
    path = os.pathsep.join(each for each in sys.path if each)
    return os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path} | more


def start(folder, steps):
    """Starts both processes of a job that trains so many steps in all."""
    port = free_port()
    command = [sys.executable, FOLDER / "train.py", folder, "--steps", str(steps)]
    return [
        subprocess.Popen(
            command,
            env=environment(**described(number, 2, port)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for number in range(2)
    ]


def ends(job):
    """Waits for a job; returns the exit statuses and the lines of each process."""
    try:
        lines = [each.communicate(timeout=SECONDS)[0].splitlines() for each in job]
        return [each.returncode for each in job], lines
    finally:
        for each in job:
            each.kill()


@pytest.mark.slow
def test_a_preempted_job_goes_on_as_if_nothing_had_been(tmp_path):
    preempted, alone = tmp_path / "preempted", tmp_path / "alone"
    job = start(preempted, 10**6)
    deadline = time.monotonic() + SECONDS
    while jde.checkpoint.latest(preempted) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    job[1].send_signal(signal.SIGTERM)  # to one process: both must stop at one step
    statuses, lines = ends(job)
    assert statuses == [75, 75]
    stopped = jde.checkpoint.latest(preempted) or 0
    assert [each[-1] for each in lines] == [f"preempted after step {stopped}"] * 2

    statuses, lines = ends(start(preempted, stopped + 30))
    assert statuses == [0, 0]
    assert f"goes on from step {stopped}" in lines[0]
    _, expected = ends(start(alone, stopped + 30))
    assert expected[0][-1].startswith(f"step {stopped + 30} loss ")
    assert [each[-1] for each in lines] == [each[-1] for each in expected]


@pytest.mark.parametrize(
    ("status", "requeued"), [(0, False), (1, False), (75, True)], ids=str
)
def test_slurm_queues_a_preempted_job_again(status, requeued, tmp_path):
    """With programs of Slurm's names that note how they are called."""
    called = tmp_path / "called"
    for name, code in {"srun": status, "scontrol": 0}.items():
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {called}\nexit {code}\n')
        program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", FOLDER / "train.sbatch", "checkpoints"],
        env=environment(PATH=path, SLURM_JOB_ID="17"),
    )
    lines = called.read_text().splitlines()
    assert lines[0] == "srun --kill-on-bad-exit=0 python train.py checkpoints"
    assert lines[1:] == (["scontrol requeue 17"] if requeued else [])
    assert ran.returncode == (0 if requeued else status)


def test_jobset_sets_what_is_read(monkeypatch):
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load((FOLDER / "jobset.yaml").read_text(encoding="utf-8"))["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    told = []
    monkeypatch.setattr("jax.distributed.is_initialized", lambda: False)
    monkeypatch.setattr("jax.distributed.initialize", lambda *args: told.append(args))
    jde.distributed.ensure_initialized()
    assert told == [("train-workers-0-0.train:1234", job["completions"], 1)]
    assert job["completions"] == job["parallelism"]


@pytest.mark.slow
def test_two_workers_of_ray(tmp_path):
    pytest.importorskip("ray")
    command = [sys.executable, FOLDER / "train_ray.py", tmp_path, "--steps", "20"]
    done = subprocess.run(
        command, env=environment(RAY_AUTH_MODE="disabled"), timeout=SECONDS
    )
    assert done.returncode == 0
    assert jde.checkpoint.latest(tmp_path) == 20


@pytest.mark.slow
def test_two_workers_of_rays_jax_trainer(tmp_path):
    pytest.importorskip("ray.train.v2.jax", reason="needs ray[train]")
    command = [sys.executable, FOLDER / "train_jaxtrainer.py", tmp_path / "run"]
    command += ["--steps", "20", "--restarts", "0"]
    done = subprocess.run(
        command, env=environment(RAY_AUTH_MODE="disabled"), timeout=SECONDS
    )
    assert done.returncode == 0
    assert jde.checkpoint.latest(tmp_path / "run") == 20
