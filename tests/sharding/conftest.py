# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Programs over eight devices take long to compile and run once or twice."""

from collections.abc import Iterator

import jax
import pytest

import hosts
import peers


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Less optimization, except where the program itself is looked at."""
    if request.path.name == "test_compiled_program.py":
        yield
        return
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves out what looks at collectives, where peers or hosts exchange."""
    options = ("--emulate-peers", "--emulate-hosts")
    if not any(config.getoption(each) for each in options):
        return
    left_out = [item for item in items if item.get_closest_marker("collectives")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True, scope="session")
def emulated_peers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Exchanges as GPUs that read each other's memory do, if ``--emulate-peers``."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--emulate-peers"):
            peers.emulate(patch)
        yield


@pytest.fixture(autouse=True, scope="session")
def emulated_hosts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Takes pairs of devices for hosts, if ``--emulate-hosts``."""
    with pytest.MonkeyPatch.context() as patch:
        if kind := request.config.getoption("--emulate-hosts"):
            hosts.emulate(patch, tight=kind == "tight")
        yield
