# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics equal TorchRec's numbers and closed forms in float64, however merged."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import jax_dynemb as jde
from golden.load_golden import misc
from meshes import mesh_of

m = jde.metrics
RATES = (m.NE, m.Calibration, m.CTR, m.LogLoss)


def entropy(p, y):
    p = np.asarray(p, np.float64)
    click = np.log2(np.maximum(p, 1e-12))
    return -y * click - (1 - y) * np.log2(np.maximum(1 - p, 1e-12))


def expected(metric, p, y, w):
    p, y, w = (np.asarray(x, np.float64) for x in (p, y, w))
    clicks, others = (w * y).sum(), (w * (1 - y)).sum()
    mean = clicks / (clicks + others)
    if metric is m.NE:
        base = -clicks * np.log2(mean) - others * np.log2(1 - mean)
        return (w * entropy(p, y)).sum() / base
    if metric is m.Calibration:
        return (w * p).sum() / clicks
    if metric is m.CTR:
        return mean
    if metric is m.LogLoss:
        return (w * entropy(p, y)).sum() / w.sum()
    won = (p[:, None] > p[None, :]) + 0.5 * (p[:, None] == p[None, :])
    pairs = (w * y)[:, None] * (w * (1 - y))[None, :]
    return (won * pairs).sum() / pairs.sum()


def examples(n, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.random(n).astype(np.float32)
    y = (rng.random(n) < p).astype(np.float32)
    y[:2] = 0, 1
    return p, y, rng.uniform(0.5, 2, n).astype(np.float32)


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (m.NE, "ne"),
        (m.Calibration, "calibration"),
        (m.CTR, "ctr"),
        (m.LogLoss, "logloss_log2"),
        (m.AUC, "auc"),
    ],
)
def test_golden_numbers(metric, name):
    golden = misc()["metrics"]
    inputs = (golden[key] for key in ("predictions", "labels", "weights"))
    got = metric.from_model_output(*inputs).compute()
    np.testing.assert_allclose(got, golden[name].reshape(()), rtol=2e-6)


@pytest.mark.parametrize("metric", [*RATES, m.AUC])
@pytest.mark.parametrize("cuts", [(), (1,), (100, 100, 101, 390)])
def test_merged_batches_equal_one(metric, cuts):
    p, y, w = examples(400)
    whole = metric.empty()
    for some in zip(*(np.split(x, cuts) for x in (p, y, w)), strict=True):
        whole = whole.merge(metric.from_model_output(*some))
    np.testing.assert_allclose(whole.compute(), expected(metric, p, y, w), rtol=2e-6)


@pytest.mark.parametrize("metric", [*RATES, m.AUC])
def test_under_jit_and_scan(metric):
    batches = [x.reshape(16, 64) for x in examples(1024)]
    start = metric.empty(2048) if metric is m.AUC else metric.empty()

    @jax.jit
    def run(batches):
        def body(seen, batch):
            return seen.merge(metric.from_model_output(*batch)), None

        return jax.lax.scan(body, start, batches)[0].compute()

    want = expected(metric, *(x.ravel() for x in batches))
    np.testing.assert_allclose(run(batches), want, rtol=2e-6)


@pytest.mark.parametrize("metric", [*RATES, m.AUC])
def test_devices_merge_inside_shard_map(metric):
    batch = examples(8 * 50)

    def body(*batch):
        return metric.from_model_output(*batch).all_reduce("data").compute()

    split = PartitionSpec("data")
    run = jax.shard_map(
        body,
        mesh=mesh_of(8),
        in_specs=split,
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    got = jax.jit(run)(*batch)
    np.testing.assert_allclose(got, expected(metric, *batch), rtol=2e-6)


def test_a_billion_examples_add_up():
    """Sums that float32 alone would stop at 2**24."""
    batch = m.CTR.from_model_output(np.full(1024, 0.5), np.arange(1024) % 4 == 0)
    counted = jax.lax.fori_loop(
        0, 1_000_000, lambda _, seen: seen.merge(batch), m.CTR.empty()
    )
    exact = np.float64(counted.high) + np.float64(counted.low)
    np.testing.assert_array_equal(exact, [256e6, 1024e6])


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=60, max_size=60))
def test_sums_have_twice_the_bits(numbers):
    ones = np.ones(len(numbers), np.float32)
    batch = m.Calibration.from_model_output(np.float32(numbers), ones)
    got = np.float64(batch.high) + np.float64(batch.low)
    want = np.sum(np.float64(np.float32(numbers)))
    scale = np.sum(np.abs(np.float64(np.float32(numbers))))
    np.testing.assert_allclose(got[0], want, rtol=0, atol=scale * 2.0**-44)


@given(st.data())
def test_auc_counts_ties_one_half(data):
    n = 48  # one shape, one compilation; weight 0 makes fewer of them
    levels = st.integers(0, 4)
    p = np.float32(data.draw(st.lists(levels, min_size=n, max_size=n)))
    y = np.float32(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    y[:2] = 0, 1
    w = np.float32(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    w[:2] = 1
    got = m.AUC.from_model_output(p, y, w).compute()
    np.testing.assert_allclose(got, expected(m.AUC, p, y, w), rtol=1e-6)


def test_auc_keeps_the_latest_examples():
    p, y, w = examples(500)
    seen = m.AUC.empty(window=128)
    for n in range(0, 500, 50):
        seen = seen.merge(m.AUC.from_model_output(*(x[n : n + 50] for x in (p, y, w))))
    assert seen.predictions.shape == (128,)
    want = expected(m.AUC, *(x[-128:] for x in (p, y, w)))
    np.testing.assert_allclose(seen.compute(), want, rtol=2e-6)


def test_what_has_no_value():
    ones = np.ones(4, np.float32)
    assert m.AUC.from_model_output(ones / 2, ones).compute() == 0.5
    assert m.AUC.empty().compute() == 0.5
    for metric in RATES:
        assert np.isnan(metric.empty().compute())
    assert np.isnan(m.NE.from_model_output(ones / 2, ones).compute())
    scores = np.float32([0.5, np.nan])
    assert np.isnan(m.AUC.from_model_output(scores, ones[:2]).compute())


@pytest.mark.parametrize("metric", [*RATES, m.AUC])
def test_examples_of_weight_zero_count_for_nothing(metric):
    p, y, w = examples(60)
    more = np.append(p, np.nan), np.append(y, 1), np.append(w, 0)
    got = metric.from_model_output(*more).compute()
    np.testing.assert_allclose(got, expected(metric, p, y, w), rtol=2e-6)


def test_certain_predictions_are_clamped():
    p, y = np.float32([0, 1, 0.5]), np.float32([1, 0, 1])
    want = entropy(p, y).mean()
    got = m.LogLoss.from_model_output(p, y).compute()
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("metric", RATES)
def test_window_and_lifetime(metric):
    batches = [examples(64, seed) for seed in range(7)]
    seen = m.Windowed.of(metric, batches=3)
    merge = jax.jit(lambda seen, batch: seen.merge(metric.from_model_output(*batch)))
    for n, batch in enumerate(batches, 1):
        seen = merge(seen, batch)
        got = seen.compute()
        for name, some in {"window": batches[:n][-3:], "lifetime": batches[:n]}.items():
            joined = [np.concatenate(x) for x in zip(*some, strict=True)]
            want = expected(metric, *joined)
            np.testing.assert_allclose(got[name], want, rtol=2e-6)


def test_batches_merge_as_users_of_clu_write_it():
    parts = [examples(32, seed) for seed in range(3)]
    made = [m.NE.from_model_output(*part) for part in parts]
    whole = functools.reduce(lambda a, b: a.merge(b), made)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *made).reduce()
    np.testing.assert_allclose(stacked.compute(), whole.compute(), rtol=1e-7)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="squeeze or broadcast"):
        m.NE.from_model_output(np.zeros((4, 1)), np.zeros(4))
    with pytest.raises(ValueError, match="1 example or more"):
        m.AUC.empty(0)
    with pytest.raises(ValueError, match="1 batch or more"):
        m.Windowed.of(m.NE, 0)


def test_auc_ignores_the_label_of_weight_0_and_shows_any_other_nan():
    p, y = jnp.array([0.3, 0.2, 0.1]), jnp.array([1, 0, jnp.nan])
    padded = m.AUC.from_model_output(p, y, jnp.array([1.0, 1, 0]))
    assert float(padded.compute()) == 1.0
    assert np.isnan(m.AUC.from_model_output(p, y).compute())


@pytest.mark.parametrize("metric", [m.AUC, *RATES])
def test_two_kinds_are_not_merged(metric):
    other = m.CTR if metric is not m.CTR else m.Calibration
    with pytest.raises(TypeError, match=f"{metric.__name__}.merge takes another"):
        metric.empty().merge(other.empty())


def test_windows_are_checked():
    with pytest.raises(TypeError, match=r"AUC\.empty\(window\)"):
        m.Windowed.of(m.AUC, 2)
    for window in (1.5, "a"):
        with pytest.raises(ValueError, match="window of 1 batch"):
            m.Windowed.of(m.NE, window)
        with pytest.raises(ValueError, match="window of 1 example"):
            m.AUC.empty(window)
