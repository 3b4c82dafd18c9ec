# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Reads MovieLens atomic files: a folder with one .inter, .user and .item file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .clicks import Clicks, Source, hash_column, hash_lists, split_by_time

LIKED = 4.0  # a rating from here on counts as a click

DEFAULTS = {"epochs": 3, "capacity": 8192}

Columns = dict[str, list[str]]


def load(folder: Path) -> Source:
    """Reads a folder of atomic files into ratings cut 90/10 by time.

    Every feature is known before the rating is given: who, what, and what is said about
    both. Nothing is computed from ratings.

    Raises:
      ValueError: a file or a column is missing.
    """
    ratings = _read_one(folder, "inter", ("user_id", "item_id", "rating", "timestamp"))
    users = _read_one(
        folder, "user", ("user_id", "age", "gender", "occupation", "zip_code")
    )
    items = _read_one(folder, "item", ("item_id", "release_year", "class"))
    clicks = _join(ratings, users, items)
    title = f"MovieLens, {len(clicks):,} ratings, like = rating of 4 or more"
    return Source(title, (split_by_time(clicks),), shuffle=True, defaults=DEFAULTS)


def _join(ratings: Columns, users: Columns, items: Columns) -> Clicks:
    order = np.argsort(
        np.asarray(ratings["timestamp"], dtype=np.float64), kind="stable"
    )
    user_ids = np.asarray(ratings["user_id"])[order]
    item_ids = np.asarray(ratings["item_id"])[order]
    stars = np.asarray(ratings["rating"], dtype=np.float64)[order]
    user_row = _rows_of(users["user_id"], user_ids)
    item_row = _rows_of(items["item_id"], item_ids)
    ids = {"user": hash_column("user", user_ids), "item": hash_column("item", item_ids)}
    for feature, column in _about_users(users).items():
        ids[feature] = hash_column(feature, column)[user_row]
    ids["year"] = hash_column("year", items["release_year"])[item_row]
    ids["genre"] = hash_lists("genre", items["class"])[item_row]
    return Clicks.make(ids, stars >= LIKED)


def _about_users(users: Columns) -> Columns:
    return {
        "age": [age and str(int(float(age)) // 5) for age in users["age"]],
        "gender": users["gender"],
        "occupation": users["occupation"],
        "zip": [code[:2] for code in users["zip_code"]],
    }


def _rows_of(known: list[str], wanted: np.ndarray) -> np.ndarray:
    row = {name: number for number, name in enumerate(known)}
    try:
        return np.asarray([row[name] for name in wanted.tolist()])
    except KeyError as error:
        raise ValueError(
            f"id {error} is rated but has no line in the .user or .item file; "
            "add the line or drop the rating."
        ) from None


def _read_one(folder: Path, ending: str, needed: tuple[str, ...]) -> Columns:
    found = sorted(folder.glob(f"*.{ending}"))
    if len(found) != 1:
        raise ValueError(
            f"{folder} holds {len(found)} .{ending} files; give --data a folder with "
            "exactly one .inter, one .user and one .item file."
        )
    columns = _read(found[0])
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(f"{found[0].name} has no column {', '.join(missing)}.")
    return columns


def _read(path: Path) -> Columns:
    lines = path.read_text(encoding="utf-8").splitlines()
    names = [column.split(":")[0] for column in lines[0].split("\t")]
    rows = [line.split("\t") for line in lines[1:] if line]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise ValueError(
                f"{path.name}, line {number}: {len(row)} columns instead of "
                f"{len(names)}."
            )
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}
