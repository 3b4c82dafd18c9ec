# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a click model on a dynamic embedding table and shows what it learns.

    python examples/train_ctr.py                         # a synthetic stream, no files
    python examples/train_ctr.py --data path/ml-100k     # MovieLens .inter/.user/.item
    python examples/train_ctr.py --data path/train.txt   # Criteo, tabs or commas
    python examples/train_ctr.py --mesh 8                # over eight devices

Ids are raw 64-bit hashes: nobody counts or renumbers them. With `--dense-baseline` the
same model is trained on a dense `nnx.Embed` as well. Curves go to the folder `--out`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ctr import criteo, movielens, report, synthetic
from ctr.clicks import Source
from ctr.dense import DenseLearner
from ctr.dynamic import DynamicLearner
from ctr.fit import Epoch, Learner, count_steps, fit
from ctr.settings import LEARNING_RATES, Settings


def main(arguments: Sequence[str] | None = None) -> dict[str, list[Epoch]]:
    """Runs the example; returns the epochs of each trained model."""
    options = _parser().parse_args(arguments)
    if options.mesh is not None:
        # On a machine without accelerators the CPU acts as so many devices.
        with contextlib.suppress(RuntimeError):  # the devices are known already
            jax.config.update("jax_num_cpu_devices", options.mesh)
    console = Console()
    source = _load(options)
    settings = _settings(options, source)
    console.print(f"{source.title}\n{settings}", highlight=False)
    mesh = None if options.mesh is None else _mesh(options.mesh)
    learners: list[Learner] = [DynamicLearner(source, settings, mesh)]
    if options.dense_baseline:
        learners.append(DenseLearner(source, settings))
    runs = {one.title: _run(console, one, source, settings) for one in learners}
    report.print_summary(console, runs)
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "curves.png"
    report.draw_curves(picture, source.title, runs)
    console.print(f"curves: {picture}", highlight=False)
    if options.json is not None:
        report.write_json(options.json, source.title, settings, runs)
    return runs


def _run(
    console: Console, learner: Learner, source: Source, settings: Settings
) -> list[Epoch]:
    console.rule(learner.title)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=count_steps(source, settings))

        def show(epoch: Epoch) -> None:
            line = report.epoch_line(epoch, settings.epochs)
            console.print(line, highlight=False, soft_wrap=True)

        return fit(
            learner, source, settings, on_step=lambda: bar.advance(task), on_epoch=show
        )


def _mesh(count: int) -> jax.sharding.Mesh:
    """The devices that share the table and the batch; the script is the same."""
    if count > jax.device_count():
        raise SystemExit(f"--mesh {count}: there are {jax.device_count()} devices.")
    return jax.make_mesh(
        (count,),
        ("data",),
        axis_types=(jax.sharding.AxisType.Auto,),
        devices=jax.devices()[:count],
    )


def _load(options: argparse.Namespace) -> Source:
    path: Path | None = options.data
    if path is None:
        stream = synthetic.Stream()
        if options.rows is not None:
            stream = dataclasses.replace(stream, rows=options.rows)
        return synthetic.load(stream, options.seed)
    if path.is_dir():
        return movielens.load(path)
    if path.is_file():
        return criteo.load(path, options.rows)
    raise SystemExit(f"--data {path}: no such file or folder.")


def _settings(options: argparse.Namespace, source: Source) -> Settings:
    """What the user says, else what suits the data, else what suits the optimizer."""
    names = [field.name for field in dataclasses.fields(Settings)]
    given = {name: getattr(options, name) for name in names if hasattr(options, name)}
    given = {name: value for name, value in given.items() if value is not None}
    optimizer = given.get("optimizer", Settings.optimizer)
    rate = LEARNING_RATES[optimizer] * source.haste
    chosen: dict[str, Any] = {"learning_rate": rate, **source.defaults, **given}
    return Settings(**chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, help="MovieLens folder or Criteo file; default: synthetic")
    add("--rows", type=int, help="rows to read of a Criteo file, or to draw")
    add("--epochs", type=int)
    add("--batch-size", type=int)
    add("--dim", type=int, help="width of an embedding")
    add("--capacity", type=int, help="rows of the dynamic table")
    add("--optimizer", choices=sorted(LEARNING_RATES), help="of the embedding rows")
    add("--lr", type=float, dest="learning_rate", help="of the embedding rows")
    add("--mesh", type=int, help="devices that share the table and the batch")
    add("--seed", type=int, default=0)
    add("--dense-baseline", action="store_true", help="train a dense nnx.Embed as well")
    add("--out", type=Path, default=Path("out_ctr"), help="folder for the curves")
    add("--json", type=Path, help="file for settings and all figures")
    return parser


if __name__ == "__main__":
    main()
