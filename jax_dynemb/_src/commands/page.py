# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``inspect --html``: one page of some tables, with pictures, that loads nothing."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from rich.filesize import decimal

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src.engines.shard import PACKED
from jax_dynemb._src.rows import PIN, StoredTable, bucket_of, use_counts
from jax_dynemb._src.shown import html_table

_BINS, _TOP = 24, 20
_WIDTH, _HEIGHT = 360, 120
_LEFT = {
    "evicted": "evicted from full buckets",
    "evicted_young": "of those, younger than keep_for",
    "erased": "erased by the program",
    "removed_by_rule": "removed by a rule",
    "refused": "refused, because their bucket was full",
    "not_admitted": "not admitted by the table's rule",
    "lost_updates": "updates whose row had gone",
    "nonfinite": "updates skipped, not finite",
}


@dataclasses.dataclass(frozen=True)
class Content:
    """Holds what is read of a table for its page.

    Attributes:
      keys: int64[n].
      norms: float32[n], of the rows.
      scores: uint64[n].
    """

    keys: np.ndarray
    norms: np.ndarray
    scores: np.ndarray

    @classmethod
    def of(cls, table: StoredTable) -> Content:
        """Reads the rows chunk by chunk, and keeps 20 bytes of each."""
        parts: list[tuple[np.ndarray, ...]] = [(_none(np.int64), _none(np.float32))]
        scores = [_none(np.uint64)]
        for chunk in table.chunks():
            rows = np.asarray(chunk.rows).astype(np.float32)
            parts.append((chunk.keys, np.linalg.norm(rows, axis=1)))
            scores.append(np.asarray(chunk.scores, np.uint64) & ~PIN)
        keys, norms = (np.concatenate(x) for x in zip(*parts, strict=True))
        return cls(keys, norms, np.concatenate(scores))


def page(title: str, tables: Mapping[str, StoredTable]) -> str:
    """Returns the HTML of the page."""
    body = "".join(_section(name, table) for name, table in tables.items())
    return document(title, body)


def document(title: str, body: str) -> str:
    """Returns a page of a title and HTML, with the style of all pages."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{body}</body></html>\n"
    )


def histogram(title: str, numbers: np.ndarray, unit: str = "") -> str:
    """Draws how many numbers lie in each of equal parts of their range, as SVG."""
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return ""
    whole = numbers.dtype.kind in "iu"
    low, high = numbers.min(), numbers.max()
    bins: Any = _BINS
    if whole:  # parts of whole numbers, the last one may be shorter
        width = -(-(int(high) - int(low) + 1) // _BINS)
        bins = np.arange(int(low), int(high) + width + 1, width)
    counts, edges = np.histogram(numbers.astype(np.float64), bins)
    step, highest = _WIDTH / len(counts), max(1, counts.max())
    bars = []
    for i, count in enumerate(counts):
        tall = round(_HEIGHT * count / highest, 1)
        says = f"{_short(edges[i])} to {_short(edges[i + 1] - whole)}: {count:,}"
        bars.append(
            f'<rect x="{i * step:.1f}" y="{_HEIGHT - tall}" width="{step - 1:.1f}" '
            f'height="{tall}"><title>{says}</title></rect>'
        )
    median = _short(np.median(numbers))
    low, high = (_short(x) for x in (low, high))
    ends = (
        f'<text x="0" y="{_HEIGHT + 14}">{low}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 14}" text-anchor="end">{high} {unit}</text>'
    )
    return (
        f"<figure><figcaption>{html.escape(title)}, median {median}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 18}" role="img" '
        f'aria-label="{html.escape(title)}">{"".join(bars)}{ends}</svg></figure>'
    )


def _section(name: str, table: StoredTable) -> str:
    schema, content = table.schema, Content.of(table)
    slots = schema.num_buckets * _ffi.constants()["bucket_capacity"]
    load = f" ({len(content.keys) / slots:.1%} of {slots:,} slots)" if slots else ""
    facts = [
        ("rows", f"{len(content.keys):,}{load}"),
        ("columns", f"{schema.dim} of {schema.param_dtype}"),
        ("optimizer", " ".join([schema.optimizer.get("kind", ""), *schema.states])),
        ("scores by", schema.score_strategy or "-"),
    ]
    parts = [
        f"<h2>{html.escape(name)}</h2>",
        html_table(("table", ""), [*facts, *_bytes(table, len(content.keys))]),
        "<div>",
        _load(table, content),
        *_use(table, content),
        histogram("Norms of rows", content.norms),
        "</div>",
    ]
    if left := [
        (says, table.counters[n]) for n, says in _LEFT.items() if n in table.counters
    ]:
        rows = [(says, f"{count:,}") for says, count in left]
        parts.append(html_table(("what left, or never came", "ids"), rows))
    return "".join([*parts, _top(table, content)])


def _bytes(table: StoredTable, rows: int) -> Iterable[tuple[str, str]]:
    """Bytes of the rows by kind, as the table keeps them in memory."""
    schema = table.schema
    states = {
        n: 4 * rows * int(np.prod(s, dtype=int)) for n, s in schema.states.items()
    }
    yield from ((f"bytes of {name}", decimal(size)) for name, size in states.items())
    index = 17 * rows
    values = rows * schema.row_bytes - sum(states.values()) - index
    yield from (
        ("bytes of values", decimal(values)),
        ("bytes of index", decimal(index)),
    )


def _load(table: StoredTable, content: Content) -> str:
    schema = table.schema
    if not schema.num_buckets or not len(content.keys):
        return ""
    buckets = bucket_of(content.keys, schema.num_buckets, schema.hash_seed)
    held = np.bincount(buckets.astype(np.int64), minlength=schema.num_buckets)
    most = _ffi.constants()["bucket_capacity"]
    return histogram(f"Rows in a bucket of {most}", held)


def _use(table: StoredTable, content: Content) -> Iterable[str]:
    """Ages and frequencies, as far as the scores say them."""
    schema, scores = table.schema, content.scores
    if not len(scores):
        return
    if schema.score_strategy == "lfu":
        clock = table.counters.get("clock", 0)
        uses = use_counts(scores, schema.lfu_halflife or 0, clock)
        yield histogram("Uses of a row, log2", np.log2(np.maximum(uses, 1)))
    elif schema.score_strategy == "step":
        step = scores >> np.uint64(32) if "step" in PACKED else scores
        yield histogram("Lookups since a row was used", (step.max() - step).astype(int))
    elif schema.score_strategy == "timestamp":
        hours = (scores.max() - scores).astype(np.float64) / 3.6e12
        yield histogram("Hours since a row was used", hours)
    else:
        yield histogram("Scores", scores.astype(np.float64))


def _top(table: StoredTable, content: Content) -> str:
    """Lists the ids that would leave last, and those with the longest rows."""
    lists = {"highest score": content.scores, "longest row": content.norms}
    tables = []
    for says, numbers in lists.items():
        places = np.argsort(numbers, kind="stable")[::-1][:_TOP]
        rows = [
            (f"{content.keys[i]}", f"{content.norms[i]:.4g}", f"{content.scores[i]}")
            for i in places
        ]
        shown = html_table((f"ids of {says}", "norm", "score"), rows)
        tables.append(f"<details><summary>Ids of {says}</summary>{shown}</details>")
    return "".join(tables)


def _short(x: Any) -> str:
    return f"{x:,.4g}"


def _none(dtype: Any) -> np.ndarray:
    return np.empty(0, dtype)


_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;"
    "padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "td,th{border-bottom:1px solid #8884;padding:.2rem .8rem .2rem 0;text-align:left;"
    "font-variant-numeric:tabular-nums}"
    "div{display:flex;flex-wrap:wrap;gap:1.5rem}figure{margin:0;width:24rem}"
    "svg{width:100%}rect{fill:#4a7fb5}text{font-size:11px;fill:currentColor}"
    "rect.floor{fill:#8a99a8}rect.peer{fill:#c77d3a}"
)
