# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Two processes of four devices agree with one process of eight."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jax_dynemb as jde

SCRIPT = Path(__file__).with_name("two_processes.py")
ROOT = Path(jde.__file__).resolve().parents[1]
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")


def start(devices: int, **variables: str) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
    paths = [str(ROOT), environment.get("PYTHONPATH", "")]
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(devices)],
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: subprocess.Popen) -> dict:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    (line,) = [x for x in out.splitlines() if x.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_two_processes_agree_with_one():
    alone = result(start(8))
    common = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{free_port()}",
        "JAX_NUM_PROCESSES": "2",
    }
    pair = [start(4, **common, JAX_PROCESS_ID=str(number)) for number in range(2)]
    try:
        both = [result(process) for process in pair]
    finally:
        for process in pair:
            process.kill()
    for one in both:
        np.testing.assert_allclose(one["losses"], alone["losses"], rtol=1e-5)
        assert one["stats"] == alone["stats"]
    assert not set(both[0]["rows"]) & set(both[1]["rows"])  # each its own shards
    together = both[0]["rows"] | both[1]["rows"]
    in_columns = {key for key in alone["rows"] if key.startswith("c")}
    together |= {key: alone["rows"][key] for key in in_columns}
    assert in_columns and len({key[0] for key in together}) == 4
    assert set(together) == set(alone["rows"])
    for key, row in together.items():
        np.testing.assert_allclose(row, alone["rows"][key], rtol=1e-5, atol=1e-6)


def test_one_process_needs_nothing(monkeypatch):
    for name in (*LAUNCHERS, "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES"):
        monkeypatch.delenv(name, raising=False)
    jde.distributed.ensure_initialized()


def test_half_a_description_is_refused(monkeypatch):
    for name in (*LAUNCHERS, "JAX_PROCESS_ID", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "host:1234")
    monkeypatch.delenv("JAX_NUM_PROCESSES", raising=False)
    with pytest.raises(ValueError, match="JAX_NUM_PROCESSES"):
        jde.distributed.ensure_initialized()
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    with pytest.raises(ValueError, match="JAX_PROCESS_ID"):
        jde.distributed.ensure_initialized()
