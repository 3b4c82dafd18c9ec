# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains, serves over HTTP meanwhile, and measures the latency of the server.

    pip install "jax-dynemb[serve,export]"
    python examples/serve_http.py
    python examples/serve_http.py --backend torch --python path/of/torch/env/bin/python

One process trains and publishes, one serves, one sends requests: 64 ids for each of 26
tables. With --count all rows of an answer are compared with the step that it names. The
server in PyTorch needs fastapi, uvicorn and jax_dynemb_torch, and no JAX.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

HERE = str(Path(__file__).parent)


def main(arguments: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Runs all; returns by path what ``serve.load`` measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--backend", default="jax", help="jax or torch")
    add("--python", default=sys.executable, help="interpreter of the server")
    add("--seconds", type=float, default=10, help="of each load")
    add("--connections", type=int, default=1)
    add("--ids", type=int, default=1_000, help="of each feature")
    add("--pause", type=float, default=0.05, help="of the training between steps")
    add("--count", action="store_true", help="rows count the steps; no answer is torn")
    options = parser.parse_args(arguments)
    paths = ["rows.bin"] if options.count else ["predict.bin", "predict"]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        given = ["--ids", str(options.ids)]
        training = [sys.executable, "-m", "serve.publish", folder, *given]
        training += ["--seconds", "3600", "--pause", str(options.pause)]
        training += ["--count"] * options.count
        stack.enter_context(_process(training))
        _wait(lambda: any(Path(folder, "published").glob("snapshot-*")))
        port = free_port()
        server = [options.python, "-m", "serve.server", folder, "--port", str(port)]
        server += ["--backend", options.backend]
        stack.enter_context(_process(server))
        _wait(lambda: _answers(port))
        found = {}
        for path in paths:
            load = [sys.executable, "-m", "serve.load", "--port", str(port), *given]
            load += ["--seconds", str(options.seconds), "--path", path]
            load += ["--connections", str(options.connections)]
            load += ["--check"] * options.count
            done = subprocess.run(
                load, env=_environment(), check=True, stdout=subprocess.PIPE
            )
            found[path] = json.loads(done.stdout)
    for path, figures in found.items():
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        print(f"{options.backend} {path}: {shown}")
    return found


def free_port() -> int:
    """Finds a port of this machine that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _environment() -> dict[str, str]:
    path = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path}


@contextlib.contextmanager
def _process(command: list[str]) -> Generator[None]:
    process = subprocess.Popen(command, env=_environment())
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/version", timeout=5) as x:
            return x.status == 200
    except OSError:
        return False


def _wait(until: Callable[[], bool]) -> None:
    limit = time.monotonic() + 120
    while not until():
        if time.monotonic() > limit:
            raise TimeoutError("a process did not start within two minutes")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
