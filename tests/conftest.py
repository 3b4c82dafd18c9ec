# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Strict JAX, hypothesis profiles, and the fixture that runs a test per platform."""

import os
from collections.abc import Iterator

import hypothesis
import jax
import pytest

# No silent promotion inside the library: float32 times bfloat16 must be written out.
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# ci: the same examples every time. nightly: new ones, many more.
hypothesis.settings.register_profile(
    "ci", max_examples=25, stateful_step_count=25, deadline=None, derandomize=True
)
hypothesis.settings.register_profile(
    "nightly", max_examples=500, stateful_step_count=50, deadline=None
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def platform(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test on the CPU, and on a GPU where one can be used."""
    import support

    if request.param == "cuda" and not support.has_cuda():
        pytest.skip("needs a CUDA device and the CUDA module")
    with jax.default_device(jax.devices(request.param)[0]):
        yield request.param
