# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table that evicts and refuses ids all the same says so where counters are read."""

import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

import jax_dynemb as jde
from meshes import mesh_of

SAYS = r"refused \d+ ids although it evicts"
numbers = itertools.count()
MANY = np.arange(5_000)


def table(**options: Any) -> jde.TableConfig:
    """A table of a new name: a process warns of each name."""
    sizes = {"capacity": 256, "optimizer": jde.optim.none()}
    return jde.TableConfig(f"refuses{next(numbers)}", 4, **sizes | options)


def looked_up(coll: jde.Tables, ids: np.ndarray, state: Any = None) -> Any:
    state = coll.init(0) if state is None else state
    return coll.lookup(state, {name_of(coll): jde.ids(ids)})[2]


def name_of(coll: jde.Tables) -> str:
    return next(iter(coll.tables))


def saved(coll: jde.Tables, state: Any, folder: Any) -> None:
    jde.checkpoint.save(folder, 1, state, tables=coll, wait=True)


READERS: dict[str, Callable[[jde.Tables, Any, Any], Any]] = {
    "stats": lambda coll, state, _: coll.stats(state),
    "stats_async": lambda coll, state, _: coll.stats_async(state).result(),
    "export": lambda coll, state, _: list(coll.export(state, name_of(coll))),
    "save": saved,
}


def said(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in found]


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_of_counters_says_it_once(reader, devices, tmp_path):
    coll = jde.Tables([table()], mesh_of(2) if devices == 2 else None)
    state = looked_up(coll, MANY)
    (text,) = said(lambda: READERS[reader](coll, state, tmp_path / "one"))
    # The rows that were taken are all that the refused ones left.
    numbers = re.search(
        r"refused (\d+) ids although it evicts, of (\d+) that were", text
    )
    assert numbers is not None and f"'{name_of(coll)}'" in text
    assert int(numbers[1]) == 5_000 - 256 and int(numbers[2]) == 5_000
    for number, read in enumerate(READERS.values()):
        assert not said(lambda: read(coll, state, tmp_path / str(number)))  # noqa: B023
    twice = looked_up(coll, MANY, state)
    assert len(said(lambda: coll.stats(twice))) == 1  # it has doubled


def test_the_steps_themselves_say_nothing_and_wait_for_nothing():
    coll = jde.Tables([table()])
    step = jax.jit(lambda state: looked_up(coll, MANY, state))
    assert not said(lambda: step(coll.init(0)))
    assert not said(lambda: coll.stats_async(step(coll.init(0))))  # no result read


def test_what_it_advises_is_taken():
    coll = jde.Tables([table()])
    (text,) = said(lambda: coll.stats(looked_up(coll, MANY)))
    assert "to several times the different ids of a batch" in text
    large = jde.Tables([table(capacity=3 * len(MANY))])
    state = looked_up(large, MANY)
    assert not said(lambda: large.stats(state))
    assert large.stats(state)[f"{name_of(large)}/rows"] == len(MANY)
    assert "or split the batch" in text
    split = jde.Tables([table()])
    state = split.init(0)
    for part in np.split(MANY, 50):
        state = looked_up(split, part, state)
    assert not said(lambda: split.stats(state))
    assert split.stats(state)[f"{name_of(split)}/refused"] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"on_full": "compete", "score_strategy": "lfu"},  # colder ids shall wait
        {"on_full": "refuse"},
    ],
)
def test_tables_that_shall_refuse_stay_silent(options):
    coll = jde.Tables([table(**options)])
    state = looked_up(coll, MANY)
    assert coll.stats(state)[f"{name_of(coll)}/refused"] > 0
    assert not said(lambda: coll.stats(state))


def test_one_id_in_many_is_no_news():
    """Looks known ids up 12,000 times, and four reserved ones."""
    coll = jde.Tables([table()])
    state = looked_up(coll, np.repeat(np.arange(60), 200))
    reserved = jax.numpy.full((4, 2), -2, "int32").astype("uint32")
    reserved = reserved.at[:, 1].set(2**32 - 1)
    _, _, state = coll.lookup(state, {name_of(coll): reserved})
    assert coll.stats(state)[f"{name_of(coll)}/refused"] == 4
    assert not said(lambda: coll.stats(state))


def test_a_module_says_it_too():
    config = table()
    model = jde.nnx.EmbeddingCollection([config], rngs=nnx.Rngs(0))
    model({config.name: jde.ids(MANY)})
    (text,) = said(model.stats)
    assert re.search(SAYS, text)


def test_rows_that_insert_finds_no_place_for():
    config = table()
    coll = jde.Tables([config])
    rows = np.ones((len(MANY), 4), np.float32)
    state = coll.init(0)
    ids, rows = {config.name: jde.ids(MANY)}, {config.name: rows}
    state = coll.insert(state, ids, rows)
    state = state[0] if isinstance(state, tuple) else state
    assert len(said(lambda: coll.stats(state))) == 1
