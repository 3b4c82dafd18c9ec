# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Fresh processes that run a script with devices of their own, alone or as a job."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax_dynemb as jde

# Variables by which launchers describe a job.
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
_ROOT = Path(jde.__file__).resolve().parents[1]
_SECONDS = 240


def run_job(script: Path, processes: int, *arguments: Any) -> list[dict]:
    """Starts the processes of one job and returns what each of them says.

    A script calls ``jde.distributed.ensure_initialized`` and prints one line, "RESULT "
    and JSON.
    """
    job = {}
    if processes > 1:
        job["JAX_COORDINATOR_ADDRESS"] = f"127.0.0.1:{_free_port()}"
        job["JAX_NUM_PROCESSES"] = str(processes)
    started = [
        _start(script, arguments, job | {"JAX_PROCESS_ID": str(number)})
        for number in range(processes)
    ]
    try:
        return [_result(process) for process in started]
    finally:
        for process in started:
            process.kill()


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


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
