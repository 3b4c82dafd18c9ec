# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""``prefetch``: the same batches in the same order, and no thread is left."""

import gc
import threading
import time

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import jax_dynemb as jde
from meshes import mesh_of

prefetch = jde.pipeline.prefetch


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "jax_dynemb.prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert not threads()


def numbered(n):
    for i in range(n):
        yield {"x": np.full(4, i, np.float32), "i": np.int32(i)}


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_the_same_batches_in_order(size, count):
    got = list(prefetch(numbered(count), size))
    assert [int(batch["i"]) for batch in got] == list(range(count))
    for i, batch in enumerate(got):
        assert isinstance(batch["x"], jax.Array)
        np.testing.assert_array_equal(batch["x"], np.full(4, i, np.float32))


@pytest.mark.parametrize("size", [1, 3])
def test_it_runs_so_many_batches_ahead(size):
    begun = []

    def batches():
        for i in range(10):
            begun.append(i)
            yield np.int32(i)

    def settled(count):
        end = time.monotonic() + 10
        while len(begun) < count and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.02)  # and no further
        return len(begun) == count

    with prefetch(batches(), size) as ready:
        assert settled(size)
        assert int(next(ready)) == 0
        assert settled(size + 1)


def test_pytrees_keep_their_kinds_and_shardings():
    mesh = mesh_of(8)
    split = NamedSharding(mesh, PartitionSpec("data"))
    whole = NamedSharding(mesh, PartitionSpec())

    def batches():
        values = jde.ids(np.arange(16))
        bags = jde.Jagged(values, np.full(8, 2, np.int32))
        yield {"bags": bags, "label": np.ones(8, np.float32)}, (np.float32(3),)

    ((batch, (number,)),) = prefetch(batches(), sharding=(split, whole))
    assert isinstance(batch["bags"], jde.Jagged)
    for array in jax.tree.leaves(batch):
        assert array.sharding == split
    assert number.sharding == whole


def test_an_error_comes_where_its_batch_would():
    def batches():
        yield from numbered(2)
        raise KeyError("third")

    ready = prefetch(batches())
    assert [int(next(ready)["i"]) for _ in range(2)] == [0, 1]
    with pytest.raises(KeyError, match="third"):
        next(ready)
    with pytest.raises(StopIteration):
        next(ready)


def test_what_device_put_refuses_reaches_the_caller():
    split = NamedSharding(mesh_of(8), PartitionSpec("data"))
    with pytest.raises(ValueError, match="evenly divide"):
        next(prefetch([np.zeros(3, np.float32)], sharding=split))


def test_leaving_the_loop_ends_the_thread():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield np.float32(1)
        finally:
            closed.set()

    for _ in prefetch(endless()):
        break
    gc.collect()
    assert not threads() and closed.is_set()
    with prefetch(endless()) as ready:
        next(ready)
    assert not threads()
    with pytest.raises(StopIteration):
        next(ready)


def test_close_wakes_a_caller_in_another_thread():
    go = threading.Event()

    def slow():
        go.wait(10)
        yield np.float32(1)

    ready = prefetch(slow())
    got = []
    waiting = threading.Thread(target=lambda: got.extend(ready))
    waiting.start()
    go_later = threading.Timer(0.05, go.set)
    go_later.start()
    ready.close()
    waiting.join(10)
    go_later.join()
    assert not waiting.is_alive() and len(got) <= 1


def test_it_trains_as_a_plain_loop():
    coll = jde.Tables([jde.TableConfig(name="t", dim=4, capacity=256)])
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 99, 32) for _ in range(5)]

    @jax.jit
    def step(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return coll.apply_gradients(state, residual, rows), rows["t"]

    def train(loader):
        state, out = coll.init(0), []
        for batch in loader:
            state, rows = step(state, batch)
            out.append(np.asarray(rows))
        return out

    plain = train({"t": jde.ids(ids)} for ids in batches)
    ahead = train(prefetch({"t": jde.ids(ids)} for ids in batches))
    np.testing.assert_array_equal(ahead, plain)


def test_64_bit_integers_are_refused():
    with pytest.raises(TypeError, match=r"batch\['user'\] is int64.*jde.ids"):
        next(prefetch([{"user": np.arange(3)}]))


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="1 batch or more"):
        prefetch([], size=0)
    with pytest.raises(TypeError, match="call the generator function"):
        prefetch(lambda: iter([]))  # pyright: ignore[reportArgumentType]


def test_a_scalar_of_64_bits_is_refused():
    with pytest.raises(TypeError, match="int64, which JAX would cut"):
        next(jde.pipeline.prefetch([np.int64(2**40)]))


@pytest.mark.parametrize("size", [1.5, "2"])
def test_a_size_that_is_no_whole_number(size):
    with pytest.raises(ValueError, match="size of 1 batch or more"):
        jde.pipeline.prefetch([], size=size)
