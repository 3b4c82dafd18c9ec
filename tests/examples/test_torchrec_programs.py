# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The examples in the form of TorchRec's, and the lines in them that JAX forces."""

import datetime
import pathlib
import re

import jax
import numpy as np
import pytest

import jax_dynemb as jde
import torchrec_bert4rec
import torchrec_managed_collision
import torchrec_pretrained
import torchrec_two_tower
from jax_dynemb.torchrec import KeyedJaggedTensor

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.slow
def test_two_towers_learn_who_likes_what_and_are_served_with_packed_rows():
    whole, packed = torchrec_two_tower.main()
    assert whole > 0.95 and packed > 0.95


@pytest.mark.slow
def test_hidden_items_are_named():
    found = torchrec_bert4rec.main(steps=250)
    assert found > 0.4  # one of 60 by chance


def test_managed_collision_keeps_what_is_used_often():
    arch, counts = torchrec_managed_collision.main(num_iters=12)
    often = set((np.arange(40) * 2**33).tolist())
    for table in ("table_0", "table_1"):
        assert counts[f"{table}/rows"] <= 256 and counts[f"{table}/evicted"] > 0
        chunks = list(arch.ec.coll.export(arch.ec.get_state(), table))
        assert often <= set(np.concatenate([chunk.keys for chunk in chunks]).tolist())
    assert list(arch.expiry) == [None, None]


def test_managed_collision_by_time_gives_a_rule():
    arch, counts = torchrec_managed_collision.main(use_mpzch=True, num_iters=12)
    assert counts["table_0/evicted"] > 0
    hour = jde.lifecycle.Rule(unused_for=datetime.timedelta(hours=1))
    assert [str(rule) for rule in arch.expiry] == [str(hour)] * 2


def test_weights_of_another_model_are_read_from_all_shards():
    ebc, emb = torchrec_pretrained.main(2_000)
    (table,) = ebc.plan.tables
    assert table.sharding == "row_wise"
    ebc.eval()
    ids = np.random.default_rng(1).permutation(2_000)
    bags = KeyedJaggedTensor(["f"], ids, lengths=np.full(1_000, 2))
    pooled = jax.device_get(ebc(bags)["f"])
    np.testing.assert_allclose(pooled, emb[ids].reshape(-1, 2, 64).sum(1), rtol=1e-6)


def test_the_page_counts_the_lines_that_jax_forces():
    page = (ROOT / "docs/concepts/torchrec.md").read_text()
    rows = re.findall(r"^\| `(\w+\.py)` \|.*\| (\d+) of (\d+) \|", page, re.MULTILINE)
    assert len(rows) == 5
    for name, forced, every in rows:
        text = (ROOT / "examples" / name).read_text()
        code = [line for line in text.splitlines() if line.strip()]
        marked = [line for line in code if line.endswith(("# JAX", "# table"))]
        assert (int(forced), int(every)) == (len(marked), len(code)), name
