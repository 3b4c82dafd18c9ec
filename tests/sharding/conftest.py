# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Programs over eight devices take long to compile and run once or twice."""

from collections.abc import Iterator

import jax
import pytest

import peers
from jax_dynemb._src.engines.hash import links as _links


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Less optimization, except where the program itself is looked at."""
    if request.path.name == "test_compiled_program.py":
        yield
        return
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def large_exchanges() -> Iterator[None]:
    """All arrays travel as large ones do: none is gathered on every device."""
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_links, "GATHERED_BYTES", 0)
        yield
    jax.clear_caches()


@pytest.fixture(autouse=True, scope="session")
def emulated_peers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Exchanges as GPUs that read each other's memory do, if ``--emulate-peers``."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--emulate-peers"):
            peers.emulate(patch)
        yield
