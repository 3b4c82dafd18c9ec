# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Tables that differ from what was saved: filled again, or a sentence says why not."""

import dataclasses
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jax_dynemb as jde
from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.checkpoint import index as _index
from jax_dynemb._src.files.checkpoint import save_tree as _save
from jax_dynemb._src.spec import TableSpec
from meshes import mesh_of
from oracle import bucket_of
from support import HostRow, assert_same_rows, compiled, export, gradients

CONFIG = jde.TableConfig(
    "cat", dim=4, capacity=2048, optimizer=jde.optim.adam(0.1), score_strategy="step"
)


def trained(coll: jde.Tables, steps: int = 6, seed: int = 0):
    """Tables with rows of many ages, and some that left."""
    rng = np.random.default_rng(seed)
    state, jit = coll.init(7), compiled(coll)
    for step in range(steps):
        ids = {
            name: jde.ids(rng.integers(-(2**62), 2**62, 300)) for name in coll.tables
        }
        rows, residual, state = jit.lookup(state, ids, None, None)
        grads = {
            name: jnp.asarray(gradients(r.shape, step)) for name, r in rows.items()
        }
        state = jit.apply_gradients(state, residual, grads, None)
    return state


def saved(path, *configs: jde.TableConfig, **options):
    coll = jde.Tables(configs)
    state = trained(coll, **options)
    jde.checkpoint.save(path, 1, {"tables": state}, tables=coll, wait=True)
    return coll, state


def restored(path, *configs: jde.TableConfig, **options):
    coll = jde.Tables(configs)
    result = jde.checkpoint.restore(
        path, {"tables": coll.init(9)}, tables=coll, **options
    )
    return coll, result.tree["tables"], " ".join(result.notes)


def with_drops(path, config: jde.TableConfig):
    """The same, and the notes are those warnings that came."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        coll, state, notes = restored(path, config, allow_drop=True)
    said = [str(each.message) for each in caught]
    assert all("found no place" in each and each in notes for each in said)
    assert len(said) == notes.count("found no place")
    return coll, state, notes


def best_of_each_bucket(
    rows: dict[int, HostRow], buckets: int, hash_seed: int = 0
) -> dict[int, HostRow]:
    """The 128 rows of each bucket that would leave last, worked out with dicts."""
    by_bucket: dict[int, list[int]] = {}
    for key in rows:
        by_bucket.setdefault(bucket_of(key, buckets, hash_seed), []).append(key)
    kept = {}
    for keys in by_bucket.values():
        keys.sort(key=lambda key: (rows[key].score, key % 2**64), reverse=True)
        kept |= {key: rows[key] for key in keys[:128]}
    return kept


@pytest.mark.parametrize(
    "strategy, capacity",
    [
        ("step", 4096),
        ("step", 256),
        ("timestamp", 3000),
        ("lfu", 1024),
        ("no_eviction", 1024),
    ],
)
def test_another_capacity(tmp_path, strategy, capacity):
    config = dataclasses.replace(CONFIG, score_strategy=strategy, on_full=None)
    before, state = saved(tmp_path, config)
    coll, again, notes = with_drops(
        tmp_path, dataclasses.replace(config, capacity=capacity)
    )
    want = export(before, state, "cat")
    fitting = best_of_each_bucket(want, coll.tables["cat"].num_buckets)
    assert_same_rows(export(coll, again, "cat"), fitting)
    assert "its rows were inserted again" in notes
    left = len(want) - len(fitting)
    assert (f"{left} of {len(want)} rows found no place" in notes) == (left > 0)
    old, new = before.stats(state), coll.stats(again)
    for name in ("step", "inserted", "lookups", "refused", "lost_updates", "erased"):
        assert new[f"cat/{name}"] == old[f"cat/{name}"]
    assert new["cat/rows"] == len(fitting)
    assert new["cat/evicted"] == old["cat/evicted"] + left
    assert coll.get_score(again) == before.get_score(state)


@pytest.mark.parametrize("before, after", [(0, 2**64 - 1), (77, 0), (77, 78)])
@pytest.mark.parametrize("capacity", [512, 2048, 4096])
def test_another_hash_seed(tmp_path, monkeypatch, before, after, capacity):
    from jax_dynemb._src.files.checkpoint import stored as _stored

    config = dataclasses.replace(CONFIG, capacity=1024, hash_seed=before)
    old, state = saved(tmp_path, config)
    monkeypatch.setattr(_stored, "_CHUNK_BYTES", 1)  # in an order of its own
    other = dataclasses.replace(config, capacity=capacity, hash_seed=after)
    coll, again, notes = with_drops(tmp_path, other)
    want = export(old, state, "cat")
    table = coll.tables["cat"]
    fitting = best_of_each_bucket(want, table.num_buckets, after)
    assert_same_rows(export(coll, again, "cat"), fitting)
    assert "its rows were inserted again" in notes
    assert ("another hash_seed" in notes) == (capacity == 1024)
    left = len(want) - len(fitting)
    assert (f"{left} of {len(want)} rows found no place" in notes) == (left > 0)
    assert coll.stats(again)["cat/rows"] == len(fitting)
    # They are where the hash looks for them.
    keys = np.array(list(fitting), np.int64)
    assert coll.find(again, {"cat": jde.ids(keys)})[1]["cat"].all()


def test_rows_leave_a_full_table_that_gets_another_hash_seed(tmp_path):
    """1,024 rows in 8 full buckets fall into 8 others unevenly."""
    config = dataclasses.replace(CONFIG, capacity=1024)
    old, state = saved(tmp_path, config, steps=20)
    want = export(old, state, "cat")
    assert len(want) == 1024
    coll, again, notes = with_drops(tmp_path, dataclasses.replace(config, hash_seed=5))
    fitting = best_of_each_bucket(want, 8, 5)
    assert 900 < len(fitting) < 1024
    assert f"{1024 - len(fitting)} of 1024 rows found no place" in notes
    assert_same_rows(export(coll, again, "cat"), fitting)


def test_the_same_hash_seed_restores_the_arrays(tmp_path):
    config = dataclasses.replace(CONFIG, hash_seed=2**63 + 1)
    before, state = saved(tmp_path, config)
    coll, again, notes = restored(tmp_path, config)
    assert notes == ""
    for name in ("index", "values"):
        got, want = getattr(again["cat"], name), getattr(state["cat"], name)
        np.testing.assert_array_equal(got, want)
    assert coll.stats(again) == before.stats(state)


def test_a_checkpoint_that_says_nothing_of_a_hash_seed_has_none(tmp_path):
    _, state = saved(tmp_path, CONFIG)
    item = tmp_path / "1" / "state"
    fields = json.loads((item / "jax_dynemb.json").read_text())
    assert fields["tables"]["tables/cat"].pop("hash_seed") == 0
    (item / "jax_dynemb.json").write_text(json.dumps(fields))
    (item / "checksums.json").unlink()
    _checksums.write_checksums(item)
    _, again, notes = restored(tmp_path, CONFIG)
    assert notes == ""
    np.testing.assert_array_equal(again["cat"].index, state["cat"].index)
    config = dataclasses.replace(CONFIG, hash_seed=1)
    assert "another hash_seed" in with_drops(tmp_path, config)[2]


def test_chunks_of_any_size_give_the_same_small_table(tmp_path, monkeypatch):
    from jax_dynemb._src.files.checkpoint import stored as _stored

    before, state = saved(tmp_path, CONFIG)
    monkeypatch.setattr(_stored, "_CHUNK_BYTES", 1)  # bucket by bucket
    coll, again, _ = with_drops(tmp_path, dataclasses.replace(CONFIG, capacity=700))
    want = best_of_each_bucket(
        export(before, state, "cat"), coll.tables["cat"].num_buckets
    )
    assert_same_rows(export(coll, again, "cat"), want)


def test_training_goes_on_in_the_same_way_after_growth(tmp_path):
    roomy = dataclasses.replace(CONFIG, capacity=4096)  # nothing leaves either table
    before, state = saved(tmp_path, roomy)
    coll, again, _ = restored(tmp_path, dataclasses.replace(CONFIG, capacity=8192))
    ids = {"cat": jde.ids(np.arange(50))}  # rows that are new to both
    for _ in range(3):
        rows, residual, state = compiled(before).lookup(state, ids, None, None)
        others, residual_2, again = compiled(coll).lookup(again, ids, None, None)
        np.testing.assert_array_equal(rows["cat"], others["cat"])
        state = compiled(before).apply_gradients(state, residual, rows, None)
        again = compiled(coll).apply_gradients(again, residual_2, others, None)
    assert_same_rows(export(coll, again, "cat"), export(before, state, "cat"))


@pytest.mark.parametrize("now, told", [("adam", ()), ("lamb", ("adam", "lamb"))])
def test_states_that_another_optimizer_takes_over_are_told(tmp_path, now, told):
    """Their names and shapes are the same, what they hold may not be."""
    configs = [
        dataclasses.replace(CONFIG, optimizer=getattr(jde.optim, name)(0.1))
        for name in ("adam", now)
    ]
    before, after = (jde.Tables([config]) for config in configs)
    jde.checkpoint.save(
        tmp_path, 1, {"tables": before.init(0)}, tables=before, wait=True
    )
    fresh = {"tables": after.init(1)}
    notes = jde.checkpoint.restore(tmp_path, fresh, tables=after).notes
    assert len(notes) == bool(told)
    assert all(f"optimizer {told[0]}, " in note and told[1] in note for note in notes)


def test_what_an_optax_optimizer_stores_once_comes_along(tmp_path):
    config = dataclasses.replace(CONFIG, optimizer=optax.adam(0.1))
    _, state = saved(tmp_path, config)
    _, again, _ = restored(tmp_path, dataclasses.replace(config, capacity=4096))
    assert (
        [int(x) for x in again["cat"].extra]
        == [6]
        == [int(x) for x in state["cat"].extra]
    )


def test_another_storage_type(tmp_path):
    before, state = saved(tmp_path, CONFIG)
    coll, again, notes = restored(
        tmp_path, dataclasses.replace(CONFIG, param_dtype="bfloat16")
    )
    assert "stores bfloat16 instead of float32" in notes
    got, want = export(coll, again, "cat"), export(before, state, "cat")
    assert got.keys() == want.keys()
    for key, row in got.items():
        np.testing.assert_array_equal(row.values, want[key].values.astype("bfloat16"))


def test_never_twice_the_table_in_memory(tmp_path, monkeypatch):
    from jax_dynemb._src.files.checkpoint import stored as _stored
    from jax_dynemb._src.table import chunks as _chunks

    monkeypatch.setattr(_stored, "_CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(_chunks, "_BATCH_BYTES", 1 << 14)
    config = dataclasses.replace(CONFIG, dim=32, capacity=1 << 14)
    larger = dataclasses.replace(config, capacity=1 << 15)
    saved(tmp_path, config)
    seen = []
    insert = _chunks._insert
    # Arrays of other tests may be alive in this process, and are held here, so that
    # no new array has the identity of a freed one.
    earlier = jax.live_arrays()
    known = {id(array) for array in earlier}

    def watched(*arguments):
        state = insert(*arguments)
        jax.block_until_ready(state)
        table = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        ours = (x for x in jax.live_arrays() if id(x) not in known)
        seen.append(sum(x.nbytes for x in ours) / table)
        return state

    monkeypatch.setattr(_chunks, "_insert", watched)
    restored(tmp_path, larger)
    assert len(seen) > 10
    assert max(seen) < 1.2

    # The same where arrays are read as they are: the old ones go first.
    coll = jde.Tables([config])
    old = coll.init(0)
    tree = {"tables": old}
    jde.checkpoint.restore(tmp_path, tree, tables=coll)
    assert old["cat"].values.is_deleted() and old["cat"].index.is_deleted()


def test_an_index_of_another_layout(tmp_path, monkeypatch):
    """All keys of a bucket and then all scores, as in the first versions."""
    before, state = saved(tmp_path, CONFIG)
    expected = export(before, state, "cat")
    item = tmp_path / "1" / "state"
    (file,) = (path for path in (item / "tables.cat.index").glob("0.*"))
    now = _index.index_layout()
    other = now | {"keys_word": 32, "scores_word": 288, "slot_words": 2}
    old = np.fromfile(file, np.uint32).reshape(-1, now["bucket_words"])
    slots = _index.split_index(old, now, "step", 0)
    keys, scores = (words.view(np.uint32) for words in (slots.keys, slots.scores))
    new = old.copy()
    new[:, 32:288] = keys.reshape(len(old), -1)
    new[:, 288:] = scores.reshape(len(old), -1)
    new.tofile(file)
    fields = json.loads((item / "jax_dynemb.json").read_text())
    (item / "jax_dynemb.json").write_text(json.dumps(fields | {"index": other}))
    (item / "checksums.json").unlink()
    _checksums.write_checksums(item)
    coll, again, notes = restored(tmp_path, CONFIG)
    assert "was saved by a version with another index" in notes
    got = export(coll, again, "cat")
    assert got.keys() == expected.keys()
    for key, row in got.items():
        np.testing.assert_array_equal(row.values, expected[key].values)
        np.testing.assert_array_equal(row.state["mu"], expected[key].state["mu"])
        assert row.score == expected[key].score


@pytest.mark.parametrize("capacity", [2048, 4096])
def test_given_scores_of_30_bits_above_a_clock(tmp_path, monkeypatch, capacity):
    """As of the versions before 62 bits: scores, last uses and pins stay."""
    config = dataclasses.replace(CONFIG, score_strategy="customized", on_full=None)
    coll = jde.Tables([config])
    plain = dataclasses.replace(CONFIG, name="other", feature_names=())
    ids, scores = np.arange(300), np.random.default_rng(0).integers(0, 2**30, 300)
    first = {"cat": jde.ids(ids)}
    _, _, state = coll.lookup(coll.init(7), first, scores={"cat": scores})
    _, _, state = coll.lookup(state, {"cat": jde.ids(ids[:100])})
    state = coll.pin(state, {"cat": jde.ids(ids[:3])})
    mark = coll.get_score(state)["cat"] - 1  # since the second lookup
    layout = _index.index_layout()
    index = np.array(state["cat"].index)
    entries = index[:, : layout["bucket_words"]]
    high = entries[:, layout["scores_word"] + 1 :: layout["slot_words"]]
    high |= index[:, layout["bucket_words"] :: 2]
    old = {"cat": dataclasses.replace(state["cat"], index=jnp.asarray(entries))}
    beside = jde.Tables([plain]).init(7)
    both = jde.Tables([config, plain], share_arrays=False)
    with monkeypatch.context() as patched:
        before = {k: n for k, n in layout.items() if k != "given_words"}
        patched.setattr(_save, "index_layout", lambda: before)
        patched.setattr(TableSpec, "index_words", layout["bucket_words"])
        tree = {"tables": old | beside}
        jde.checkpoint.save(tmp_path, 1, tree, tables=both, wait=True)
    larger = dataclasses.replace(config, capacity=capacity)
    now = jde.Tables([larger, plain], share_arrays=False)
    found = jde.checkpoint.restore(tmp_path, {"tables": now.init(9)}, tables=now)
    again = found.tree["tables"]
    assert not any("'tables/other'" in note for note in found.notes)
    rows = export(now, again, "cat")
    assert {k: row.score for k, row in rows.items()} == dict(enumerate(scores.tolist()))
    assert now.stats(again)["cat/pinned"] == 3
    since = [chunk.keys for chunk in now.export(again, "cat", since=mark)]
    assert sorted(np.concatenate(since).tolist()) == list(range(100))
    _, _, again = now.lookup(again, {"cat": jde.ids([7]), "other": jde.ids([1])})
    assert export(now, again, "cat")[7].score == scores[7]


@pytest.mark.parametrize("devices, says", [(1, True), (2, True), (1, False)])
def test_fewer_counters_are_read_and_new_ones_are_zero(
    tmp_path, monkeypatch, devices, says
):
    """As of a version that had 18 of them: rows stay where they are."""
    coll, tables = jde.Tables([CONFIG]), {}
    state = trained(coll)
    pinned = list(export(coll, state, "cat"))[:3]
    state = coll.pin(state, {"cat": jde.ids(np.array(pinned, np.int64))})
    fewer = _index.index_layout()
    del fewer["counters"]
    fewer |= {"counters": 18} if says else {}
    for name, table in state.items():
        counters = table.counters[:, :18]
        tables[name] = dataclasses.replace(table, counters=counters)
    with monkeypatch.context() as patched:
        patched.setattr(_save, "index_layout", lambda: fewer)
        patched.setattr(_save, "warn_of_losses", lambda *_: None)  # it came since
        jde.checkpoint.save(tmp_path, 1, {"tables": tables}, tables=coll, wait=True)
    mesh = None if devices == 1 else mesh_of(devices)
    now = jde.Tables([CONFIG], mesh=mesh)
    result = jde.checkpoint.restore(tmp_path, {"tables": now.init(9)}, tables=now)
    again, notes = result.tree["tables"], " ".join(result.notes)
    assert "fewer counters" in notes and "inserted again" not in notes
    np.testing.assert_array_equal(again["cat"].index, state["cat"].index)
    before, after = coll.stats(state), now.stats(again)
    assert after["cat/inserted"] == before["cat/inserted"] > 0
    assert before["cat/misses"] > 0 and after["cat/misses"] == 0
    assert after["cat/pinned"] == before["cat/pinned"] == 3
    assert_same_rows(export(now, again, "cat"), export(coll, state, "cat"))
    trained(now)  # programs take such a state
    _, _, again = now.lookup(again, {"cat": jde.ids(np.arange(5))})
    assert now.stats(again)["cat/misses"] == 5


SENTENCES = [
    (
        {"dim": 8},
        r"Table 'tables/cat' was saved with dim=4, but this model has dim=8",
        None,
    ),
    (
        {"key_dtype": "int32"},
        r"key_dtype='int64', but this model has key_dtype='int32'",
        None,
    ),
    (
        {"optimizer": jde.optim.adagrad(0.1)},
        r"saved with the optimizer states mu\[4\], nu\[4\] \(adam\), but this model's "
        r"optimizer keeps sum_of_squares\[4\] \(adagrad\). Pass strict=False",
        "optimizer",
    ),
    (
        {"optimizer": optax.adam(0.1)},
        r"mu\[4\], nu\[4\] \(adam\), .* mu\[4\], nu\[4\] \(optax\)",
        "optimizer",
    ),
    (
        {"score_strategy": "lfu"},
        "saved with score_strategy='step', but this model has score_strategy='lfu'. "
        "Pass strict=False to restore the rows and score them as new",
        "scores",
    ),
]


@pytest.mark.parametrize("change, sentence, anew", SENTENCES)
def test_differences_are_named(tmp_path, change, sentence, anew):
    before, state = saved(tmp_path, CONFIG)
    changed = dataclasses.replace(CONFIG, **change)
    with pytest.raises(ValueError, match=sentence):
        restored(tmp_path, changed)
    if anew is None:
        with pytest.raises(ValueError, match=sentence):
            restored(tmp_path, changed, strict=False)
        return
    coll, again, notes = restored(tmp_path, changed, strict=False)
    assert "was saved with" in notes
    got, want = export(coll, again, "cat"), export(before, state, "cat")
    assert got.keys() == want.keys()
    for key, row in got.items():
        np.testing.assert_array_equal(row.values, want[key].values)
        if anew == "optimizer":
            assert row.score == want[key].score
            assert not any(np.any(leaf) for leaf in row.state.values())
            assert coll.stats(again)["cat/step"] == 0
        else:
            np.testing.assert_array_equal(row.state["mu"], want[key].state["mu"])
            assert coll.stats(again)["cat/step"] == before.stats(state)["cat/step"]


def test_tables_that_one_side_lacks(tmp_path):
    word = jde.TableConfig("word", dim=2, capacity=256)
    before, state = saved(tmp_path, CONFIG, word)
    with pytest.raises(
        ValueError, match="a table 'tables/word', which this model lack"
    ):
        restored(tmp_path, CONFIG)
    coll, again, notes = restored(tmp_path, CONFIG, strict=False)
    assert "'tables/word'" in notes
    assert_same_rows(export(coll, again, "cat"), export(before, state, "cat"))

    tag = dataclasses.replace(word, name="tag", feature_names=())
    with pytest.raises(ValueError, match="no table 'tables/tag', which this model has"):
        restored(tmp_path, CONFIG, word, tag)
    coll, again, notes = restored(tmp_path, CONFIG, word, tag, strict=False)
    assert "'tables/tag'" in notes
    assert export(coll, again, "tag") == {}
    assert_same_rows(export(coll, again, "word"), export(before, state, "word"))


def test_other_leaves_are_named(tmp_path):
    jde.checkpoint.save(tmp_path, 0, {"w": jnp.ones((2, 3))}, wait=True)
    with pytest.raises(ValueError, match=r"'w' was saved as float32\[2, 3\].*\[3, 2\]"):
        jde.checkpoint.restore(tmp_path, {"w": jnp.ones((3, 2))})
    with pytest.raises(ValueError, match="The checkpoint has no 'b'"):
        jde.checkpoint.restore(tmp_path, {"w": jnp.ones((2, 3)), "b": jnp.ones(1)})


def test_arrays_that_the_tree_lacks_are_noted(tmp_path):
    coll = jde.Tables([CONFIG])
    tree = {"tables": coll.init(0), "w": jnp.ones(2), "b": {"c": jnp.ones(2)}}
    jde.checkpoint.save(tmp_path, 0, tree, tables=coll, wait=True)
    some = {"tables": coll.init(0), "w": jnp.zeros(2)}
    notes = jde.checkpoint.restore(tmp_path, some, tables=coll).notes
    assert notes == (
        "Arrays of the checkpoint that this tree lacks were passed over: b/c.",
    )
    assert jde.checkpoint.restore(tmp_path, tree, tables=coll).notes == ()
