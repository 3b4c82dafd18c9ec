# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON beside the arrays of a checkpoint, and what must hold in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jax_dynemb._src.files.checkpoint.checksums import of_checkpoint
from jax_dynemb._src.files.checkpoint.index import FIRST
from jax_dynemb._src.files.checkpoint.layout import ITEM, SCHEMA_FILE
from jax_dynemb._src.files.integrity import (
    DamagedFileError,
    Fields,
    check_version,
    is_whole,
    read_json,
)
from jax_dynemb._src.rows import Schema

_WORDS = 1 << 16  # more than a bucket can have


def read_fields(step_directory: Path) -> Mapping[str, Any]:
    """Reads the JSON beside the arrays, of this step and of a known version."""
    with of_checkpoint():
        fields = read_json(step_directory / ITEM / SCHEMA_FILE)
        check_version(fields)
        _check_step(fields, step_directory)
        tables = fields.fields("tables")
        for name in tables:
            check_schema(tables.fields(name))
        leaves = fields.fields("leaves")
        if not all(_is_leaf(leaves[name]) for name in leaves):
            raise DamagedFileError(fields.path, "a leaf has no shape and dtype")
        if "pieces" in fields and set(fields.texts("pieces")) - set(leaves):
            raise DamagedFileError(fields.path, "it has pieces of no leaf")
        if "index" in fields:
            _check_layout(fields.fields("index"))
    return fields


def _check_step(fields: Fields, step_directory: Path) -> None:
    """Two steps that were exchanged would restore the wrong one in silence."""
    name = step_directory.name
    if "step" in fields and name.isdecimal() and fields.whole("step") != int(name):
        problem = f"it was saved as step {fields['step']}, but its directory is {name}"
        raise DamagedFileError(fields.path, problem)


def _is_leaf(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    shape, dtype = value
    return isinstance(shape, list) and all(map(is_whole, shape)) and type(dtype) is str


def _check_layout(layout: Fields) -> None:
    numbers = {name: layout.whole(name, _WORDS) for name in FIRST}
    last = numbers["slot_words"] * (numbers["bucket_capacity"] - 1) + 1
    if "given_words" in layout:
        layout.whole("given_words", _WORDS)
        if layout["given_words"] != 2 * numbers["bucket_capacity"]:
            problem = "its custom scores are not two words a slot"
            raise DamagedFileError(layout.path, problem)
    for name in ("keys_word", "scores_word"):
        if numbers[name] + last >= numbers["bucket_words"]:
            problem = f"its index has {name}={numbers[name]}, beyond a bucket"
            raise DamagedFileError(layout.path, problem)


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
