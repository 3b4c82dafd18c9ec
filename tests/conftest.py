# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Strict JAX, hypothesis profiles, and the fixture that runs a test per platform."""

import functools
import gc
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import jax
import pytest

# Several processes may share one GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# A mesh of eight for the sharding tests; everything else uses the first device.
jax.config.update("jax_num_cpu_devices", 8)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds options of the tests of meshes."""
    parser.addoption(
        "--emulate-peers",
        action="store_true",
        help="meshes of CPU devices exchange as GPUs that read each other's memory do",
    )
    parser.addoption(
        "--emulate-hosts",
        choices=["roomy", "tight"],
        help="pairs of devices are hosts, whose ids fit into their exchange or do not",
    )


PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")


def compile_quickly() -> None:
    """Compiles without optimizations, and keeps programs for the next run.

    Most of the time of these tests was XLA's (docs/decisions/testing.md). The kernels
    are not compiled by XLA, so they run as always. Processes that a test starts inherit
    the flags, but do not keep their programs.
    """
    flags = [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
    if jax.__version_info__ < (0, 11):  # XLA ends the process over a flag it lacks
        flags.append("--xla_cpu_use_fusion_emitters=false")
    given = os.environ.get("XLA_FLAGS", "").split()
    # Workers of pytest-xdist inherit them. JAX keeps programs by the flags as they are
    # written, so a flag that came twice would hide those of a run without workers.
    flags = [*given, *(flag for flag in flags if flag not in given)]
    os.environ["XLA_FLAGS"] = " ".join(flags)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    jax.config.update(
        "jax_compilation_cache_dir", folder or str(caches / "jax_dynemb" / "tests")
    )
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def reuse_ir_contexts() -> None:
    """Lets JAX 0.10 lower ten programs in one MLIR context, as later versions do.

    A context takes longer to make than a small program takes to trace.
    """
    from jax._src.interpreters import mlir

    make, local = mlir.make_ir_context, threading.local()

    def reused() -> Any:
        local.uses = getattr(local, "uses", -1) + 1
        if local.uses % 10 == 0:
            local.context = make()
        return local.context

    mlir.make_ir_context = reused


# A GPU's programs are those of users, and so are all in a nightly run.
if PROFILE == "ci" and not Path("/proc/driver/nvidia").exists():
    compile_quickly()
    if jax.__version_info__ < (0, 11):
        reuse_ir_contexts()

# The helpers assert too: their failures should show values.
pytest.register_assert_rewrite("support", "golden_replay")

# ci: the same examples every time. nightly: new ones, many more; more killed processes.
hypothesis.settings.register_profile(
    "ci", max_examples=25, stateful_step_count=40, deadline=None, derandomize=True
)
hypothesis.settings.register_profile(
    "nightly", max_examples=500, stateful_step_count=50, deadline=None
)
hypothesis.settings.load_profile(PROFILE)


def pytest_report_header() -> str:
    """Says whether this run reaches a GPU."""
    return f"platforms: cpu{', cuda' if _has_cuda() else ' (no CUDA)'}"


def pytest_collection_finish() -> None:
    """Leaves modules and collected tests out of garbage collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leaves out what needs a GPU where none can be used; begins with slow tests."""
    if not _has_cuda():
        left_out = {item for item in items if item.get_closest_marker("gpu")}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = _slow_ones_first(items, workers)


def _slow_ones_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deals the slow tests to the workers, each of which begins with its own.

    Worker i of n gets the next 1/(n - i) of those left, as pytest-xdist's worksteal
    shares them out. A slow test that came last would keep one worker busy alone.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    rest = iter([item for item in items if not item.get_closest_marker("slow")])
    dealt: list[pytest.Item] = []
    for i in range(workers):
        own = slow[i::workers]
        share = (len(items) - len(dealt)) // (workers - i)
        dealt += [*own, *itertools.islice(rest, max(0, share - len(own)))]
    return [*dealt, *rest]


@functools.cache
def _has_cuda() -> bool:
    """Whether a CUDA device and the CUDA module are both there."""
    from jax_dynemb._src import ffi as _ffi

    try:
        jax.devices("cuda")
    except RuntimeError:
        return False
    return _ffi.loaded()["CUDA"] is not None


@pytest.fixture(autouse=True, scope="module")
def strict_jax(request: pytest.FixtureRequest) -> Iterator[None]:
    """No silent promotion in the library; optax and flax rely on it elsewhere."""
    strict = ("ops", "table", "jit", "sharding", "lifecycle")
    if request.path.parent.name not in strict:
        yield
        return
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(autouse=True, scope="module")
def bounded_mappings() -> Iterator[None]:
    """Drops compiled programs before they reach the limit of memory mappings.

    Each program on a CPU holds some. Linux grants a process 65,530, and XLA ends the
    process where it gets no more.
    """
    yield
    if _mappings() > _MANY_MAPPINGS:
        jax.clear_caches()
        gc.collect()


_MANY_MAPPINGS = 10_000


def _mappings() -> int:
    """Counts the memory mappings of this process; 0 where only Linux could tell."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as lines:
            return sum(1 for _ in lines)
    except OSError:
        return 0


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def platform(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test on the CPU, and on a GPU where one can be used."""
    with jax.default_device(jax.devices(request.param)[0]):
        yield request.param
