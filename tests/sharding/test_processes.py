# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Two processes of four devices agree with one process of eight."""

from pathlib import Path

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from processes import LAUNCHERS, run_job

SCRIPT = Path(__file__).with_name("two_processes.py")


@pytest.fixture(scope="module")
def alone():
    return run_job(SCRIPT, 1, 8)[0]


@pytest.mark.slow
@pytest.mark.parametrize("devices_per_host", [1, 4])
def test_two_processes_agree_with_one(alone, devices_per_host):
    both = run_job(SCRIPT, 2, 4, devices_per_host)
    for one in both:
        np.testing.assert_allclose(one["losses"], alone["losses"], rtol=1e-5)
        if devices_per_host == 1:
            assert one["stats"] == alone["stats"]
        for name in ("t/rows", "u/rows", "t/step", "t/lost_updates"):
            assert one["stats"][name] == alone["stats"][name]
    assert not set(both[0]["rows"]) & set(both[1]["rows"])  # each its own shards
    together = both[0]["rows"] | both[1]["rows"]
    in_columns = {key for key in alone["rows"] if key.startswith("c")}
    together |= {key: alone["rows"][key] for key in in_columns}
    assert in_columns and len({key[0] for key in together}) == 4
    assert set(together) == set(alone["rows"])
    for key, row in together.items():
        np.testing.assert_allclose(row, alone["rows"][key], rtol=1e-5, atol=1e-6)


def slurm(number: int, processes: int, port: int) -> dict[str, str]:
    """As srun does; the port follows from the number of the job."""
    return {
        "SLURM_JOB_ID": str(port % 4096),
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_STEP_NUM_TASKS": str(processes),
        "SLURM_NTASKS": str(processes),
        "SLURM_PROCID": str(number),
        "SLURM_LOCALID": str(number),
    }


def open_mpi(number: int, processes: int, port: int) -> dict[str, str]:
    """As mpirun does."""
    return {
        "OMPI_MCA_orte_hnp_uri": f"{port % 4096 * 4096}.0;tcp://127.0.0.1:1",
        "OMPI_COMM_WORLD_SIZE": str(processes),
        "OMPI_COMM_WORLD_RANK": str(number),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(number),
    }


def job_set(number: int, processes: int, port: int) -> dict[str, str]:
    """As the recipe for Kubernetes does."""
    return {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(processes),
        "JOB_COMPLETION_INDEX": str(number),
    }


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [slurm, open_mpi, job_set])
def test_processes_of_a_launcher_find_each_other(launcher):
    script = Path(__file__).with_name("who_is_there.py")
    said = run_job(script, 2, describe=launcher)
    assert [one["process"] for one in said] == [0, 1]
    assert [one["everybody"] for one in said] == [[0, 1], [0, 1]]


def test_a_script_in_an_allocation_of_slurm_is_alone(monkeypatch):
    """Not started by srun, it is one process, whatever there is room for."""
    for name in (*LAUNCHERS, "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"JOB_ID": "7", "NTASKS": "8", "PROCID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    jde.distributed.ensure_initialized()
    assert not jax.distributed.is_initialized()


def test_one_process_needs_nothing(monkeypatch):
    for name in (*LAUNCHERS, "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES"):
        monkeypatch.delenv(name, raising=False)
    jde.distributed.ensure_initialized()
    assert not jax.distributed.is_initialized()


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
