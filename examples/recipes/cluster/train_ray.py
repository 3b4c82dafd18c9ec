# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Starts the workers of ``train.py`` with Ray, and starts them again when one is lost.

    python train_ray.py FOLDER --workers 2 --gpus 8

Each worker is a Ray task that runs the script in a process of its own: JAX needs a
process that has used no devices.
"""

import argparse
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

SCRIPT = Path(__file__).with_name("train.py")
TRY_AGAIN = 75


@ray.remote(max_retries=0)
def address() -> str:
    """Returns where process 0 will be, with a port that is free there."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{ray.util.get_node_ip_address()}:{probe.getsockname()[1]}"


@ray.remote(max_retries=0)
def worker(number: int, workers: int, coordinator: str, arguments: list[str]) -> int:
    """Runs one process of the job; returns its exit status."""
    job = {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": str(workers),
        "JAX_PROCESS_ID": str(number),
    }
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=os.environ | job).returncode


def main() -> int:
    """Starts the job until it is done; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of checkpoints, for all workers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=0, help="of each worker")
    parser.add_argument("--restarts", type=int, default=100)
    options, rest = parser.parse_known_args()
    needs = {"CPU": 1, "GPU": options.gpus} if options.gpus else {"CPU": 1}
    group = placement_group([needs] * options.workers, strategy="SPREAD")
    ray.get(group.ready())

    def place(task: Any, number: int) -> Any:
        """Reserves for a task what worker ``number`` may use."""
        bundle = PlacementGroupSchedulingStrategy(group, number)
        return task.options(num_gpus=options.gpus, scheduling_strategy=bundle)

    for _ in range(1 + options.restarts):
        coordinator = ray.get(place(address, 0).remote())
        job = (options.workers, coordinator, [options.folder, *rest])
        tasks = [
            place(worker, number).remote(number, *job)
            for number in range(options.workers)
        ]
        try:
            statuses = set(ray.get(tasks))
        except RayError as error:  # a machine was lost
            print(error, file=sys.stderr)
            statuses = {TRY_AGAIN}
        if statuses == {0}:
            return 0
    return 1


if __name__ == "__main__":
    ray.init()
    sys.exit(main())
