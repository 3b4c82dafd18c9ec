# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the command line: ``python -m jax_dynemb info``, ``bench``, ``inspect``, ..."""

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from rich.markup import escape
from rich.table import Table

import jax_dynemb as jde
from jax_dynemb._src import commands
from jax_dynemb._src import ffi as _ffi

# A command is a function of the parsed arguments that returns the exit status; the
# first line of its docstring is its help.
Command = Callable[[argparse.Namespace], int]

Device = Any  # a jax.Device; type checkers can not see that class
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def info(arguments: argparse.Namespace) -> int:
    """Show versions, devices and loaded modules, and test a lookup on each device."""
    del arguments
    out = commands.console()
    out.print(_versions(), _modules())
    results = {device: _self_test_result(device) for device in _devices()}
    out.print(_device_table(results))
    return 1 if any(results.values()) else 0


def bench(arguments: argparse.Namespace) -> int:
    """Time lookups and training steps of a few workloads beside their byte floors."""
    return _or_sentence(commands.bench.main, arguments)


def inspect(arguments: argparse.Namespace) -> int:
    """Show the tables of a checkpoint, a DynamicEmb dump or a safetensors export."""
    return _or_sentence(commands.inspect.main, arguments)


def convert(arguments: argparse.Namespace) -> int:
    """Write the tables of a checkpoint, a dump or an export in another format."""
    return _or_sentence(commands.convert.main, arguments)


def _or_sentence(command: Command, arguments: argparse.Namespace) -> int:
    """Runs a command; what is wrong with its files is a sentence, not a trace."""
    try:
        return command(arguments)
    except (OSError, ValueError, ImportError) as error:
        print(error, file=sys.stderr)
        return 1


COMMANDS: dict[str, Command] = {
    "info": info,
    "bench": bench,
    "inspect": inspect,
    "convert": convert,
}
# What adds the arguments of a command that has some.
ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "bench": commands.bench.add_arguments,
    "inspect": commands.inspect.add_arguments,
    "convert": commands.convert.add_arguments,
}


def self_test(device: Device) -> None:
    """Looks four ids up in a new table on one device and compares every row.

    Args:
        device: where the table lives; its platform's extension module does the work.

    Raises:
        AssertionError: if a row is not what its id says, or changed when read again.
        Exception: whatever the lookup raises, such as a missing extension module.
    """
    config = jde.TableConfig(
        "self_test", 4, 256, initializer=jde.initializers.debug()
    )  # a row of this initializer is its id modulo 100,000
    tables = jde.Tables([config])
    keys = np.array([1, 2**40 + 7, -5, -1], np.int64)
    expected = np.where(keys == -1, 0, keys.astype(np.uint64) % np.uint64(100_000))
    with jax.default_device(device):
        ids = {"self_test": jde.ids(keys)}
        lookup = jax.jit(tables.lookup, donate_argnums=0)
        trained, _, state = lookup(tables.init(seed=0), ids)
        served, found, state = tables.find(state, ids)
        rows = tables.stats(state)["self_test/rows"]
    for row in (trained["self_test"], served["self_test"]):
        np.testing.assert_array_equal(row, np.tile(expected[:, None], 4))
    np.testing.assert_array_equal(found["self_test"], keys != -1)
    assert rows == 3, f"three ids were new, but the table counts {rows} rows"


def _self_test_result(device: Device) -> str:
    """Returns what went wrong, in one line; empty if nothing did."""
    try:
        self_test(device)
    except Exception as error:  # whatever it is, the user should read it
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
    return ""


def _devices() -> list[Device]:
    """Returns the default platform's local devices, and the CPU's."""
    return list(
        dict.fromkeys([*jax.local_devices(), *jax.local_devices(backend="cpu")])
    )


def _versions() -> Table:
    table = Table("package", "version", title="versions")
    table.add_row("jax_dynemb", jde.__version__)
    table.add_row("python", sys.version.split()[0])
    for name in PACKAGES:
        table.add_row(name, importlib.metadata.version(name))
    return table


def _modules() -> Table:
    table = Table("platform", title="kernels")
    table.add_column("extension module", overflow="fold")  # a path, to be copied
    for platform, where in _ffi.loaded().items():
        table.add_row(platform, where or escape(_ffi.cuda_problem().split(". ")[0]))
    return table


def _device_table(results: dict[Device, str]) -> Table:
    table = Table("device", "kind", title="devices")
    table.add_column("self-test", overflow="fold")
    for device, problem in results.items():
        verdict = f"[red]{escape(problem)}" if problem else "[green]ok"
        table.add_row(f"{device.platform}:{device.id}", device.device_kind, verdict)
    return table


def parser() -> argparse.ArgumentParser:
    """Returns the command line's grammar: one sub-command for each of `COMMANDS`."""
    root = argparse.ArgumentParser(prog="jax_dynemb", description=jde.__doc__)
    version = f"%(prog)s {jde.__version__}"
    root.add_argument("--version", action="version", version=version)
    choices = root.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        text = (command.__doc__ or "").splitlines()[0]
        command_parser = choices.add_parser(name, help=text, description=text)
        ARGUMENTS.get(name, lambda parser: None)(command_parser)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = parser().parse_args(arguments)
    return COMMANDS[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
