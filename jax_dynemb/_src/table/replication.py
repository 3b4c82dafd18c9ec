# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The operations of ``Tables`` that keep a replica up to date. Not for use in jit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.engines import LookupEngine, States, shard
from jax_dynemb._src.ids import PADDING
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.kept_jit import kept_jit
from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.ops import (
    TableState,
    log_heads,
    on_host,
    placed_like,
    read_log,
)
from jax_dynemb._src.rows import Exported, Identity, check_ancestor
from jax_dynemb._src.table import arguments as _arguments
from jax_dynemb._src.table import chunks as _chunks
from jax_dynemb._src.table.marks import (
    Delta,
    Head,
    Mark,
    Stream,
    check_continues,
    check_mark,
)
from jax_dynemb._src.table.reading import Reading

# Later lookups and updates of a table depend on these, beside its rows.
_CARRIED = ("seed", "step", "clock", "lookups")


class Replication(Reading):
    """Exports what changed in tables, and applies it elsewhere."""

    def take_removed(
        self, state: States, table: str, since_head: Iterable[int] | None = None
    ) -> tuple[np.ndarray | None, Head]:
        """Reads which keys a table has lost, from its log of removed keys.

        A key that was removed and has a row again is left out. The log is only read:
        several readers may keep heads of their own.

        Args:
          state: the tables.
          table: one with ``log_removed``.
          since_head: what an earlier call returned; None: since the table was made.

        Returns:
          Keys int64[n], ascending; and the head, for the next call. None instead of
          keys if the log does not reach back so far. Newer keys have overwritten some
          then, or the table was cleared, restored into another log, or grew into more
          parts. ``export(known_keys=...)`` finds the keys in that case.

        Raises:
          TypeError: ``since_head`` is no head.
          ValueError: the table has no log.

        Example:
          >>> keys, head = coll.take_removed(state, "cat", head)  # doctest: +SKIP
        """
        _arguments.check_states(self.engine, state, "take_removed")
        _arguments.check_values(state, "take_removed")
        config = self.engine.catalog.dynamic_table(table, "take_removed")
        if not config.log_removed:
            raise ValueError(
                f"Table '{config.name}' has no log of removed keys: set "
                "TableConfig(log_removed=n), or pass export the known_keys."
            )
        name = config.name
        _arguments.check_sizes(self.engine, state, [name], "take_removed")
        keys, head = read_log_since(self, state, name, since_head)
        if keys is not None:
            keys = keys[~_stored(self, state, name, keys)]
        return keys, head

    def export_delta(
        self,
        state: States,
        since: Mapping[str, Mark] | None = None,
        *,
        known_keys: Mapping[str, np.ndarray] | None = None,
        tables: Iterable[str] | None = None,
    ) -> tuple[dict[str, Delta], dict[str, Mark]]:
        """Exports what changed in some tables since their marks, and the next marks.

        All marks and rows are of this one state. A row counts as changed if a lookup
        or an insert used it, so call this between an update and the next lookup.
        ``scatter``, ``decay`` and lookups with ``touch=False`` use no row. Removed keys
        come from the log where the table has one that reaches back to the mark.

        Store the marks with each checkpoint of the tables. Deltas after a restore then
        go on from there, and a replica that is ahead refuses them. A mark that the
        state does not come out of is refused: of another run, or of later than the
        checkpoint that was restored.

        Args:
          state: the tables. Read the deltas before it is donated.
          since: by table, what the call before returned; a table that is not there is
            exported whole.
          known_keys: by table, the keys int64[n] that the replica holds. For tables
            without a log, and for the case that it does not reach back.
          tables: only these; all hash tables if None.

        Returns:
          A delta by table, which reads the state whenever it is iterated over; and the
          mark at its end.

        Raises:
          TypeError: a mark is no ``jde.Mark``, or known keys are no whole numbers.
          ValueError: a mark is of another run or history than its table, or nothing
            says which keys are gone.

        Example:
          >>> deltas, marks = coll.export_delta(state, marks)  # doctest: +SKIP
        """
        _arguments.check_states(self.engine, state, "export_delta")
        _arguments.check_values(state, "export_delta")
        dynamic = self.engine.catalog.dynamic
        for what, each in {"since": since, "known_keys": known_keys}.items():
            if each is not None:
                name = f"export_delta: {what}"
                _arguments.check_mapping(each, name, "table", dynamic)
                for table in each:
                    self.engine.catalog.dynamic_table(table, name)
        for table, mark in (since or {}).items():
            check_mark(mark, f"export_delta: the mark of table '{table}'")
        names = list(dynamic if tables is None else tables)
        _arguments.check_sizes(self.engine, state, names, "export_delta")
        clocks = self.get_score(state)
        deltas = {}
        for name in names:
            config = self.engine.catalog.dynamic_table(name, "export_delta")
            mark = (since or {}).get(config.name)
            known = (known_keys or {}).get(config.name)
            deltas[config.name] = _delta(
                self, state, config.name, mark, known, clocks[config.name]
            )
        return deltas, {name: delta.until for name, delta in deltas.items()}

    def apply_delta(
        self,
        state: States,
        table: str,
        delta: Iterable[Exported],
        *,
        at: Mark | None = None,
    ) -> States:
        """Brings a replica up to date. Not for use inside jit.

        Its capacity may differ, but a smaller replica may have no room for a row. A
        ``jde.Delta`` also brings what later steps depend on: the count of updates, the
        clock, the seed, and what an optax optimizer stores once. So a replica with the
        same config trains on as the original does. An iterable of chunks has rows and
        their optimizer states only. Counts of ids that wait for admission stay behind.

        Args:
          state: the replica; the table's arrays are donated.
          table: which one.
          delta: of ``export_delta``; or what ``export`` of the original streams, in
            its order.
          at: where the replica is: the ``until`` of the delta before; None: it has no
            rows. Compared with a delta of ``export_delta`` before anything changes.

        Raises:
          TypeError: ``at`` is no mark, or the delta does not consist of exported rows.
          ValueError: a delta is missing before this one, or it is out of order.
        """
        _arguments.check_states(self.engine, state, "apply_delta")
        _arguments.check_values(state, "apply_delta")
        name = self.engine.catalog.dynamic_table(table, "apply_delta").name
        if at is not None:
            check_mark(at, "apply_delta: at")
        if isinstance(delta, Delta):
            check_continues(name, delta, at)
        arrays = self.engine.state_name(name)
        _arguments.check_sizes(self.engine, state, [name], "apply_delta")
        new = state[arrays]
        for chunk in _chunks_of(name, delta):
            if chunk.removed is not None:
                new = _chunks.erase_keys(self, name, new, chunk.removed)
            new = _chunks.insert_chunks(self, name, new, [chunk])
        if isinstance(delta, Delta):
            new = _with_counters(self, name, new, delta)
        return state | {arrays: new}


def _chunks_of(table: str, delta: Any) -> Iterator[Exported]:
    """Streams the chunks of a delta, and refuses what is none before any is applied."""
    is_dict = isinstance(delta, Mapping) or not isinstance(delta, Iterable)
    if is_dict or isinstance(delta, (Exported, str)):
        raise TypeError(
            f"apply_delta takes what export_delta returned for table '{table}', "
            f"deltas['{table}'], or a list of what export streams, not "
            f"{kind_of(delta)}."
        )
    for chunk in delta:
        if not isinstance(chunk, Exported):
            raise TypeError(
                f"apply_delta: a chunk of table '{table}' is {kind_of(chunk)}, not "
                "what export or export_delta streams."
            )
        yield chunk


def _with_counters(
    coll: Reading, name: str, state: TableState, delta: Delta
) -> TableState:
    """Takes over what the table that a delta is of depends on, beside its rows."""
    rows = coll.hash_engine.counter_rows(name)
    new = shard.set_counters(state, delta.counters or {}, rows)
    types = [(each.shape, each.dtype) for each in new.extra]
    if types != [(each.shape, each.dtype) for each in delta.extra]:
        return new  # of another optimizer, which starts fresh
    pairs = zip(delta.extra, new.extra, strict=True)
    extra = tuple(placed_like(given, old) for given, old in pairs)
    return dataclasses.replace(new, extra=extra)


def identity_in(coll: Reading, state: States, name: str) -> Identity | None:
    """Reads which table, run and moment a state is of; waits for the device."""
    return Identity.of(
        on_host(coll.hash_engine.with_own_counters(state, name).counters)
    )


def log_head(coll: Reading, state: States, name: str) -> Head | None:
    """Reads where the log of removed keys of a table is; None if it has none."""
    if not coll.tables[name].log_removed:
        return None
    return _head_of(coll, state, name, coll.hash_engine.removed_log(state, name))


def _head_of(coll: Reading, state: States, name: str, log: np.ndarray) -> Head:
    own = coll.hash_engine.with_own_counters(state, name)
    stamp = shard.counter_values(own)["stamp"]
    return (stamp, log.shape[1] - 1, *log_heads(log).tolist())


def with_removed(
    coll: Reading, state: States, name: str, since: int, removed: np.ndarray
) -> Iterator[Exported]:
    """Streams removed keys first, then the rows that changed since a clock."""
    config = coll.tables[name]
    yield Exported(
        keys=np.empty(0, np.int64),
        rows=np.empty((0, config.dim), jnp.dtype(config.param_dtype)),
        scores=np.empty(0, np.uint64),
        optimizer_state={
            state: np.empty((0, *spec.shape), spec.dtype)
            for state, spec in config.states.items()
        },
        removed=removed,
    )
    yield from coll.export(state, name, since=since)


def read_log_since(
    coll: Reading,
    state: States,
    name: str,
    since_head: Iterable[int] | None,
    own: np.ndarray | None = None,
) -> tuple[np.ndarray | None, Head]:
    """Reads the keys that were removed since a head, also those that are back.

    Args:
      coll: the tables.
      state: their state.
      name: of the table.
      since_head: where a reader was; None: nowhere.
      own: bool[n], the logs that are read; all if None.
    """
    log = coll.hash_engine.removed_log(state, name)
    head = _head_of(coll, state, name, log)
    since = None if since_head is None else _numbers_of(since_head)
    heads = None if since is None else np.array(since[2:], np.uint64)
    read = slice(None) if own is None or own.all() else own
    keys = read_log(log[read], None if heads is None else heads[read])
    if since is not None and since[:2] != head[:2]:
        keys = None
    return keys, head


def _numbers_of(head: Any) -> Head:
    """Returns a head as its numbers; TypeError if it is none."""
    numbers: tuple[Any, ...] = tuple(head) if isinstance(head, Iterable) else ("",)
    if not all(is_whole(n) and 0 <= n < 1 << 64 for n in numbers):
        raise TypeError(
            f"since_head must be what an earlier take_removed returned, not {head!r}; "
            "None reads the whole log."
        )
    return numbers


def _delta(
    coll: Replication,
    state: States,
    name: str,
    since: Mark | None,
    known: np.ndarray | None,
    clock: int,
) -> Delta:
    removed, head = None, log_head(coll, state, name)
    identity = identity_in(coll, state, name)
    until = Mark.after(since, name, clock, head, identity)
    counters = shard.counter_values(coll.hash_engine.with_own_counters(state, name))
    whole = Delta(
        name,
        since,
        until,
        Stream(lambda: coll.export(state, name)),
        {each: counters[each] for each in _CARRIED},
        tuple(on_host(each) for each in state[coll.state_name(name)].extra),
    )
    if since is None:
        return whole
    _check_since(name, since, until)
    if head is not None and since.head is not None:
        removed, _ = coll.take_removed(state, name, since.head)
    begin = since.clock
    if removed is not None:
        gone = removed
        stream = Stream(lambda: with_removed(coll, state, name, begin, gone))
    elif known is not None:
        stream = Stream(lambda: coll.export(state, name, since=begin, known_keys=known))
    else:
        raise ValueError(
            f"Table '{name}': nothing says which keys it has lost since the mark: it "
            f"has log_removed={coll.tables[name].log_removed}, or its log does not "
            "reach back. Pass known_keys=, the keys of the replica; or export the "
            "table whole, without its mark, and raise log_removed."
        )
    return dataclasses.replace(whole, chunks=stream)


def _check_since(name: str, since: Mark, now: Mark) -> None:
    """Refuses a mark that a table does not come out of.

    Keys that were erased leave no trace but in the log: its heads are compared too.
    """
    fix = "Export the table whole: leave it out of since=."
    try:
        check_ancestor(now.identity, since.identity, f"Table '{name}': the mark")
    except ValueError as error:
        raise ValueError(f"{error} {fix}") from None
    if since.clock > now.clock:
        raise ValueError(
            f"Table '{name}': the mark is at clock {since.clock}, but the table at "
            f"{now.clock}: an older checkpoint was restored since. {fix}"
        )
    if _is_ahead(since.head, now.head):
        raise ValueError(
            f"Table '{name}': more keys had been removed at the mark than now: an "
            f"older state is in use since. {fix}"
        )


def _is_ahead(mark: Head | None, now: Head | None) -> bool:
    """Whether a head is of the same log, and of later."""
    if mark is None or now is None or len(mark) != len(now) or mark[:2] != now[:2]:
        return False
    return any(a > b for a, b in zip(mark[2:], now[2:], strict=True))


def _stored(coll: Reading, state: States, name: str, keys: np.ndarray) -> np.ndarray:
    """Finds which keys have a row, bool[n]."""
    result = np.zeros(len(keys), bool)
    size = 1 << 16
    feature = coll.tables[name].feature_names[0]
    for start in range(0, len(keys), size):
        some = keys[start : start + size]
        padded = np.full(1 << max(10, (len(some) - 1).bit_length()), PADDING, np.int64)
        padded[: len(some)] = some
        for ids in _chunks.id_arrays(coll.tables[name], padded):
            found = on_host(_found(coll.engine, feature, state, ids))
            result[start : start + size] |= found[: len(some)]
    return result


@kept_jit(0, 1)
def _found(engine: LookupEngine, feature: str, state: States, ids: Any) -> jax.Array:
    _, found, _ = engine.find(state, {feature: ids}, {})
    return found[feature]
