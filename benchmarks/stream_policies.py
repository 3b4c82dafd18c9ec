# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""What each policy keeps of a day's stream: AUC and hit rate, hour by hour.

    python benchmarks/stream_policies.py --picture docs/images/stream_policies.svg

The stream is that of examples/stream.py: items are born all day, most clicks go to the
youngest, and some ids occur once. Each policy has a table of the same size, which is
full after an hour.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import jax_dynemb as jde
from jax_dynemb.admission import Frequency, Sketch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import stream  # noqa: E402

ENTRY = {"all enter": "-", "admission": "--", "compete": ":", "both": "-."}


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
        counts = self.entry in ("admission", "both")
        rule = Frequency(2, Sketch(sketch), halve_every=80) if counts else None
        competes = self.entry in ("compete", "both")
        return jde.TableConfig(
            "item",
            dim=4,
            capacity=slots,
            admission=rule,
            on_full="compete" if competes else "evict",
            optimizer=jde.optim.adagrad(0.3),
            initializer=jde.initializers.zeros(),
            **self.fields,
        )


def policies(halflives: Iterable[int]) -> list[Policy]:
    """Lists what is compared.

    Args:
      halflives: of LFU, in lookups.
    """
    step = {"score_strategy": "step"}
    lfu = {"score_strategy": "lfu"}
    result = [Policy("step", entry, step) for entry in ("all enter", "admission")]
    result += [Policy("lfu", entry, lfu) for entry in ENTRY]
    for lookups in halflives:
        fading = lfu | {"lfu_halflife": lookups}
        name = f"lfu, half-life {lookups}"
        result += [Policy(name, entry, fading) for entry in ENTRY]
    return result


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


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Draws both numbers hour by hour, a color for the scores and a dash for entry."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2))
    colors = {
        s: f"C{i}" for i, s in enumerate(dict.fromkeys(x["scores"] for x in lines))
    }
    for number, (axes, name) in enumerate(
        zip(panels, ("AUC of the hour", "hit rate of the hour"), strict=True)
    ):
        for line in lines:
            values = [hour[number] for hour in line["hours"]]
            axes.plot(
                range(len(values)),
                values,
                ENTRY[line["entry"]],
                color=colors[line["scores"]],
                linewidth=1.3,
                label=f"{line['scores']}, {line['entry']}",
            )
        axes.set(xlabel="hour", ylabel=name)
        axes.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=7, loc="right")
    figure.tight_layout(rect=(0, 0, 0.78, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Prints a line for each policy, and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=4_096)
    parser.add_argument("--sketch", type=int, default=1 << 16, help="bytes")
    parser.add_argument("--steps", type=int, default=stream.Stream.steps)
    parser.add_argument("--halflives", type=int, nargs="*", default=[80])
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    day = stream.Stream(steps=given.steps)
    print("scores               entry         AUC  hit rate    evicted   refused")
    lines = [
        measure(policy, day, given.slots, given.sketch)
        for policy in policies(given.halflives)
    ]
    if given.picture:
        draw(lines, given.picture)
    if given.json:
        given.json.write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
