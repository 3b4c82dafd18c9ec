# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Short forms of dataclasses, for a prompt and for a notebook.

An array is its dtype and shape, since the numbers of a table fill pages and printing
them would wait for the device.
"""

from __future__ import annotations

import dataclasses
import enum
import html
from collections.abc import Iterable, Mapping
from typing import Any

import jax


class Shown:
    """Gives a dataclass a short repr of what differs from the defaults.

    The dataclass is declared with ``repr=False``, else its own repr comes first.
    """

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={short(x)}" for name, x in _told(self))
        return f"{type(self).__name__}({fields})"

    def _repr_html_(self) -> str:
        """Shows the same as a table, in a notebook."""
        from rich.filesize import decimal  # few programs show anything

        rows = [(name, short(x)) for name, x in _told(self)]
        size = _bytes_of(self)
        if size:
            rows.append(("bytes", decimal(size)))
        return html_table((type(self).__name__, ""), rows)


class ShownStats(dict):
    """Is a dict of counters by "table/name", with a table of them in a notebook."""

    def _repr_html_(self) -> str:
        """Shows a line for each counter, and a column for each table."""
        pairs = [key.rpartition("/")[::2] for key in self]
        tables, names = (list(dict.fromkeys(part)) for part in zip(*pairs, strict=True))
        rows = [
            (name, *(_number(self.get(f"{table}/{name}")) for table in tables))
            for name in names
        ]
        return html_table(("", *tables), rows)


# A dict of another class would be a leaf to JAX.
jax.tree_util.register_pytree_with_keys(
    ShownStats,
    lambda s: (
        tuple((jax.tree_util.DictKey(k), s[k]) for k in sorted(s)),
        tuple(sorted(s)),
    ),
    lambda keys, values: ShownStats(zip(keys, values, strict=True)),
)


def _number(x: Any) -> str:
    if x is None:
        return ""
    return f"{x:,.4g}" if isinstance(x, float) else f"{x:,}"


def short(x: Any) -> str:
    """Describes a value in few words; arrays without their numbers."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{x.dtype}[{', '.join(map(str, x.shape))}]"
    if isinstance(x, enum.Enum):
        return repr(x.value)
    if isinstance(x, Mapping):
        return "{" + ", ".join(f"{k!s}: {short(v)}" for k, v in x.items()) + "}"
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return Shown.__repr__(x)  # pyright: ignore[reportArgumentType]
    if (fields := getattr(x, "_asdict", None)) is not None:  # a NamedTuple
        return type(x).__name__ + short(fields())
    if isinstance(x, tuple):
        inner = ", ".join(map(short, x)) + ("," if len(x) == 1 else "")
        return f"({inner})"
    return repr(x)


def html_table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Returns an HTML table; all text is escaped."""
    line = "".join(f"<th>{html.escape(str(x))}</th>" for x in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(x))}</td>" for x in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{line}</tr></thead><tbody>{body}</tbody></table>"


def _told(x: Any) -> list[tuple[str, Any]]:
    """Lists the fields that differ from the defaults; secrets are left out."""
    told = []
    for field in dataclasses.fields(x):
        value = getattr(x, field.name)
        default = field.default
        if default is dataclasses.MISSING and field.default_factory is not default:
            default = field.default_factory()
        if default is dataclasses.MISSING and value is None:
            continue
        same = type(value) is type(default) and not hasattr(value, "shape")
        if field.repr and not (same and value == default):
            told.append((field.name, value))
    return told


def _bytes_of(x: Any) -> int:
    values = x.values() if isinstance(x, Mapping) else [v for _, v in _told(x)]
    total = 0
    for value in values:
        if isinstance(value, Mapping) or dataclasses.is_dataclass(value):
            total += _bytes_of(value)
        total += getattr(value, "nbytes", 0) if hasattr(value, "shape") else 0
    return total
