# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Sends requests to a server of this machine and prints percentiles of its latency.

    PYTHONPATH=examples python -m serve.load --seconds 10 --connections 4

With --check the rows must count steps (``publish --count``): all rows of an answer must
be one number, the step that the server names. Needs NumPy alone.
"""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from collections.abc import Sequence

import numpy as np

HOST = "127.0.0.1"  # a load test is of one's own machine
PERCENTILES = (50, 90, 99, 99.9)


class Torn(Exception):
    """Rows of one answer are of several moments."""


class Client(threading.Thread):
    """Sends one request after the other over one connection."""

    def __init__(self, port: int, options: argparse.Namespace, seed: int):
        """Connects; ``start`` begins."""
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)
        self._options, self._rng = options, np.random.default_rng(seed)
        self.seconds: list[float] = []
        self.ages: list[float] = []
        self.steps: list[int] = []
        self.error: Exception | None = None

    def run(self) -> None:
        """Sends until the time is over."""
        try:
            until = time.monotonic() + self._options.seconds
            while time.monotonic() < until:
                self._send()
        except Exception as error:  # noqa: BLE001 (main raises it)
            self.error = error
        finally:
            self._connection.close()

    def _send(self) -> None:
        options = self._options
        shape = (options.features, options.batch)
        ids = self._rng.integers(0, options.ids, shape)
        path, body, kind = f"/{options.path}", ids.astype("<i8").tobytes(), "binary"
        if options.path == "predict":
            named = {f"f{n}": column.tolist() for n, column in enumerate(ids)}
            body, kind = json.dumps({"ids": named}).encode(), "json"
        begin = time.perf_counter()
        headers = {"content-type": f"application/{kind}"}
        self._connection.request("POST", path, body, headers)
        answer = self._connection.getresponse()
        data = answer.read()
        self.seconds.append(time.perf_counter() - begin)
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {data[:500]!r}")
        if kind == "json":
            self.steps.append(json.loads(data)["step"])
            return
        step = int(answer.headers["x-step"])
        self.steps.append(step)
        self.ages.append(float(answer.headers["x-age"]))
        if options.check:
            check_whole(np.frombuffer(data, "<f4"), step)


def check_whole(rows: np.ndarray, step: int) -> None:
    """Raises Torn unless all numbers of all rows are the step."""
    if not (rows == step).all():
        found = np.unique(rows)[:8]
        raise Torn(f"an answer of step {step} has rows of {found}")


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Runs the clients; returns milliseconds by percentile and what they saw."""
    clients = [Client(options.port, options, n) for n in range(options.connections)]
    begin = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        if client.error is not None:
            raise client.error
    took = time.monotonic() - begin
    seconds = np.concatenate([client.seconds for client in clients])
    steps = np.concatenate([client.steps for client in clients])
    ages = np.concatenate([client.ages for client in clients])
    found = {f"p{p:g}_ms": float(np.percentile(seconds, p)) * 1e3 for p in PERCENTILES}
    return found | {
        "requests": len(seconds),
        "requests_per_second": len(seconds) / took,
        "moments": len(np.unique(steps)),
        "mean_age": float(ages.mean()) if len(ages) else float("nan"),
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--port", type=int, default=8000)
    add("--path", default="predict.bin", help="predict, predict.bin or rows.bin")
    add("--features", type=int, default=26)
    add("--batch", type=int, default=64, help="ids for each feature")
    add("--ids", type=int, default=1_000, help="that exist of each feature")
    add("--connections", type=int, default=1)
    add("--seconds", type=float, default=10)
    add("--check", action="store_true", help="that no answer is torn")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    print(json.dumps(measure(parse())))
