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


def test_two_processes_agree_with_one():
    (alone,) = run_job(SCRIPT, 1, 8)
    both = run_job(SCRIPT, 2, 4)
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
