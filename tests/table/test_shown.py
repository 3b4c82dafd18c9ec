# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Configs, tables, states, residuals, plans and counters are short at a prompt."""

import html.parser
import json

import jax
import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of

CONFIG = jde.TableConfig(
    "cat",
    8,
    4096,
    pooling="sum",
    hash_seed=77_777,
    optimizer=jde.optim.adam(0.1),
)
TRAIN = jde.TTConfig("tt", 8, 1000, 4)


def things():
    coll = jde.Tables([CONFIG, TRAIN])
    state = coll.init(0)
    ids = {"cat": jde.ids([[1, 2]]), "tt": jde.ids([3])}
    _, residual, state = coll.lookup(state, ids)
    on_mesh = jde.Tables([CONFIG], mesh=mesh_of(2))
    return {
        "config": CONFIG,
        "train": TRAIN,
        "tables": coll,
        "state": state["cat"],
        "cores": state["tt"],
        "residual": residual,
        "plan": on_mesh.plan({"cat": 64}),
        "stats": coll.stats(state),
    }


class Tags(html.parser.HTMLParser):
    """Checks that tags are closed in order, and collects the text."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize(
    ("name", "says"),
    {
        "config": "TableConfig(name='cat', dim=8, capacity=4096, ",
        "train": "TTConfig(name='tt', dim=8, num_embeddings=1000, ",
        "tables": "Tables(cat: 4096 x 8, tt: 1000 x 8)",
        "state": "values=float32[4096, 8], optimizer={mu: float32[4096, 8]",
        "cores": "TTState(cores=(float32[",
        "residual": "slots=int32[2]",
        "plan": "Plan(tables=(TablePlan(table='cat', sharding='row_wise'",
        "stats": "'cat/rows': 2",
    }.items(),
)
def test_a_prompt_and_a_notebook_show_it_in_few_words(name, says):
    x = things()[name]
    assert says in repr(x)
    assert len(repr(x)) < (1000 if name == "stats" else 600)
    assert "77777" not in repr(x) and "array" not in repr(x).lower()
    tags = Tags()
    tags.feed(x._repr_html_())
    assert not tags.open and "77777" not in "".join(tags.text)
    assert any(word in "".join(tags.text) for word in ("cat", "tt", "TTState"))


def test_html_of_names_is_escaped():
    coll = jde.Tables([jde.TableConfig("a<b>", 4, 128)])
    assert "a&lt;b&gt;" in coll._repr_html_() and "<b>" not in coll._repr_html_()
    assert "a&lt;b&gt;" in coll.stats(coll.init(0))._repr_html_()


def test_counters_are_a_dict_for_everyone_else():
    stats = things()["stats"]
    assert json.loads(json.dumps(stats)) == stats == dict(stats)
    doubled = jax.tree.map(lambda x: 2 * x, stats)
    assert doubled["cat/rows"] == 4 and doubled.keys() == stats.keys()
    assert np.isscalar(jax.tree.leaves(stats)[0])
