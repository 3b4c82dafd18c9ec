# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A small table with a store below it, beside a table that has room for every row."""

import dataclasses
import functools
from collections.abc import Callable, Iterable

import jax
import numpy as np

import jax_dynemb as jde

ROWS, IDS, BATCH = 512, 20 * 512, 40


def unopened(table: jde.TableConfig) -> jde.stores.Store:
    """Each test passes its own stores, so all share the compiled programs."""
    raise AssertionError(f"{table.name}: the tests pass stores=")


PLAIN = jde.TableConfig(
    "cat", 3, 4 * IDS, optimizer=jde.optim.partial_rowwise_adam(0.05)
)
TIER = jde.tiers.external(unopened, host_rows=ROWS, ring_rows=256)
BELOW = dataclasses.replace(PLAIN, tier=TIER)


@functools.cache
def stepper(coll: jde.Tables) -> Callable:
    """A training step whose gradients depend on the rows."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        d_rows = jax.tree.map(lambda x: 0.3 * x + 1, dict(rows))
        return rows, coll.apply_gradients(state, residual, d_rows)

    return step


def cold_batches(seed: int, count: int, size: int = BATCH) -> list[np.ndarray]:
    """Half of the ids are drawn from all, half from a few; some are padding."""
    rng = np.random.default_rng(seed)
    shape = (count, size)
    ids = np.where(
        rng.random(shape) < 0.5, rng.integers(0, IDS, shape), rng.zipf(1.5, shape) % 97
    )
    ids = ids * 2_654_435_761 - 5_000_000_000  # of both signs, beyond 32 bits
    return list(np.where(rng.random(shape) < 0.05, -1, ids))


def rows_of(coll: jde.Tables, state, table: str = "cat") -> dict[int, bytes]:
    """Score, columns and states of the rows of a table, by key."""
    layout, rows = jde.stores.Layout.of(coll.tables[table]), {}
    for chunk in coll.export(state, table):
        packed = layout.pack(chunk)
        rows |= {int(k): p.tobytes() for k, p in zip(chunk.keys, packed, strict=True)}
    return rows


def rows_in(store: jde.stores.Store) -> dict[int, bytes]:
    """Returns the rows of a store."""
    keys = np.sort(store.keys())
    found, packed = store.get(keys)
    assert found.all()
    return {int(k): p.tobytes() for k, p in zip(keys, packed, strict=True)}


class Walk:
    """Trains both tables on the same batches; their rows are equal at every step.

    Args:
      store: below the small table.
      placement: of both, ``mesh`` and ``axis``.
    """

    def __init__(self, store: jde.stores.Store, config=BELOW, plain=PLAIN, **placement):
        self.stores = {"cat": store}
        self.plain = jde.Tables([plain], **placement)
        self.coll = jde.Tables([config], **placement)
        self.whole, self.state = self.plain.init(3), self.coll.init(3)
        self.steps = 0

    def prefetcher(
        self, batches: Iterable[np.ndarray], **options
    ) -> jde.tiers.RowPrefetcher:
        """Opens the prefetcher of the small table."""
        given = ({"cat": ids} for ids in batches)
        return jde.tiers.prefetch_rows(self.coll, given, stores=self.stores, **options)

    def run(
        self, prefetcher: jde.tiers.RowPrefetcher, batches: Iterable[np.ndarray]
    ) -> None:
        """Trains; ``prefetcher`` yields the same batches."""
        for batch in batches:
            given, self.state = prefetcher.next(self.state)
            rows, self.state = stepper(self.coll)(self.state, given)
            self.steps += 1
            expected, self.whole = stepper(self.plain)(
                self.whole, {"cat": jde.ids(batch)}
            )
            np.testing.assert_array_equal(rows["cat"], expected["cat"])

    def check(self, prefetcher: jde.tiers.RowPrefetcher) -> None:
        """Every row is in the table or in the store, as the large table has it."""
        self.check_rows(prefetcher)
        counts = prefetcher.stats()
        assert counts["cat/departed"] > 0 and counts["cat/returned"] > 0

    def check_rows(self, prefetcher: jde.tiers.RowPrefetcher) -> None:
        """The same, for prefetchers of few batches."""
        self.state = prefetcher.drain(self.state)
        above, below = rows_of(self.coll, self.state), rows_in(self.stores["cat"])
        assert not above.keys() & below.keys()
        assert above | below == rows_of(self.plain, self.whole)
        assert self.coll.stats(self.state)["cat/refused"] == 0
