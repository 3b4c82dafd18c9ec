# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names of tables and features: which ones files, metrics and dicts can hold.

A table's name begins the names of its files and of its metrics. So what a directory
cannot hold, or what reads as another file, is refused when the table is declared.
"""

from __future__ import annotations

import re
import reprlib
import unicodedata
import zlib
from typing import Any

# A directory entry has 255 bytes. The longest of ours are those of DynamicEmb's dumps,
# ``_emb_opt_values.rank_<r>.world_size_<n>``, and drafts add 30 bytes to a name.
MOST_BYTES = 180
_SUFFIX_BYTES = 10  # of a fitting name that was cut: "_" and a checksum, or "_residual"
_DELTA = re.compile(r"\.delta-[0-9]{6,}$")
_DRAFT = ".tmp-"
_SEPARATORS = "/\\"


def table_name_problem(name: str, most: int = MOST_BYTES) -> str | None:
    """Says why a text cannot name a table of ``most`` bytes of UTF-8; else None."""
    if not name:
        return "a name needs one character or more"
    if name in (".", ".."):
        return f"{name!r} is a directory, and files of the table would be in it"
    if used := [c for c in _SEPARATORS if c in name]:
        return (
            f"a name must not contain {used[0]!r}, which separates folders in paths "
            "and names in stats()"
        )
    if problem := _character_problem(name):
        return problem
    if _DELTA.search(name):
        return "a name must not end as the files of deltas do, in '.delta-000001'"
    if _DRAFT in name:
        return f"a name must not contain {_DRAFT!r}, which marks unfinished files"
    if (size := len(name.encode())) > most:
        return (
            f"a name may have {most} bytes of UTF-8, not {size}: a file's name has "
            "255, and formats append to it"
        )
    return None


def fitting_table_name(name: str, most: int = MOST_BYTES) -> str:
    """Returns the nearest name that ``table_name_problem`` takes."""
    fitting = "".join("_" if _is_bad(c) or c in _SEPARATORS else c for c in name)
    fitting = _DELTA.sub(lambda match: match[0].replace(".", "_"), fitting)
    fitting = fitting.replace(_DRAFT, "_tmp-")
    if fitting.strip(".") == "":
        return "table"
    if len(fitting.encode()) <= most:
        return fitting
    mark = f"_{zlib.crc32(name.encode(errors='surrogatepass')):08x}"
    return fitting.encode()[: most - _SUFFIX_BYTES].decode(errors="ignore") + mark


def check_table_name(kind: str, name: Any, most: int = MOST_BYTES) -> None:
    """Refuses what cannot name a table; the message says a name that can."""
    if not isinstance(name, str):
        fitting = str(name) if isinstance(name, (int, float, bytes)) else ""
        raise ValueError(
            f"{kind} needs a name of one character or more, not {_shown(name)}: write "
            f"name={fitting_table_name(fitting, most)!r}"
        )
    if problem := table_name_problem(name, most):
        raise ValueError(
            f"Table {_shown(name)}: {problem}; write "
            f"name={fitting_table_name(name, most)!r}"
        )


def feature_name_problem(names: tuple[Any, ...]) -> str | None:
    """Says which of some features has a name that is none; None if all have one.

    Feature names are keys of dicts and no files, so separators are welcome.
    """
    for name in names:
        if not isinstance(name, str):
            fitting = str(name) if isinstance(name, (int, float, bytes)) else "feature"
            return f"feature_names must be texts, not {_shown(name)}; write {fitting!r}"
        problem = _character_problem(name) if name else "a name needs a character"
        if problem:
            fitting = "".join("_" if _is_bad(c) else c for c in name) or "feature"
            return f"feature {_shown(name)}: {problem}; write {fitting!r}"
    return None


def _character_problem(name: str) -> str | None:
    bad = next((c for c in name if _is_bad(c)), None)
    return None if bad is None else f"a name must not contain the character {bad!r}"


def _is_bad(character: str) -> bool:
    """Whether it is a control character, or half of a pair that UTF-8 cannot hold."""
    return unicodedata.category(character) in ("Cc", "Cs")


def _shown(name: Any) -> str:
    if not isinstance(name, str):
        return reprlib.repr(name)
    return repr(name) if len(name) <= 40 else f"{name[:40]!r}..."
