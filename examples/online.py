# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Serves a model while it is trained, and shows what the age of its rows costs.

    python examples/online.py
    python examples/online.py --seconds 60 --change 30
    python examples/online.py --to tcp
    python examples/online.py --to redis://localhost

Users like the items of their own kind, until the taste changes at a known second. One
process trains and publishes. Servers in processes of their own follow, each looking for
news as often as it is told, and answer a load generator over a socket of this machine.
It knows the truth, and prints the AUC of each server before and after the change;
`out_online/auc.png` shows it over time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jax_dynemb as jde
from jax_dynemb.metrics import AUC

USERS, ITEMS, KINDS, DIM = 400, 80, 4, 8


def make_tables() -> jde.Tables:
    """Makes a table for users and one for items."""
    optimizer = jde.optim.adagrad(0.3)
    return jde.Tables(
        [
            jde.TableConfig("user", DIM, 1024, optimizer=optimizer, log_removed=1024),
            jde.TableConfig("item", DIM, 256, optimizer=optimizer, log_removed=1024),
        ]
    )


def clicks(
    draw: np.random.Generator, size: int, shift: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draws ids and labels: nine in ten pairs of one kind are clicks, else one."""
    user, item = draw.integers(0, USERS, size), draw.integers(0, ITEMS, size)
    liked = user % KINDS == (item + shift) % KINDS
    return {"user": user, "item": item}, draw.random(size) < np.where(liked, 0.9, 0.1)


def logits_of(rows: Any) -> Any:
    """Returns the score of each pair."""
    return (rows["user"] * rows["item"]).sum(axis=-1)


def channel(to: str, folder: str, publishes: bool) -> Any:
    """Returns what a publisher or a subscriber takes.

    Args:
      to: "folder", "tcp:PORT", or the URL of a Redis.
      folder: where the publisher's parts lie, unless they are in Redis.
      publishes: whether it is for the publisher.
    """
    if to == "folder":
        return folder
    if to.startswith("tcp:"):
        address = f"127.0.0.1:{to.removeprefix('tcp:')}"
        if publishes:
            return jde.serving.Listener(folder, address)
        return jde.serving.Socket(address)
    return jde.serving.Redis(to, f"online:{folder}")


def serve(to: str, folder: str, interval: float, address: str) -> None:
    """Answers pairs of ids with their scores and the age of the rows."""
    source = channel(to, folder, publishes=False)
    with (
        jde.serving.Subscriber(source, make_tables(), interval=interval) as served,
        Listener(address, "AF_UNIX") as listener,
        listener.accept() as connection,
    ):
        while (pairs := connection.recv()) is not None:
            ids = {name: jde.ids(each) for name, each in pairs.items()}
            scores = np.asarray(logits_of(served.find(ids)))
            connection.send((scores, served.version().age()))


def area(scores: np.ndarray, labels: np.ndarray) -> float:
    """Returns the area under the ROC curve."""
    labels = labels.astype(np.float32)
    found = AUC.from_model_output(predictions=jnp.asarray(scores), labels=labels)
    return float(found.compute())


class Load(threading.Thread):
    """Asks all servers about the same fresh pairs, and compares with the truth."""

    def __init__(self, connections: Sequence[Connection], begin: float, change: float):
        """Takes the servers, and when the taste changes."""
        super().__init__()
        self.connections, self.begin, self.change = connections, begin, change
        self.stop = threading.Event()
        self.found: list[tuple[float, list[float], list[float]]] = []

    def run(self) -> None:
        """Asks until it is stopped."""
        draw = np.random.default_rng(1)
        while not self.stop.wait(0.1):
            now = time.monotonic() - self.begin
            pairs, labels = clicks(draw, 1000, int(now > self.change))
            for connection in self.connections:
                connection.send(pairs)
            answers = [connection.recv() for connection in self.connections]
            aucs = [area(scores, labels) for scores, _ in answers]
            self.found.append((now, aucs, [age for _, age in answers]))
        for connection in self.connections:
            connection.send(None)


def train(
    to: Any, published: Callable[[], float], seconds: float, change: float
) -> int:
    """Trains on the stream of clicks and publishes each step; returns their number.

    ``published`` is called when there is a snapshot; it returns when the stream begins.
    """
    coll = make_tables()

    @jax.jit
    def step(state: Any, ids: Any, labels: Any) -> Any:
        rows, residual, state = coll.lookup(state, ids)

        def loss_of(rows: Any) -> Any:
            return optax.sigmoid_binary_cross_entropy(logits_of(rows), labels).sum()

        grads = jax.grad(loss_of)(rows)
        return coll.apply_gradients(state, residual, grads)

    draw, state, steps = np.random.default_rng(0), coll.init(0), 0
    with jde.serving.Publisher(coll, to, every=5) as publisher:
        publisher.step(state)
        begin = published()
        while (now := time.monotonic() - begin) < seconds:
            pairs, labels = clicks(draw, 256, int(now > change))
            ids = {name: jde.ids(each) for name, each in pairs.items()}
            state = step(state, ids, jnp.asarray(labels, jnp.float32))
            publisher.step(state)
            steps += 1
            time.sleep(0.005)  # a stream has its own speed
    return steps


def draw_picture(load: Load, intervals: Sequence[float]) -> None:
    """Draws AUC over time; nothing without matplotlib."""
    try:
        import matplotlib.pyplot as plt  # noqa: PLC0415 (an extra)
    except ImportError:
        return
    figure, axes = plt.subplots(figsize=(8, 4))
    times = [now for now, *_ in load.found]
    for n, interval in enumerate(intervals):
        label = f"looks every {interval:g} s"
        axes.plot(times, [aucs[n] for _, aucs, _ in load.found], label=label)
    axes.axvline(load.change, color="gray", linestyle=":")
    axes.set(xlabel="seconds", ylabel="AUC of what is served")
    axes.legend()
    Path("out_online").mkdir(exist_ok=True)
    figure.savefig("out_online/auc.png", dpi=120)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> dict[float, tuple[float, float]]:
    """Runs all, and returns by interval the AUC at the end and the mean age."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--change", type=float, default=15, help="of the taste")
    parser.add_argument("--intervals", type=float, nargs="+", default=[0.05, 2, 8])
    parser.add_argument("--to", default="folder", help="folder, tcp, or URL of a Redis")
    options = parser.parse_args(arguments)
    to = f"tcp:{_free_port()}" if options.to == "tcp" else options.to
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        addresses = [
            os.path.join(folder, f"{n}.socket") for n in range(len(options.intervals))
        ]
        servers = [
            context.Process(target=serve, args=(to, folder, interval, address))
            for interval, address in zip(options.intervals, addresses, strict=True)
        ]
        for server in servers:
            server.start()
        loads: list[Load] = []

        def published() -> float:
            connections = [_connected(address) for address in addresses]
            loads.append(Load(connections, time.monotonic(), options.change))
            loads[0].start()
            return loads[0].begin

        destination = channel(to, folder, publishes=True)
        steps = train(destination, published, options.seconds, options.change)
        (load,) = loads
        load.stop.set()
        load.join()
        for server in servers:
            server.join()
    draw_picture(load, options.intervals)
    print(f"{steps} steps; taste changed after {options.change:g} s")
    result = {}
    changed = [each for each in load.found if each[0] > options.change]
    for n, interval in enumerate(options.intervals):
        age = float(np.mean([ages[n] for *_, ages in load.found]))
        low = float(np.mean([aucs[n] for _, aucs, _ in changed]))
        last = float(np.mean([aucs[n] for _, aucs, _ in load.found[-5:]]))
        print(
            f"looks every {interval:g} s: mean age {age:.2f} s, AUC since the change "
            f"{low:.3f}, at the end {last:.3f}"
        )
        result[interval] = low, age
    return result


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as some:
        return some.getsockname()[1]


def _connected(address: str) -> Connection:
    until = time.monotonic() + 120
    while True:
        try:
            return Client(address, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
