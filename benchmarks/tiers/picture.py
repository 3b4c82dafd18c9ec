# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the time of a step and hit rates against the share of rows in HBM.

    python benchmarks/tiers/picture.py docs/images/tier_sizes.svg adam.json sgd.json

The files are what `bench_tiers.py --json` wrote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BUCKET = 128


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draws what `bench_tiers.py` has found; needs matplotlib.

    Args:
      found: its figures, `lines`, `hits` or both.
      path: of the picture.
    """
    from matplotlib import pyplot

    figure, (times, rates) = pyplot.subplots(1, 2, figsize=(8, 3.2))
    lines = found.get("lines", [])
    for optimizer in dict.fromkeys(line["optimizer"] for line in lines):
        own = [line for line in lines if line["optimizer"] == optimizer]
        tiered = sorted(
            (frames_of(line["share"]), line["ms"], line["hit_rate"])
            for line in own
            if line["share"] is not None
        )
        if not tiered:
            continue
        frames, ms, hits = zip(*tiered, strict=True)
        (drawn,) = times.plot(frames, ms, marker="o", label=optimizer)
        for line in own:
            if line["share"] is None:
                label = f"{optimizer}, all rows in HBM"
                times.axhline(line["ms"], ls="--", color=drawn.get_color(), label=label)
        rates.plot(frames, [100 * hit for hit in hits], marker="o", label=optimizer)
    simulated = found.get("hits", [])
    for name in dict.fromkeys(line["cache"] for line in simulated):
        pairs = sorted(
            (s["frames"], 100 * s["ids"]) for s in simulated if s["cache"] == name
        )
        rates.plot(*zip(*pairs, strict=True), ":", marker=".", label=name)
    times.set(ylabel="ms of a training step", ylim=(0, None))
    rates.set(ylabel="% of ids whose row was in HBM", ylim=(None, 100))
    for axes in (times, rates):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("places in HBM of 128 rows")
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.grid(alpha=0.3)
        if axes.has_data():
            axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def frames_of(share: float) -> int:
    """How many rows of a bucket have a place in HBM."""
    return max(1, round(share * BUCKET))


def main(arguments: Sequence[str]) -> None:
    """Draws the lines of several runs in one picture."""
    picture, *files = arguments
    found: dict[str, list[Any]] = {"lines": [], "hits": []}
    for file in files:
        run = json.loads(Path(file).read_text())
        for kind in found:
            found[kind] += run.get(kind, [])
    draw(found, Path(picture))


if __name__ == "__main__":
    main(sys.argv[1:])
