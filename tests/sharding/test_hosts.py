# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Devices of a host exchange first, and results are those of one exchange."""

import re
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, PartitionSpec

import hosts
import jax_dynemb as jde
import peers
from jax_dynemb._src import ops
from jax_dynemb._src.engines.hash.layouts import hosts as layouts_hosts
from jax_dynemb._src.engines.hash.layouts import peer_processes
from jax_dynemb._src.engines.hash.layouts import peers as layouts_peers
from jax_dynemb._src.engines.hash.strategies.by_host import host_batch
from meshes import gpus, mesh_of

KEYS = 700
KINDS = ["collectives", "peers", "tight", "tight peers"]


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch):
    """How devices of a host exchange, and whether their ids fit."""
    if "peers" in request.param:
        peers.emulate(monkeypatch)
    if "tight" in request.param:
        monkeypatch.setattr(host_batch, "capacity_of", hosts.equal_share)
    return request.param


def _tables() -> list[jde.TableConfig]:
    sgd = jde.optim.sgd(0.125)
    rule = jde.admission.Frequency(2, jde.admission.Exact(4096))
    return [
        jde.TableConfig("plain", dim=8, capacity=4096, optimizer=sgd),
        jde.TableConfig("alike", dim=8, capacity=4096, optimizer=sgd, pooling="sum"),
        jde.TableConfig("means", dim=20, capacity=4096, optimizer=sgd, pooling="mean"),
        jde.TableConfig(
            "counted", dim=4, capacity=512, optimizer=sgd, score_strategy="lfu"
        ),
        jde.TableConfig("strict", dim=4, capacity=4096, optimizer=sgd, admission=rule),
        jde.TableConfig(
            "left", dim=12, capacity=2048, optimizer=sgd, sharding="table_wise"
        ),
        jde.TableConfig(
            "right", dim=12, capacity=2048, optimizer=sgd, sharding="table_wise"
        ),
        jde.TableConfig("optax", dim=4, capacity=4096, optimizer=optax.sgd(0.25)),
        jde.TableConfig(
            "both", dim=4, capacity=1024, optimizer=sgd, feature_names=("one", "two")
        ),
    ]


def _ids(rng: np.random.Generator, n: int, step: int) -> dict[str, jax.Array]:
    """Ids of a batch; a part of one is padding."""
    few = KEYS // (1 + step)
    padded = rng.integers(-1, few, (n // 4, 4))
    given = {
        "plain": rng.integers(0, few, n),
        "alike": np.where(padded < 0, 2**64 - 1, padded.astype(np.uint64)),
        "means": rng.integers(0, KEYS, (n // 4, 4)),
        "counted": rng.zipf(1.3, n) % 2000,
        "strict": rng.integers(0, few, n),
        "optax": rng.integers(0, few, n),
        "left": rng.integers(0, few, n),
        "right": rng.integers(0, KEYS, n),
        "one": rng.integers(0, 40, n),
        "two": rng.integers(20, 60, (n // 2, 2)),
    }
    return {name: jde.ids(each) for name, each in given.items()}


def _run(coll: jde.Tables, shards: int, how: str = "lookup") -> tuple[list, dict]:
    """Trains some steps; returns rows, answers of a serving lookup, and counters."""
    state, rng = coll.init(seed=3), np.random.default_rng(5)
    n = 64 * shards

    def gradients(rows, shift):
        # Multiples of a power of two add up without rounding, in any order.
        return {f: jnp.round(r * 8) / 8 + shift for f, r in rows.items()}

    @jax.jit
    def step(state, ids, shift):
        given = coll.route(ids) if how == "route" else ids
        rows, residual, state = coll.lookup(state, given)
        if how != "joined":
            d_rows = gradients(rows, shift)
            return rows, coll.apply_gradients(state, residual, d_rows)
        halves = {f: jnp.stack([x, x[::-1]]) for f, x in ids.items()}
        again, (others, more) = jax.lax.scan(_looked_up(coll), state, halves)
        lookups = [residual, more]
        d_rows = [gradients(rows, shift), gradients(others, shift)]
        return rows, coll.apply_gradients(again, lookups, d_rows)

    seen = []
    for t in range(4):
        rows, state = step(state, _ids(rng, n, t), jnp.float32(0.125 * t))
        seen += [rows[name] for name in sorted(rows)]
        if t == 1:
            state = coll.erase(state, {"plain": jde.ids(np.arange(50))})
    rows, found, state = coll.find(state, _ids(rng, n, 0))
    seen += [rows[name] for name in sorted(rows)]
    seen += [found[name] for name in sorted(found)]
    return [np.asarray(each, np.float64) for each in seen], coll.stats(state)


def _looked_up(coll):
    """Returns a step of ``lax.scan`` that only looks up."""

    def body(state, ids):
        rows, residual, state = coll.lookup(state, ids)
        return state, (rows, residual)

    return body


COUNTED = ("rows", "evicted", "lost_updates", "refused", "not_admitted")


def _assert_same(one, other, exact=True):
    for mine, theirs in zip(one[0], other[0], strict=True):
        if exact:
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    for name, count in other[1].items():
        if name.split("/")[-1] in COUNTED:
            assert one[1][name] == count, name
    for table in {name.split("/")[0] for name in one[1]}:
        totals = [
            sum(stats[f"{table}/{part}"] for part in ("hits", "misses"))
            for stats in (one[1], other[1])
        ]
        assert totals[0] == totals[1], table


def _tables_of(devices_per_host: int | None, **options: Any) -> jde.Tables:
    options = {"exchange_pooled": "rows", **options}
    mesh = options.pop("mesh", mesh_of(4))
    return jde.Tables(_tables(), mesh, devices_per_host=devices_per_host, **options)


@pytest.fixture(scope="module")
def at_once():
    """What tables of four devices do where all of them exchange at once."""
    return {how: _run(_tables_of(1), 4, how) for how in ("lookup", "joined")}


@pytest.mark.parametrize("how", ["lookup", "route", "joined"])
def test_rows_and_counters_are_those_of_one_exchange(kind, how, at_once):
    del kind
    expected = at_once["joined" if how == "joined" else "lookup"]
    _assert_same(_run(_tables_of(2), 4, how), expected)


@pytest.mark.parametrize("how", ["lookup", "route", "joined"])
def test_a_host_adds_up_the_sums_of_its_owners(how, at_once):
    """Beside features whose rows travel."""
    by_sums = _run(_tables_of(2, exchange_pooled="sums"), 4, how)
    expected = at_once["joined" if how == "joined" else "lookup"]
    _assert_same(by_sums, expected, exact=False)


@pytest.mark.multigpu
@pytest.mark.parametrize("pooled", ["rows", "sums"])
@pytest.mark.parametrize("transport", ["auto", "collectives"])
def test_pairs_of_gpus_as_hosts(transport, pooled):
    devices = gpus().devices[:4]
    if devices.size < 4:
        pytest.skip("needs four GPUs")
    options = {"mesh": Mesh(devices, ("data",)), "exchange_pooled": pooled}
    at_once = _run(_tables_of(1, **options), 4)
    by_host = _tables_of(2, exchange_transport=transport, **options)
    assert by_host.placement
    assert bool(by_host.placement.host_links.peers) == (transport == "auto")
    _assert_same(_run(by_host, 4), at_once, exact=False)


@pytest.mark.parametrize("pooled", ["rows", "sums"])
def test_features_without_ids(pooled):
    """Beside others, and alone."""
    common = {"dim": 4, "capacity": 1024, "optimizer": jde.optim.sgd(0.5)}
    configs = [
        jde.TableConfig("some", pooling="sum", **common),
        jde.TableConfig("none", pooling="sum", **common),
        jde.TableConfig("bare", **common),
    ]
    coll = jde.Tables(configs, mesh_of(4), devices_per_host=2, exchange_pooled=pooled)
    given = {"some": np.arange(32).reshape(8, 4), "none": np.zeros((0, 4), np.int64)}
    given |= {"bare": np.zeros(0, np.int64)}
    ids = {name: jde.ids(each) for name, each in given.items()}
    for batch in (ids, {name: ids[name] for name in ("none", "bare")}):
        rows, residual, state = coll.lookup(coll.init(0), batch)
        state = coll.apply_gradients(state, residual, rows)
        found = coll.find(state, batch)[0]
        for name, each in found.items():
            assert each.shape == (8 if name == "some" else 0, 4)
            # A row is its own gradient, and half of the sum comes off each.
            expected = np.asarray(rows[name]) * (1 - 0.5 * 4)
            np.testing.assert_allclose(each, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("options", [{"share_arrays": False}, {"exchange_factor": 0.1}])
def test_other_arrays_and_further_rounds(options, at_once):
    _assert_same(_run(_tables_of(2, **options), 4), at_once["lookup"])


def test_hosts_of_a_mesh_with_two_axes(at_once):
    devices = np.array(jax.devices("cpu")[:8]).reshape(2, 2, 2)
    mesh = Mesh(devices, ("host", "copy", "gpu"))
    coll = _tables_of(2, mesh=mesh, axis=("host", "gpu"))
    _assert_same(_run(coll, 4), at_once["lookup"])


def test_inside_the_shard_map_of_a_user():
    """Where the mesh is not known before."""
    configs = [config for config in _tables() if config.sharding == "row_wise"]
    options = {"exchange_pooled": "rows"}
    coll = jde.Tables(configs, mesh_of(4), devices_per_host=1, **options)
    alone = jde.Tables(configs, axis_name="data", devices_per_host=2, **options)
    state, ids = coll.init(3), _ids(np.random.default_rng(5), 256, 0)
    ids = {name: each for name, each in ids.items() if name not in ("left", "right")}
    split, specs = PartitionSpec("data"), coll.partition_specs()

    def body(state, ids):
        rows, residual, state = alone.lookup(state, ids)
        return rows, alone.apply_gradients(state, residual, rows)

    run = jax.shard_map(
        body,
        mesh=mesh_of(4),
        in_specs=(specs, split),
        out_specs=(split, specs),
        check_vma=False,
    )
    rows, changed = jax.jit(run)(state, ids)
    expected, residual, state = coll.lookup(state, ids)
    state = coll.apply_gradients(state, residual, expected)
    for name in rows:
        np.testing.assert_array_equal(rows[name], expected[name])
    for mine, theirs in zip(
        coll.find(changed, ids)[0].values(),
        coll.find(state, ids)[0].values(),
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)


def _gathered(mesh: Mesh, ids: jax.Array, devices: int) -> list[set[int]]:
    """Returns for each device the ids of which it is the gateway."""
    config = jde.TableConfig("t", dim=4, capacity=4096)
    coll = jde.Tables([config], mesh, devices_per_host=devices)
    placement, split = coll.placement, PartitionSpec("data")

    def body(ids):
        layout = ops.one_row_each("t", "t", ids.shape[0])
        inputs = [(layout, ops.FeatureInput(ids, None, None))]
        tables = [placement.stack("t").local]
        host = host_batch.make_host_batch(
            placement, placement.host_links, tables, inputs
        )
        return host.gather(with_numbers=False).ids["t"]

    run = jax.shard_map(body, mesh=mesh, in_specs=split, out_specs=split)
    words = np.asarray(jax.jit(run)(ids)).reshape(mesh.size, -1, 2).astype(np.uint64)
    keys = words[..., 0] | words[..., 1] << np.uint64(32)
    return [set(each[each != 2**64 - 1].tolist()) for each in keys]


def test_an_id_of_several_devices_crosses_once():
    given = np.random.default_rng(0).integers(0, 300, (4, 200)).astype(np.uint64)
    gathered = _gathered(mesh_of(4), jde.ids(given.reshape(-1)), 2)
    for host in range(2):
        first, second = gathered[2 * host : 2 * host + 2]
        assert not first & second
        assert first | second == set(given[2 * host : 2 * host + 2].reshape(-1))
        # A hash chooses, so both have about as many.
        assert abs(len(first) - len(second)) < 60


def test_ids_that_do_not_fit_stay_where_they_are(monkeypatch):
    monkeypatch.setattr(host_batch, "capacity_of", hosts.equal_share)
    given = np.random.default_rng(0).permutation(800).astype(np.uint64).reshape(4, 200)
    gathered = _gathered(mesh_of(4), jde.ids(given.reshape(-1)), 2)
    assert gathered == [set(each) for each in given]


@pytest.mark.parametrize("devices", [0, -2, True, 2.0, "2"])
def test_what_is_no_number_of_devices(devices):
    with pytest.raises(ValueError, match="devices_per_host must be a number from 1 on"):
        _tables_of(devices)


def test_the_advice_for_another_number_of_devices_is_accepted():
    with pytest.raises(ValueError, match="no multiple of it") as refused:
        _tables_of(6)
    advised = re.search(r"Use (\d+)\.", str(refused.value))
    assert advised
    placement = _tables_of(int(advised[1])).placement
    assert placement and placement.has_hosts


@pytest.mark.parametrize("other", [1, 4, 8])
def test_a_residual_of_other_hosts_is_refused(other):
    config = jde.TableConfig("t", dim=4, capacity=4096)
    mesh, ids = mesh_of(8), {"t": jde.ids(np.arange(64))}
    coll = jde.Tables([config], mesh, devices_per_host=2)
    rows, residual, state = coll.lookup(coll.init(0), ids)
    with pytest.raises(ValueError, match="2 devices per host") as refused:
        jde.Tables([config], mesh, devices_per_host=other).apply_gradients(
            state, residual, rows
        )
    advised = re.search(r"devices_per_host=(\d+)", str(refused.value))
    assert advised
    again = jde.Tables([config], mesh, devices_per_host=int(advised[1]))
    again.apply_gradients(state, residual, rows)


class SomeGpus:
    """Stands for a mesh of GPUs of two processes."""

    axis_names = ("data",)
    is_multi_process = True

    def __init__(self) -> None:
        named = [types.SimpleNamespace(platform="gpu", process_index=n) for n in (0, 1)]
        self.devices = np.array(named).repeat(2)
        self.shape = {"data": 4}


def test_processes_without_a_device_of_the_mesh_are_not_waited_for(monkeypatch):
    def never() -> list[str]:
        raise AssertionError("the third process would not answer")

    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(peer_processes, "hosts", never)
    monkeypatch.setattr(layouts_peers, "Mesh", SomeGpus)
    mesh: Any = SomeGpus()
    assert layouts_hosts.hosts_of(mesh, ("data",), "auto", None).count == 1
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    other: Any = SomeGpus()
    with pytest.raises(AssertionError, match="would not answer"):
        layouts_hosts.hosts_of(other, ("data",), "auto", None)


@pytest.mark.collectives
def test_the_plan_says_what_hosts_do():
    text = "between the 2 devices of a host, then collectives between 2 hosts"
    assert text in _tables_of(2).plan().transport
    for devices in (None, 1, 4):
        assert "hosts" not in _tables_of(devices).plan().transport
