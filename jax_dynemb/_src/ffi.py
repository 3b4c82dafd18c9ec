# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Loads the extension modules, registers their handlers, reads shared constants.

The CPU module is part of every installation. The CUDA module is optional, and may be
in a plugin wheel. Both register the same target names, so nothing above this file
depends on the platform.
"""

from __future__ import annotations

import functools
import importlib
import pathlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax

from jax_dynemb._src import cuda_module

NO_CPU = (
    "jax_dynemb was imported from {folder}, which has no compiled module. If that is a "
    "checkout beside an installed jax_dynemb, start Python in another folder or with "
    "-P; if it is not installed, run pip install . there, or make build to compile "
    "into the checkout."
)
NO_CUDA = (
    "A table cannot live on {device}: {problem} To run on the CPU set "
    "JAX_PLATFORMS=cpu."
)
NO_VMAP = (
    "{op} under jax.vmap is not supported: every copy would change the same table. "
    "Give the ids a leading axis instead; lookups take ids of any shape."
)
NO_GRAD = (
    "{op} cannot be differentiated: a table is no argument of jax.grad, and a gradient "
    "of its size would never fit. Look up before, differentiate the loss with respect "
    "to the rows, d_rows = jax.grad(loss)(rows), and call coll.apply_gradients(state, "
    "residual, d_rows). Gradients of weights are those of coll.weight_gradients."
)
# Calls that read no table; tensor trains use them.
_WITHOUT_TABLES = ("distinct", "pair_rows", "pair_gradients", "sum_rows", "peer_sums")
NO_VMAP_OF_ROWS = (
    "{op} under jax.vmap is not supported. Give the ids a leading axis instead; "
    "lookups take ids of any shape. jax.jacrev and jax.hessian use vmap too: take "
    "jax.grad of a scalar, or contract the cores of a small tensor train with "
    "jnp.einsum."
)
NO_GRAD_OF_ROWS = (
    "{op} has no derivative: rows of a tensor train can be differentiated once, in "
    "reverse, by jax.grad or jax.vjp. For jax.hessian, jax.jvp or a gradient of a "
    "gradient, contract the cores of a small tensor train with jnp.einsum."
)


@functools.cache
def _load() -> dict[str, ModuleType | ImportError]:
    try:
        cpu = importlib.import_module("jax_dynemb._dynemb_cpu")
    except ModuleNotFoundError as error:
        folder = pathlib.Path(__file__).parent.parent
        raise ImportError(NO_CPU.format(folder=folder)) from error
    modules: dict[str, ModuleType | ImportError] = {"cpu": cpu}
    try:
        modules["CUDA"] = cuda_module.load()
    except ImportError as error:  # told where a table is to live on a GPU
        modules["CUDA"] = error
    for platform, module in modules.items():
        if isinstance(module, ModuleType):
            for target, capsule in module.registrations().items():
                jax.ffi.register_ffi_target(target, capsule, platform=platform)
    return modules


def loaded() -> dict[str, str | None]:
    """Says where each backend was loaded from; None where it is not installed."""
    return {
        platform: getattr(module, "__file__", None)
        for platform, module in _load().items()
    }


def cuda_problem() -> str:
    """Says why there are no GPU kernels, and what to install; empty where they are."""
    module = _load()["CUDA"]
    return str(module) if isinstance(module, ImportError) else ""


@functools.cache
def constants() -> dict[str, Any]:
    """Returns the numbers and lists of names that C++ and Python must agree on."""
    module = _load()["cpu"]
    assert isinstance(module, ModuleType)  # _load raises otherwise
    return module.constants()


def cpu_module() -> Any:
    """Returns the module of the CPU, which is part of every installation."""
    return _load()["cpu"]


def cuda_with_peers() -> Any:
    """Returns the module whose GPUs can read each other's memory; None without one."""
    module = _load()["CUDA"]
    return module if hasattr(module, "prepare_peers") else None


@functools.cache
def code(kind: str, name: str) -> int:
    """Returns the number of an enumerator, e.g. ``code("optimizers", "adam")``."""
    return constants()[kind].index(name)


@functools.cache
def hash_factors(seed: int) -> tuple[int, int]:
    """Returns the two multipliers of the hash of a table with this ``hash_seed``."""
    module = _load()["cpu"]
    assert isinstance(module, ModuleType)  # _load raises otherwise
    return module.hash_factors(seed)


def scratch_bytes(
    op: str, buckets: Sequence[int], dims: Sequence[int], ids: Sequence[int]
) -> int:
    """Computes the scratch memory of a call, on the platform that needs most.

    The platform is not known while a program is traced. A CPU leaves the memory
    untouched, so it costs nothing there.
    """
    modules = [m for m in _load().values() if isinstance(m, ModuleType)]
    return max(m.scratch_bytes(op, buckets, dims, ids) for m in modules)


def check_platform() -> None:
    """Raises if the default device is a GPU and its kernels are missing."""
    device = getattr(jax.config, "jax_default_device", None) or jax.devices()[0]
    platform = getattr(device, "platform", device)
    if platform in ("gpu", "cuda") and (problem := cuda_problem()):
        raise RuntimeError(NO_CUDA.format(device=device, problem=problem))


def call(
    op: str,
    results: Sequence[jax.ShapeDtypeStruct],
    operands: Sequence[jax.Array],
    aliases: dict[int, int],
    **attributes: Any,
) -> list[jax.Array]:
    """Calls one handler with operands in its order; ``attributes`` are static.

    ``aliases`` are pairs operand -> result that share one buffer.

    Raises:
      NotImplementedError: under ``jax.vmap``.
      ValueError: under ``jax.grad`` with respect to the tables.
    """
    _load()
    function = jax.ffi.ffi_call(
        f"dynemb_{op}", list(results), input_output_aliases=aliases
    )
    try:
        return list(function(*operands, **attributes))
    except NotImplementedError as error:
        no_vmap = NO_VMAP_OF_ROWS if op in _WITHOUT_TABLES else NO_VMAP
        raise NotImplementedError(no_vmap.format(op=op)) from error
    except ValueError as error:
        if "differentiated" not in str(error):
            raise
        no_grad = NO_GRAD_OF_ROWS if op in _WITHOUT_TABLES else NO_GRAD
        raise ValueError(no_grad.format(op=op)) from error
