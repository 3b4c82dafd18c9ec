# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of the schemas in a checkpoint's JSON, before they are read."""

from __future__ import annotations

import dataclasses

from jax_dynemb._src.files.integrity import DamagedFileError, Fields
from jax_dynemb._src.rows import Schema

_MOST = 1 << 40  # of buckets, columns or parts


def check_schema(fields: Fields) -> None:
    """Checks what a file says about a table, before ``Schema.from_json`` reads it."""
    for field in dataclasses.fields(Schema):
        needed = field.name in ("name", "dim", "optimizer", "states")
        if not needed and field.name not in fields:
            continue  # of an earlier version
        if field.type == "int":
            fields.whole(field.name)
        elif field.type == "str":
            fields.text(field.name)
        else:
            fields.fields(field.name)
    for name in ("dim", "num_buckets", "places", "column_parts"):
        if name in fields and not 1 <= fields[name] < _MOST:
            raise DamagedFileError(fields.path, f"a table has {name}={fields[name]}")
    for name in ("place", "first_bucket", "first_row"):
        if name in fields and fields[name] >= _MOST:
            raise DamagedFileError(fields.path, f"a table has {name}={fields[name]}")
    fields.fields("optimizer").text("kind")
    states = fields.fields("states")
    for name in states:
        if len(states.wholes(name)) > 1:
            raise DamagedFileError(fields.path, f"the state {name!r} has several axes")
    for name in (initial := fields.fields("initial")) if "initial" in fields else ():
        initial.number(name)
    if not is_file_name(fields["name"]):
        raise DamagedFileError(fields.path, f"a table has the name {fields['name']!r}")


def is_file_name(name: str) -> bool:
    """Whether a table's name can begin that of a file, in its directory."""
    return name not in ("", ".", "..") and not {"/", "\0"} & set(name)
