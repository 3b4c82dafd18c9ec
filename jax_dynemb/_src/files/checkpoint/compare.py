# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Compares a checkpoint with a model, and reports each difference in one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jax_dynemb._src.files.checkpoint.index import (
    has_fewer_counters,
    is_like_now,
    lacks_given,
    layout_of,
)
from jax_dynemb._src.files.checkpoint.save_tree import describe
from jax_dynemb._src.files.checkpoint.tree import Path, TableNode
from jax_dynemb._src.rows import Schema


@dataclasses.dataclass
class Plan:
    """How each leaf is restored."""

    # Leaves that orbax reads as they are.
    directly: list[Path] = dataclasses.field(default_factory=list)
    # Those of them that belong to tables.
    donated: list[Path] = dataclasses.field(default_factory=list)
    # Tables whose rows are inserted again.
    again: list[Path] = dataclasses.field(default_factory=list)
    # For each of these, what does not come from the checkpoint: "optimizer", "scores".
    anew: dict[Path, set[str]] = dataclasses.field(default_factory=dict)
    # Sketches and logs of tables that begin again.
    emptied: list[Path] = dataclasses.field(default_factory=list)
    # Counters of earlier versions, with the shapes that they were saved in.
    padded: dict[Path, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)


def plan(
    saved: Mapping[Path, Schema],
    fields: Mapping[str, Any],
    leaves: Mapping[Path, Any],
    nodes: Mapping[Path, TableNode],
    trains: Collection[Path],
    strict: bool,
) -> Plan:
    """Plans how each leaf is restored; ValueError if ``strict`` or no way allows it."""
    result = Plan()
    _tables_of_one_side(saved, nodes, strict, result)
    # In one order in all processes: each table that is filled again is a collective.
    for path in sorted(nodes.keys() & saved.keys()):
        _compare_table(path, saved[path], nodes[path], strict, result)
    fewer = has_fewer_counters(layout_of(fields))
    other = not is_like_now(layout_of(fields)) and not fewer
    for path in sorted(nodes.keys() & saved.keys() - set(result.again)):
        if not other and not lacks_given(layout_of(fields), saved[path].score_strategy):
            continue
        result.again.append(path)
        result.anew[path] = set()
        result.notes.append(
            f"Table '{_spelled(path)}' was saved by a version with another index "
            "or other counters: its rows were inserted again."
        )
    arrays = {node.arrays for node in nodes.values()}
    _all_or_none(saved, nodes, result)
    for path, leaf in leaves.items():
        above = next((a for a in arrays if path[: len(a)] == a), None)
        tables = [t for t, node in nodes.items() if node.arrays == above]
        if path in trains:
            _compare_counters(path, leaf, fields["leaves"], result, axis=0)
        elif above is None:
            _compare_leaf(path, leaf, fields["leaves"], result)
        elif again := [t for t in tables if t in result.again]:
            once = path[len(above)] == "extra"
            if once and "optimizer" not in result.anew[again[0]]:
                _compare_leaf(path, leaf, fields["leaves"], result)
        elif not any(t in saved for t in tables):
            continue
        elif path[len(above)] == "sketch" and not (
            _is_saved(path, leaf, fields) and _counts_alike(tables, saved, nodes)
        ):
            result.emptied.append(path)  # see carry_counts
        elif path[len(above)] == "removed" and not _is_saved(path, leaf, fields):
            result.emptied.append(path)
            result.notes.append(
                f"'{_spelled(path)}' was saved with another size or not at all: the "
                "log of removed keys begins again, so the next delta compares keys."
            )
        elif path[len(above)] == "counters" and fewer:
            _compare_counters(path, leaf, fields["leaves"], result, axis=1)
            result.donated.append(path)
        else:
            _compare_leaf(path, leaf, fields["leaves"], result)
            result.donated.append(path)
    _note_passed_over(saved, leaves, fields, result)
    return result


def _note_passed_over(
    saved: Mapping[Path, Schema],
    leaves: Mapping[Path, Any],
    fields: Mapping[str, Any],
    result: Plan,
) -> None:
    """Notes arrays beside the tables that were saved, but are not in the tree."""
    tables = [(*path[:-1], schema.arrays or path[-1]) for path, schema in saved.items()]
    rest = [
        "/".join(path)
        for path in (tuple(name.split("/")) for name in fields["leaves"])
        if path not in leaves and not any(path[: len(t)] == t for t in tables)
    ]
    if rest:
        some = ", ".join(rest[:3]) + (", ..." if len(rest) > 3 else "")
        result.notes.append(
            f"Arrays of the checkpoint that this tree lacks were passed over: {some}."
        )


def _tables_of_one_side(
    saved: Mapping[Path, Any], nodes: Mapping[Path, Any], strict: bool, result: Plan
) -> None:
    missing, extra = nodes.keys() - saved.keys(), saved.keys() - nodes.keys()
    sentences = [
        f"The checkpoint has no table '{_spelled(path)}', which this model has"
        for path in sorted(missing)
    ] + [
        f"The checkpoint has a table '{_spelled(path)}', which this model lacks"
        for path in sorted(extra)
    ]
    for sentence in sentences:
        if strict:
            raise ValueError(f"{sentence}. Pass strict=False to restore the others.")
        result.notes.append(f"{sentence}.")


def _compare_table(
    path: Path, saved: Schema, node: TableNode, strict: bool, result: Plan
) -> None:
    now = node.schema
    name = _spelled(path)
    for field in ("dim", "key_dtype"):
        before, after = getattr(saved, field), getattr(now, field)
        if before != after:
            raise ValueError(
                f"Table '{name}' was saved with {field}={before!r}, but this model has "
                f"{field}={after!r}: its rows can not be restored."
            )
    anew = set()
    if _kept(saved) != _kept(now):
        anew.add("optimizer")
        _only_if_not_strict(
            f"Table '{name}' was saved with the optimizer states {_states(saved)}, "
            f"but this model's optimizer keeps {_states(now)}",
            "restore the rows and let the optimizer start anew",
            strict,
            result,
        )
    elif _changes_its_kind(saved, now):
        result.notes.append(
            f"Table '{name}' was saved with the optimizer {saved.optimizer['kind']}, "
            f"but this model has {now.optimizer['kind']}. The states of both have the "
            "same names and shapes: they are kept as they are."
        )
    if _unit(saved) != _unit(now):
        anew.add("scores")
        _only_if_not_strict(
            f"Table '{name}' was saved with {_scored_by(saved)}, but this model has "
            f"{_scored_by(now)}",
            "restore the rows and score them as new",
            strict,
            result,
        )
    if saved.num_buckets != now.num_buckets:
        why = f"has {now.num_buckets} buckets instead of {saved.num_buckets}"
    elif saved.param_dtype != now.param_dtype:
        why = f"stores {now.param_dtype} instead of {saved.param_dtype}"
    elif saved.state_dtype != now.state_dtype and "optimizer" not in anew:
        why = f"stores {_stored(now)} instead of {_stored(saved)}"
    elif saved.hash_seed != now.hash_seed:
        why = "was saved with another hash_seed"
    elif anew or _place(saved) != _place(now):
        why = ""
    else:
        return
    if why:
        result.notes.append(f"Table '{name}' {why}: its rows were inserted again.")
    result.again.append(path)
    result.anew[path] = anew


def _changes_its_kind(saved: Schema, now: Schema) -> bool:
    """Tells whether states go from one known optimizer to another."""
    kinds = {schema.optimizer.get("kind", "") for schema in (saved, now)}
    return len(kinds) == 2 and "" not in kinds and bool(_kept(now))


def _place(schema: Schema) -> Any:
    """Where in which arrays the table is."""
    place = schema.place, schema.places, schema.column_parts
    return schema.arrays, place, schema.first_bucket, schema.first_row


def _all_or_none(
    saved: Mapping[Path, Any], nodes: Mapping[Path, TableNode], result: Plan
) -> None:
    """Where one table of some arrays is inserted again, or not at all, all are."""
    again = {nodes[path].arrays for path in result.again}
    again |= {node.arrays for path, node in nodes.items() if path not in saved}
    for path in nodes.keys() & saved.keys():
        if nodes[path].arrays in again and path not in result.again:
            result.again.append(path)
            result.anew[path] = set()


def _only_if_not_strict(sentence: str, what: str, strict: bool, result: Plan) -> None:
    if strict:
        raise ValueError(f"{sentence}. Pass strict=False to {what}.")
    result.notes.append(f"{sentence}.")


def _unit(schema: Schema) -> tuple[str, int]:
    """Returns what a score counts; without eviction a score counts steps."""
    strategy = schema.score_strategy
    return "step" if strategy == "no_eviction" else strategy, schema.lfu_halflife


def _scored_by(schema: Schema) -> str:
    strategy = f"score_strategy={schema.score_strategy!r}"
    halflife = schema.lfu_halflife
    return f"{strategy} and lfu_halflife={halflife}" if halflife else strategy


def _kept(schema: Schema) -> Any:
    """An optax optimizer stores more than its states, a fused one does not."""
    return schema.states, schema.optimizer["kind"] == "optax"


def _states(schema: Schema) -> str:
    kept = [f"{name}{list(shape)}" for name, shape in schema.states.items()]
    return f"{', '.join(kept) or 'none'} ({schema.optimizer['kind']})"


def _stored(schema: Schema) -> str:
    dtypes = {name: schema.state_dtype.get(name, "float32") for name in schema.states}
    return ", ".join(f"{name} as {dtype}" for name, dtype in dtypes.items())


def _counts_alike(
    tables: Sequence[Path],
    saved: Mapping[Path, Schema],
    nodes: Mapping[Path, TableNode],
) -> bool:
    """Whether counters of tables were of the kind that they are; at first sketches."""

    def kind(schema: Schema) -> str:
        return schema.config.get("counter", "sketch")

    return all(kind(saved[t]) == kind(nodes[t].schema) for t in tables if t in saved)


def _is_saved(path: Path, leaf: Any, fields: Mapping[str, Any]) -> bool:
    """Whether the checkpoint has a leaf of the same shape and dtype."""
    return fields["leaves"].get(_spelled(path)) == describe(leaf)


def _compare_leaf(
    path: Path, leaf: Any, saved: Mapping[str, Any], result: Plan
) -> None:
    name = _spelled(path)
    if name not in saved:
        raise ValueError(
            f"The checkpoint has no '{name}', which this model has. Restore into the "
            "structure that was saved."
        )
    before, after = saved[name], describe(leaf)
    if before != after:
        raise ValueError(
            f"'{name}' was saved as {before[1]}{before[0]}, but this model has "
            f"{after[1]}{after[0]}."
        )
    result.directly.append(path)


def _compare_counters(
    path: Path, leaf: Any, saved: Mapping[str, Any], result: Plan, axis: int
) -> None:
    """Counters of an earlier version are followed by zeros."""
    found = saved.get(_spelled(path))
    now = tuple(leaf.shape)
    before = tuple[int, ...](() if found is None else found[0])
    rest, same = (x[:axis] + x[axis + 1 :] for x in (before, now))
    fewer = len(before) == len(now) and before[axis] < now[axis]
    if not fewer or rest != same:
        _compare_leaf(path, leaf, saved, result)  # says what differs
        return
    result.directly.append(path)
    result.padded[path] = before
    result.notes.append(
        f"'{_spelled(path)}' was saved by a version with fewer counters: those that "
        "came since start at 0."
    )


def _spelled(path: Path) -> str:
    return "/".join(path)
