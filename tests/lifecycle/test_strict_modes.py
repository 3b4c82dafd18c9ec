# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every call of a table's life under debug_nans and with 64-bit types: equal numbers.

All tests of this directory run under strict promotion of types and ranks.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb.admission import Exact, Frequency, Sketch
from jax_dynemb.lifecycle import Rule

MODES = {"jax_debug_nans": True, "jax_enable_x64": True}
IDS = np.append(np.arange(40), [-1, -1, 3, 3])
TABLES = [
    jde.TableConfig("step", 4, 512, log_removed=64, keep_for=2),
    jde.TableConfig("sketch", 4, 512, admission=Frequency(2, Sketch(1 << 12))),
    jde.TableConfig("exact", 4, 512, admission=Frequency(2, Exact(512))),
    jde.TableConfig("lfu", 4, 512, score_strategy="lfu"),
    jde.TableConfig("fades", 4, 512, score_strategy="lfu", lfu_halflife=4),
    jde.TableConfig("given", 4, 512, score_strategy="customized"),
]
EVERY = {
    "all": Rule(unused_for=0, norm_below=0.4, keep_at_least=3),
    "any": Rule(unused_since=1, norm_below=0.4, combine="any", keep_at_most=30),
}
RULES: dict[str, Mapping[str, Rule]] = {
    "of all": dict.fromkeys((t.name for t in TABLES), EVERY["all"]),
    "of any": dict.fromkeys((t.name for t in TABLES), EVERY["any"]),
    "of some": {
        "lfu": Rule(count_below=2),
        "fades": Rule(count_below=2),
        "given": Rule(score_below=5),
    },
}


def live(coll: jde.Tables) -> dict[str, Any]:
    """Calls everything once; numbers of what came of it."""
    ids = {t.name: jde.ids(IDS) for t in TABLES}
    size = IDS.size
    numbers = {"lfu": np.full(size, 2, np.int32), "fades": np.full(size, 3, np.int32)}
    state = coll.init(0)
    for _ in range(2):
        rows, residual, state = coll.lookup(
            state,
            ids,
            scores={"given": np.arange(size, dtype=np.int32)},
            counts=numbers,
            stats=True,
        )
        state = coll.apply_gradients(state, residual, rows)
    results: dict[str, Any] = {
        "features": coll.feature_stats(residual),
        "buckets": coll.bucket_stats(state),
    }
    for name, rules in RULES.items():
        results[name], _ = coll.erase_where(state, rules, dry_run=True)
    for name, rule in RULES["of some"].items():
        kept = list(coll.export(state, name, where=rule))
        results[f"{name} kept"] = sum(len(chunk.keys) for chunk in kept)
    state = coll.pin(state, {"lfu": ids["lfu"][:4]})
    state = coll.decay(state, {"lfu": 0.5})
    _, _, state = coll.find(state, ids, touch=True)
    results["left"], state = coll.erase_where(state, RULES["of all"])
    state = coll.unpin(state, {"lfu": ids["lfu"][:2]})
    _, _, state = coll.lookup(state, ids, insert=False, touch=False)
    state = coll.erase(state, {"step": ids["step"][:3]})
    results["removed"] = coll.take_removed(state, "step")[0]
    results["waiting"] = coll.admission_counts(state, "exact")
    state = coll.set_score(state, {"step": 100})
    coll, state = coll.grow(state, {"sketch": 1024})
    results["stats"] = coll.stats_async(state).result()
    return results


@functools.cache
def usual() -> dict[str, Any]:
    """Returns what comes of the tables in the usual mode."""
    return live(jde.Tables(TABLES))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_changes_nothing(mode):
    wanted, before = usual(), getattr(jax.config, mode)
    jax.config.update(mode, MODES[mode])
    try:
        got = live(jde.Tables(TABLES))
    finally:
        jax.config.update(mode, before)
    jax.tree.map(np.testing.assert_array_equal, got, wanted)
    assert wanted["stats"]["sketch/not_admitted"] > 0
    assert int(wanted["of some"]["given"]) > 0
