# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the time of a step and hit rates against the share of rows in HBM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draws what `bench_tiers.py` has found; needs matplotlib.

    Args:
      found: its figures, `lines`, `hits` or both.
      path: of the picture.
    """
    from matplotlib import pyplot

    figure, (times, rates) = pyplot.subplots(1, 2, figsize=(11, 4))
    lines = found.get("lines", [])
    for optimizer in dict.fromkeys(line["optimizer"] for line in lines):
        own = [line for line in lines if line["optimizer"] == optimizer]
        tiered = sorted(
            (line["share"], line["ms"], line["hit_rate"], line["allowed_ms"])
            for line in own
            if line["share"] is not None
        )
        if not tiered:
            continue
        shares, ms, hits, allowed = zip(*tiered, strict=True)
        (drawn,) = times.plot(shares, ms, marker="o", label=optimizer)
        times.plot(shares, allowed, ":", color=drawn.get_color(), label="allowed")
        whole = [line["ms"] for line in own if line["share"] is None]
        for level in whole:
            times.axhline(level, ls="--", color=drawn.get_color(), label="all in HBM")
        rates.plot(shares, hits, marker="o", label=f"measured, {optimizer}")
    simulated = found.get("hits", [])
    for name in dict.fromkeys(line["cache"] for line in simulated):
        pairs = sorted((s["share"], s["ids"]) for s in simulated if s["cache"] == name)
        rates.plot(*zip(*pairs, strict=True), ":", marker=".", label=name)
    times.set(xlabel="share of rows in HBM", ylabel="ms of a training step")
    rates.set(xlabel="share of rows in HBM", ylabel="ids whose row was in HBM")
    for axes in (times, rates):
        axes.set_ylim(bottom=0)
        if axes.has_data():
            axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
