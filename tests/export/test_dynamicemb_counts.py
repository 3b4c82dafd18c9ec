# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what DynamicEmb dumps say beside rows: counts, times, updates, 16 bits."""

import json

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Exact, Frequency, Sketch
from support import export


def tables(**options) -> jde.Tables:
    return jde.Tables([jde.TableConfig("t", 4, 512, **options)])


def without_sums(path) -> None:
    (path / "checksums.json").unlink()


def counts_of(coll: jde.Tables, state) -> dict[int, int]:
    keys, counts = coll.admission_counts(state, "t")
    return dict(zip(keys.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("ranks", [1, 4])
def test_counts_survive_a_dump(tmp_path, ranks):
    coll = tables(admission=Frequency(3, Exact(2_000)))
    ids = np.array([5, 5, 2**40, 9, 9, 9])
    _, _, state = coll.lookup(coll.init(0), {"t": jde.ids(ids)})
    expected = {5: 2, 2**40: 1}
    assert counts_of(coll, state) == expected
    dump = tmp_path / "dump"
    jde.export.dynamicemb(dump, coll, state, ranks=ranks, quiet=True)
    again = jde.import_.dynamicemb(dump, coll, quiet=True)
    assert counts_of(coll, again.state) == expected and again.notes == ()
    assert set(export(coll, again.state, "t")) == {9}
    # One more occurrence admits 5, in a sketch too; 2**40 stays outside.
    for counter in (Exact(600), Sketch(1 << 14)):
        other = tables(admission=Frequency(3, counter))
        new = jde.import_.dynamicemb(dump, other, quiet=True).state
        _, _, new = other.lookup(new, {"t": jde.ids([5, 2**40])})
        assert set(export(other, new, "t")) == {5, 9}


def test_counts_without_room_are_said(tmp_path):
    coll = tables(admission=Frequency(9, Exact(512)))
    many = np.arange(2_000)
    given = {"t": (many, 1 + many % 7)}
    dump = tmp_path / "dump"
    jde.export.dynamicemb(dump, coll, coll.init(0), counters=given, quiet=True)
    again = jde.import_.dynamicemb(dump, coll, quiet=True)
    kept = counts_of(coll, again.state)
    assert len(kept) == 512 and all(kept[k] == 1 + k % 7 for k in kept)
    assert any("1488 of 2000 counted ids found no room" in n for n in again.notes)


def test_a_sketch_is_in_no_dump_and_says_so(tmp_path):
    coll = tables(admission=Frequency(3, Sketch(1 << 12)))
    report = jde.export.dynamicemb(tmp_path / "dump", coll, coll.init(0), quiet=True)
    assert any("in a sketch, which has no ids" in note for note in report["t"].notes)


@pytest.mark.parametrize("optimizer", [jde.optim.sgd(0.1), jde.optim.adagrad(0.1)])
def test_updates_of_every_optimizer_are_kept(tmp_path, optimizer):
    coll = tables(optimizer=optimizer)
    state = coll.set_step(coll.init(0), {"t": 1234})
    jde.export.dynamicemb(tmp_path / "dump", coll, state, quiet=True)
    again = jde.import_.dynamicemb(tmp_path / "dump", coll, quiet=True).state
    assert coll.stats(again)["t/step"] == 1234


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("halves", ["values", "values and states"])
def test_rows_of_16_bits_are_read(tmp_path, dtype, halves):
    coll = tables(optimizer=jde.optim.adam(0.1))
    rows, residual, state = coll.lookup(coll.init(0), {"t": jde.ids(np.arange(50))})
    state = coll.apply_gradients(state, residual, {"t": jnp.ones_like(rows["t"])})
    dump, kind = tmp_path / "dump", np.dtype(getattr(ml_dtypes, dtype, dtype))
    jde.export.dynamicemb(dump, coll, state, quiet=True)
    without_sums(dump)
    names = ["emb_values"] + (["emb_opt_values"] if "states" in halves else [])
    for name in names:
        file = dump / f"t_{name}.rank_0.world_size_1"
        np.fromfile(file, "<f4").astype(kind).tofile(file)
    with pytest.raises(ValueError, match='has dim 4. If its rows.*"embedding_dtype"'):
        jde.import_.dynamicemb(dump, coll, quiet=True)
    meta = json.loads((dump / "t_opt_args.json").read_text())
    meta["embedding_dtype"] = f"torch.{dtype}"
    (dump / "t_opt_args.json").write_text(json.dumps(meta))
    again = jde.import_.dynamicemb(dump, coll, quiet=True)
    got, want = export(coll, again.state, "t"), export(coll, state, "t")
    assert again.notes == () and got.keys() == want.keys()
    for key, row in got.items():
        rounded = want[key].values.astype(kind).astype(np.float32)
        np.testing.assert_array_equal(row.values, rounded)
        mu = want[key].state["mu"]
        mu = mu.astype(kind).astype(np.float32) if "states" in halves else mu
        np.testing.assert_array_equal(row.state["mu"], mu)


@pytest.mark.parametrize("order", [("timestamp", "lfu"), ("lfu", "timestamp")])
@pytest.mark.parametrize("said", [True, False])
def test_compound_scores_are_read(tmp_path, order, said):
    coll = tables(score_strategy="lfu")
    state = coll.init(0)
    for ids in ([1, 1, 2], [2, 3], [3, 3, 4]):
        _, _, state = coll.lookup(state, {"t": jde.ids(ids)})
    dump = tmp_path / "dump"
    jde.export.dynamicemb(dump, coll, state, compound={"t": order}, quiet=True)
    if not said:  # as DynamicEmb writes it
        meta = json.loads((dump / "t_opt_args.json").read_text())
        del meta["score_columns"]
        (dump / "t_opt_args.json").write_text(json.dumps(meta))
        without_sums(dump)
    again = jde.import_.dynamicemb(dump, coll, quiet=True)
    assert again.notes == ()
    want = {k: row.score for k, row in export(coll, state, "t").items()}
    assert {k: r.score for k, r in export(coll, again.state, "t").items()} == want
    timed = tables(score_strategy="timestamp")
    rows = export(timed, jde.import_.dynamicemb(dump, timed, quiet=True).state, "t")
    assert sorted(rows, key=lambda k: (rows[k].score, k)) == [1, 2, 3, 4]


def test_customized_scores_are_those_of_the_files(tmp_path):
    coll = tables(score_strategy="customized")
    ids, scores = np.arange(5), np.array([1, 2**30, 2**40, 2**61, 2**62 - 1])
    given = {"t": jde.ids(ids)}, {"t": scores}
    _, _, state = coll.lookup(coll.init(0), given[0], scores=given[1])
    dump = tmp_path / "dump"
    jde.export.dynamicemb(dump, coll, state, quiet=True)
    file = dump / "t_emb_scores.rank_0.world_size_1"
    assert sorted(np.fromfile(file, "<i8").tolist()) == scores.tolist()
    again = jde.import_.dynamicemb(dump, coll, quiet=True)
    rows = export(coll, again.state, "t")
    assert {k: row.score for k, row in rows.items()} == dict(enumerate(scores.tolist()))
    without_sums(dump)
    np.full(5, 2**62, np.int64).tofile(file)
    with pytest.raises(ValueError, match="5 scores of the dump are above"):
        jde.import_.dynamicemb(dump, coll, quiet=True)


def test_counts_beyond_a_row_are_said(tmp_path):
    coll = tables(score_strategy="lfu")
    _, _, state = coll.lookup(coll.init(0), {"t": jde.ids([1, 2])})
    dump = tmp_path / "dump"
    jde.export.dynamicemb(dump, coll, state, quiet=True)
    without_sums(dump)
    scores = np.array([5, 2**40], np.int64)
    scores.tofile(dump / "t_emb_scores.rank_0.world_size_1")
    notes = jde.import_.dynamicemb(dump, coll, quiet=True).notes
    assert any(f"1 counts of the dump, up to {2**40}, became" in note for note in notes)
