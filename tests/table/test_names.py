# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names are checked when they are declared, and the name that is advised is taken."""

import re

import numpy as np
import pytest

import jax_dynemb as jde

REFUSED = [
    "",
    ".",
    "..",
    "a/b",
    "../x",
    "a\\b",
    "nul\0",
    "line\nfeed",
    "\x7f",
    "\x85",
    "half \ud800",
    "x.delta-000001",
    "a.delta-000001.delta-1234567",
    "x.tmp-12",
    "n" * 181,
    "ü" * 91,
    "/" * 500,
    5,
    None,
    b"bytes",
]
TAKEN = [
    "model.ebc.t_cat_0",
    "x.manifest",
    "x.delta-1",
    ".hidden",
    "...",
    "with space",
    "größe",
    "表",
    "x.safetensors",
    "[a]*?",
    "n" * 180,
]


def declared(kind, name):
    if kind == "table":
        return jde.TableConfig(name, 4, 128)
    if kind == "train":
        return jde.TTConfig(name, 16, 100, ranks=2, residual=128)
    bag = jde.torchrec.EmbeddingBagConfig(100, 4, name, feature_names=["f"])
    return bag.to_table()


def advised(message):
    return eval(re.search(r"write name=('.*'|\".*\")$", message)[1])


@pytest.mark.parametrize("kind", ["table", "train", "torchrec"])
@pytest.mark.parametrize("name", REFUSED, ids=lambda name: ascii(name)[:30])
def test_a_refused_name_comes_with_one_that_is_taken(kind, name):
    with pytest.raises(ValueError, match="write name=") as error:
        declared(kind, name)
    message = str(error.value)
    assert len(message) < 500
    fitting = advised(message)
    assert declared(kind, fitting).name == fitting


def test_cut_names_stay_apart():
    names = ["n" * 200 + end for end in "ab"]
    fitting = []
    for name in names:
        with pytest.raises(ValueError, match="180 bytes") as error:
            declared("table", name)
        fitting.append(advised(str(error.value)))
    assert fitting[0] != fitting[1]


def test_files_hold_the_names_that_are_taken(tmp_path):
    names = [*TAKEN, "x"]  # whose files none of the others' may be
    coll = jde.Tables([jde.TableConfig(name, 4, 256) for name in names])
    ids = {name: np.arange(100 * n, 100 * n + 9) for n, name in enumerate(names)}
    _, _, state = coll.lookup(coll.init(0), {n: jde.ids(i) for n, i in ids.items()})

    jde.export.safetensors(tmp_path / "files", coll, state)
    jde.export.dynamicemb(tmp_path / "dump", coll, state)
    jde.checkpoint.save(tmp_path / "steps", 1, state, tables=coll, wait=True)
    restored = jde.checkpoint.restore(tmp_path / "steps", coll.init(0), tables=coll)
    for read in (
        restored.tree,
        jde.import_.safetensors(tmp_path / "files", coll, coll.init(0)).state,
        jde.import_.dynamicemb(tmp_path / "dump", coll, coll.init(0)).state,
    ):
        found = {name: sorted(keys_of(coll, read, name)) for name in names}
        assert found == {name: each.tolist() for name, each in ids.items()}


def keys_of(coll, state, name):
    return [key for chunk in coll.export(state, name) for key in chunk.keys.tolist()]


def test_logs_hold_the_names_that_are_taken(tmp_path):
    for name in (*TAKEN, "x"):
        with jde.stores.Log(tmp_path / name, jde.TableConfig(name, 4, 512)):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {*TAKEN, "x"}


@pytest.mark.parametrize("name", ["", "a\0", "half \udfff", "tab\t", 7, ["f"]])
@pytest.mark.parametrize("kind", ["table", "train"])
def test_a_refused_feature_comes_with_one_that_is_taken(kind, name):
    def config(feature):
        if kind == "table":
            return jde.TableConfig("t", 4, 128, feature_names=(feature,))
        return jde.TTConfig("t", 16, 100, ranks=2, feature_names=(feature,))

    with pytest.raises(ValueError, match="Table .t.: feature") as error:
        config(name)
    fitting = eval(str(error.value).rpartition("; write ")[2])
    assert config(fitting).feature_names == (fitting,)


def test_features_may_have_separators():
    config = jde.TableConfig("t", 4, 128, feature_names=("user/id", "a\\b", "."))
    coll = jde.Tables([config])
    rows, _, _ = coll.lookup(coll.init(0), {"user/id": jde.ids([1, 2])})
    assert rows["user/id"].shape == (2, 4)
