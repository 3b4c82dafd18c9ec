# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Fresh processes that run a script with devices of their own, alone or as a job."""

import concurrent.futures
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax_dynemb as jde

# Variables by which launchers describe a job.
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
# Tests that kill processes kill hundreds in a nightly run, and a few in CI.
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
_ROOT = Path(jde.__file__).resolve().parents[1]
_SECONDS = 240


def described(number: int, processes: int, port: int) -> dict[str, str]:
    """The variables that JAX's own names have for a process of a job."""
    if processes == 1:
        return {}
    return {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(processes),
        "JAX_PROCESS_ID": str(number),
    }


def run_job(
    script: Path,
    processes: int,
    *arguments: Any,
    describe: Callable[[int, int, int], dict[str, str]] = described,
) -> list[dict]:
    """Starts the processes of one job and returns what each of them says.

    A script calls ``jde.distributed.ensure_initialized`` and prints one line, "RESULT "
    and JSON.
    """
    started = start_job(script, processes, *arguments, describe=describe)
    try:
        # All are read at once: one that has filled its pipe would wait, and the others
        # would wait for it.
        with concurrent.futures.ThreadPoolExecutor(processes) as threads:
            return list(threads.map(_result, started))
    finally:
        for process in started:
            process.kill()


def start_job(
    script: Path,
    processes: int,
    *arguments: Any,
    describe: Callable[[int, int, int], dict[str, str]] = described,
) -> list[subprocess.Popen]:
    """Starts the processes of one job, as ``run_job`` does."""
    port = free_port()
    return [
        _start(script, arguments, describe(number, processes, port))
        for number in range(processes)
    ]


def counts_of(script: str, *arguments: Any) -> dict:
    """Runs a script alone, to its end; the last line that it prints is JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def _start(
    script: Path, arguments: tuple[Any, ...], job: dict[str, str]
) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
    tests = str(Path(__file__).parent)
    paths = [str(_ROOT), tests, environment.get("PYTHONPATH", "")]
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        env=environment | job,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _result(process: subprocess.Popen) -> dict:
    out, err = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, err[-3000:]
    (line,) = [x for x in out.splitlines() if x.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def free_port() -> int:
    """Finds a port that Slurm and Open MPI choose from: one of the last 4,096."""
    for port in random.sample(range(2**16 - 2**12, 2**16), 100):
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")
