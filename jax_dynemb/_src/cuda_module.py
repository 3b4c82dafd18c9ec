# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the CUDA module: in the package, or in a plugin wheel of the same version."""

import importlib
from importlib.metadata import EntryPoints, entry_points
from types import ModuleType

from jax_dynemb._version import __version__

NAME = "_dynemb_cuda"
GROUP = "jax_dynemb.cuda"  # of entry points such as cuda13
NOT_INSTALLED = (
    'no GPU kernels are installed. Run pip install "jax-dynemb[{cuda}]=={version}", or '
    "compile them (docs/install.md): pip install --force-reinstall --no-deps "
    "--config-settings=cmake.define.DYNEMB_CUDA=ON ."
)
OTHER_CUDA = (
    "JAX is installed for {wanted}, but of jax_dynemb's plugins only {found}. Run pip "
    "install jax-dynemb-{wanted}=={version}."
)
OTHER_VERSION = (
    "jax-dynemb-{cuda} is of version {found} and jax-dynemb of {version}; both must be "
    "the same. Run pip install jax-dynemb-{cuda}=={version}."
)


def load() -> ModuleType:
    """Imports the CUDA module; one compiled into the package goes before plugins.

    Raises:
      ImportError: with what to install, if there is none, if it is for another CUDA
        than JAX, or of another version than this package.
    """
    try:
        return importlib.import_module(f"jax_dynemb.{NAME}")
    except ModuleNotFoundError:
        plugins = entry_points(group=GROUP)
    wanted = _cuda_of_jax() or plugins.names or {"cuda13"}
    told = {"version": __version__, "cuda": max(wanted), "wanted": max(wanted)}
    if not plugins:
        raise ModuleNotFoundError(NOT_INSTALLED.format(**told))
    fitting = sorted(wanted & plugins.names)
    if not fitting:
        found = ", ".join(f"jax-dynemb-{name}" for name in sorted(plugins.names))
        raise ImportError(OTHER_CUDA.format(found=found, **told))
    return _load_plugin(plugins, fitting[-1])


def _cuda_of_jax() -> set[str]:
    """Returns the CUDA versions that JAX has plugins for, such as {"cuda13"}."""
    names = (
        name.removeprefix("xla_") for name in entry_points(group="jax_plugins").names
    )
    return {name for name in names if name.startswith("cuda")}


def _load_plugin(plugins: EntryPoints, cuda: str) -> ModuleType:
    plugin = plugins[cuda]
    found = plugin.dist.version if plugin.dist else "unknown"
    if found != __version__:
        told = {"cuda": cuda, "found": found, "version": __version__}
        raise ImportError(OTHER_VERSION.format(**told))
    return plugin.load()
