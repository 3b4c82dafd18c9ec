# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``bench --html``: one page of a run beside floors and peers, that loads nothing."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jax_dynemb._src.commands.matrix import MATRIX
from jax_dynemb._src.commands.page import document
from jax_dynemb._src.shown import html_table

_WIDTH, _BAR, _LABEL = 720, 14, 150
_KINDS = {
    "floor": ("floor_ms", "fewest bytes at the speed of a copy"),
    "own": ("ms", "jax_dynemb"),
    "peer": ("peer_ms", MATRIX),
}


def bench_page(run: Mapping[str, Any]) -> str:
    """Returns the HTML of a run: what ``--json`` writes, and facts beside it."""
    title = f"Steps on {run['device']}"
    facts = [*run["facts"].items(), ("a large copy", f"{run['copy'] / 1e9:.0f} GB/s")]
    parts = [html_table(("run", ""), facts), f"<p>{_SAYS}</p>"]
    by_work = itertools.groupby(run["figures"], lambda figure: figure["workload"])
    for work, some in by_work:
        parts.append(_section(work, list(some)))
    return document(title, "".join(parts))


def _section(work: str, figures: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            figure["step"],
            f"{figure['ms']:.3f}",
            f"{figure['floor_ms']:.3f}",
            f"{figure['bytes'] / figure['ms'] / 1e6:.1f}",
            f"{figure['peer_ms']:.3f}" if "peer_ms" in figure else "-",
            f"{figure['peer_ms'] / figure['ms']:.1f}" if "peer_ms" in figure else "-",
        )
        for figure in figures
    ]
    head = ("step", "ms", "floor, ms", "GB/s", f"{MATRIX}, ms", "times as long")
    return f"<h2>{html.escape(work)}</h2>{_bars(work, figures)}{html_table(head, rows)}"


def _bars(work: str, figures: Sequence[Mapping[str, Any]]) -> str:
    """Draws the milliseconds of each step as bars of a logarithmic scale."""
    numbers = [x for figure in figures for _, _, x in _named(figure)]
    low = 10.0 ** math.floor(math.log10(min(numbers)))
    decades = math.log10(max(numbers) / low) or 1.0
    room, top, parts = _WIDTH - _LABEL - 70, 0, []
    for figure in figures:
        parts.append(
            f'<text x="0" y="{top + _BAR}">{html.escape(figure["step"])}</text>'
        )
        for kind, says, ms in _named(figure):
            wide = max(2.0, room * math.log10(ms / low) / decades)
            parts.append(
                f'<rect class="{kind}" x="{_LABEL}" y="{top}" width="{wide:.1f}" '
                f'height="{_BAR - 3}"><title>{says}: {ms:.4g} ms</title></rect>'
                f'<text x="{_LABEL + wide + 5:.1f}" y="{top + _BAR - 4}">'
                f"{ms:.3g}</text>"
            )
            top += _BAR
        top += 8
    return (
        f'<svg viewBox="0 0 {_WIDTH} {top}" role="img" '
        f'aria-label="milliseconds, {html.escape(work)}">{"".join(parts)}</svg>'
    )


def _named(figure: Mapping[str, Any]) -> Iterable[tuple[str, str, float]]:
    for kind, (field, says) in _KINDS.items():
        if field in figure:
            yield kind, says, figure[field]


_SAYS = (
    "Milliseconds of steps back to back, on a logarithmic scale. Grey: the fewest "
    "bytes that a step can move, at the speed of a large copy. Blue: jax_dynemb, whose "
    "ids are any 64 bits. Orange: a matrix in plain JAX, whose ids were numbered "
    "beforehand, and whose optimizer changes every row."
)
