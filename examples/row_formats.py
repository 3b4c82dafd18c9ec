# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What smaller rows cost: a click model with tables of float32, bfloat16, int8, int4.

    python examples/row_formats.py                        # a synthetic stream
    python examples/row_formats.py --data path/ml-100k    # MovieLens files
    python examples/row_formats.py --train                # bfloat16 rows that learn

Trains once. Then the tables are exported in each format, read back from the files, and
the whole model is tested with those rows: nothing else differs between the lines. Lines
of "frozen" tables use packed rows, which the lookup itself reads. With --train the
model is trained again with rows of bfloat16, rounded to nearest and stochastically.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

import jax_dynemb as jde
from ctr import metrics, movielens, synthetic
from ctr.clicks import Clicks, Source
from ctr.dynamic import DynamicLearner
from ctr.fit import fit
from ctr.settings import Settings

FORMATS = ("float32", "bfloat16", "int8", "int4")
FROZEN = ("float8_e4m3fn", "int8", "int4")
ROUNDINGS: tuple[Literal["nearest", "stochastic"], ...] = ("nearest", "stochastic")


@dataclasses.dataclass(frozen=True)
class Line:
    """One format.

    Attributes:
      dtype: of the rows; "frozen" before that of packed ones, "trained" before that of
        rows that were updated in it.
      auc: on the test rows.
      log_loss: on the test rows.
      change: the largest difference of a logit from float32.
      row_bytes: of a row and its scale, in the file or in the table.
    """

    dtype: str
    auc: float
    log_loss: float
    change: float
    row_bytes: float


def main(arguments: Sequence[str] | None = None) -> list[Line]:
    """Trains, tests every format and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="MovieLens folder; else synthetic")
    parser.add_argument("--rows", type=int, help="rows of the synthetic stream to draw")
    parser.add_argument("--dim", type=int, default=Settings.dim)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", action="store_true", help="in bfloat16 too")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    source = _load(options)
    given: dict[str, Any] = {"dim": options.dim, "seed": options.seed}
    rate = Settings.learning_rate * source.haste
    chosen: dict[str, Any] = {"learning_rate": rate, **source.defaults, **given}
    settings = Settings(**chosen)
    learner = DynamicLearner(source, settings)
    fit(learner, source, settings)
    test = source.epoch(settings.epochs - 1)[1]
    lines = compare(learner, test, settings.batch_size)
    if options.train:
        lines += train(source, settings, test, logits_of(learner, test, settings))
    _print(source.title, lines)
    if options.json is not None:
        fields = [dataclasses.asdict(line) for line in lines]
        options.json.write_text(json.dumps({"data": source.title, "lines": fields}))
    return lines


def logits_of(learner: DynamicLearner, test: Clicks, settings: Settings) -> np.ndarray:
    """Computes the logits of the test rows."""
    batches = [learner.predict(batch) for batch in test.batches(settings.batch_size)]
    return np.concatenate(batches)[: len(test)]


def train(
    source: Source, settings: Settings, test: Clicks, exact: np.ndarray
) -> list[Line]:
    """Trains with rows of bfloat16 by either rounding; ``exact``: float32's logits."""
    lines = []
    for rounding in ROUNDINGS:
        small = dataclasses.replace(settings, param_dtype="bfloat16", rounding=rounding)
        learner = DynamicLearner(source, small)
        fit(learner, source, small)
        logits = logits_of(learner, test, small)
        lines.append(
            Line(
                f"trained bfloat16, {rounding}",
                metrics.auc(test.labels, logits),
                metrics.log_loss(test.labels, logits),
                float(np.abs(logits - exact).max()),
                2.0 * settings.dim,
            )
        )
    return lines


def compare(learner: DynamicLearner, test: Clicks, batch_size: int) -> list[Line]:
    """Tests the model with the rows of each format, and gives it its own back."""
    embed = learner.embed
    coll, trained = embed.coll, embed.get_state()
    tested: dict[str, tuple[float, np.ndarray]] = {}

    def logits() -> np.ndarray:
        batches = [learner.predict(batch) for batch in test.batches(batch_size)]
        return np.concatenate(batches)[: len(test)]

    for dtype in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tables"
            jde.export.safetensors(path, coll, trained, dtype=dtype, quiet=True)
            embed.set_state(jde.import_.safetensors(path, coll, quiet=True).state)
            tested[dtype] = _row_bytes(path), logits()
    for dtype in FROZEN:
        embed.coll, packed = jde.export.frozen(coll, trained, dtype=dtype)
        embed.set_state(packed)
        (table,) = packed.values()
        tested[f"frozen {dtype}"] = float(table.values.shape[1]), logits()
    embed.coll = coll
    embed.set_state(trained)
    exact = tested[FORMATS[0]][1]
    return [
        Line(
            name,
            metrics.auc(test.labels, each),
            metrics.log_loss(test.labels, each),
            float(np.abs(each - exact).max()),
            row_bytes,
        )
        for name, (row_bytes, each) in tested.items()
    ]


def _row_bytes(path: Path) -> float:
    from safetensors.numpy import load_file

    (file,) = path.glob("*.safetensors")
    tensors = load_file(file)
    stored = [tensors[name] for name in ("rows", "scales") if name in tensors]
    return sum(array.nbytes for array in stored) / len(tensors["keys"])


def _load(options: argparse.Namespace) -> Source:
    if options.data is not None:
        return movielens.load(options.data)
    stream = synthetic.Stream()
    if options.rows is not None:
        stream = dataclasses.replace(stream, rows=options.rows)
    return synthetic.load(stream, options.seed)


def _print(title: str, lines: list[Line]) -> None:
    table = Table("rows", "bytes of a row", "AUC", "log loss", "logits change by")
    for line in lines:
        table.add_row(
            line.dtype,
            f"{line.row_bytes:g}",
            f"{line.auc:.5f}",
            f"{line.log_loss:.5f}",
            f"{line.change:.1e}",
        )
    console = Console()
    console.print(title, highlight=False)
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
