# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Hypothesis profiles; no JAX may be loaded by what is tested here."""

import os
import sys

import hypothesis
import pytest
import torch

from devices import DEVICES

hypothesis.settings.register_profile(
    "ci", max_examples=30, deadline=None, derandomize=True
)
hypothesis.settings.register_profile("nightly", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

torch.set_num_threads(1)  # small operations; threads that wait for a core cost more


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(autouse=True, scope="session")
def without_jax():
    yield
    assert "jax" not in sys.modules
