# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
import numpy as np

from ctr import synthetic

STREAM = synthetic.Stream(rows=7_000)


def test_new_ids_keep_arriving():
    source = synthetic.load(STREAM, seed=1)
    seen = np.zeros(0, np.int64)
    for epoch in range(STREAM.pieces):
        train, _ = source.epoch(epoch)
        articles = np.unique(train.ids["article"])
        assert np.mean(~np.isin(articles, seen)) > 0.2
        seen = np.union1d(seen, articles)


def test_the_test_rows_of_an_epoch_follow_its_training_rows():
    source = synthetic.load(STREAM, seed=1)
    _, test = source.epoch(0)
    train, _ = source.epoch(1)
    np.testing.assert_array_equal(test.labels, train.labels[: len(test)])


def test_a_stream_is_a_function_of_its_seed():
    first, second, other = (synthetic.load(STREAM, seed=s) for s in (3, 3, 4))
    labels = [source.epoch(0)[0].labels for source in (first, second, other)]
    np.testing.assert_array_equal(labels[0], labels[1])
    assert (labels[0] != labels[2]).any()


def test_the_last_batch_is_filled_up_with_rows_that_do_not_count():
    train, _ = synthetic.load(STREAM).epoch(0)
    batches = list(train.batches(300))
    assert {len(batch) for batch in batches} == {300}
    assert sum(batch.weights.sum() for batch in batches) == len(train)
    last = batches[-1]
    filler = last.weights == 0
    assert filler.any()
    assert all((column[filler] == -1).all() for column in last.ids.values())
