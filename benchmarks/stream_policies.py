# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What each policy keeps of a day's stream: AUC and hit rate, hour by hour.

    python benchmarks/stream_policies.py --picture docs/images/stream_policies.svg

The streams are those of examples/stream.py. In one of them items are born all day, and
most clicks go to the youngest. In the other no item is born, and popularity stays. In
both 30 % of the ids occur once. Each policy has a table of the same size, which is full
within an hour.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import stream  # noqa: E402

ENTRY = {"all enter": "-", "admission": "--", "compete": ":"}
HALFLIFE = 80  # lookups: two hours of a day
STREAMS = {
    "popularity drifts": ({"born": 800}, 4_096),
    "popularity stays": ({"born": 0}, 512),
}


@dataclasses.dataclass(frozen=True)
class Policy:
    """One way to choose the rows of a table.

    Attributes:
      scores: which row goes first; a color of the picture.
      entry: which ids get a row, one of ``ENTRY``.
      fields: of the scores, for ``TableConfig``.
    """

    scores: str
    entry: str
    fields: dict[str, Any]

    def table(self, slots: int, sketch: int) -> jde.TableConfig:
        """Returns the table of the policy.

        Args:
          slots: of it.
          sketch: bytes, where ids are counted before they enter.
        """
        counts = self.entry == "admission"
        rule = Frequency(2, Sketch(sketch), halve_every=80) if counts else None
        return jde.TableConfig(
            "item",
            dim=4,
            capacity=slots,
            admission=rule,
            on_full="compete" if self.entry == "compete" else "evict",
            optimizer=jde.optim.adagrad(0.3),
            initializer=jde.initializers.zeros(),
            **self.fields,
        )


def policies() -> list[Policy]:
    """Lists what is compared; with "step" a new id always has the highest score."""
    step = {"score_strategy": "step"}
    lfu = {"score_strategy": "lfu"}
    fading = lfu | {"lfu_halflife": HALFLIFE}
    return [
        *(Policy("step", entry, step) for entry in ("all enter", "admission")),
        *(Policy("lfu", entry, lfu) for entry in ENTRY),
        *(Policy("lfu with half-life", entry, fading) for entry in ENTRY),
    ]


def measure(policy: Policy, day: stream.Stream, slots: int, sketch: int) -> Any:
    """Trains a day and returns a line: means of its second half, and each hour."""
    done = stream.run(policy.table(slots, sketch), day, expires=stream.HOURS)
    stream.check_causes(done.stats)
    auc, rate = np.mean(done.hours[stream.HOURS // 2 :], axis=0)
    print(
        f"{policy.scores:20} {policy.entry:10} {auc:.4f} {rate:9.3f} "
        f"{done.stats['item/evicted']:10,} {done.stats['item/refused']:9,}"
    )
    return {
        "scores": policy.scores,
        "entry": policy.entry,
        "auc": auc,
        "hit_rate": rate,
        "hours": done.hours,
    }


def draw(lines: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draws both numbers hour by hour, a color for the scores and a dash for entry."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(len(lines), 2, figsize=(10, 7.4), sharex=True)
    names = dict.fromkeys(line["scores"] for line in lines["popularity drifts"])
    colors = {scores: f"C{i}" for i, scores in enumerate(names)}
    for (title, some), panels in zip(lines.items(), rows, strict=True):
        for number, axes in enumerate(panels):
            for line in some:
                axes.plot(
                    [hour[number] for hour in line["hours"]],
                    ENTRY[line["entry"]],
                    color=colors[line["scores"]],
                    linewidth=1.3,
                    label=f"{line['scores']}, {line['entry']}",
                )
            kind = ("AUC", "hit rate")[number]
            axes.set(xlabel="hour", ylabel=f"{kind} of the hour", title=title)
            axes.grid(alpha=0.3)
    handles, labels = rows[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="lower center", ncols=3)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Prints a line for each stream and policy, and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sketch", type=int, default=1 << 17, help="bytes")
    parser.add_argument("--steps", type=int, default=stream.Stream.steps)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    lines = {}
    for title, (fields, slots) in STREAMS.items():
        day = stream.Stream(steps=given.steps, **fields)
        print(f"{title}: {slots} slots")
        print("scores               entry         AUC  hit rate    evicted   refused")
        lines[title] = [measure(p, day, slots, given.sketch) for p in policies()]
    if given.picture:
        draw(lines, given.picture)
    if given.json:
        given.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
