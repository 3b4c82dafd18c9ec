# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Leaves beside tables come back as the type that they were, or are refused by save."""

import datetime
import enum
import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_dynemb as jde

COLL = jde.Tables([jde.TableConfig("cat", dim=4, capacity=256)])


class Colour(enum.IntEnum):
    RED = 3


class Word(str):
    """A type of string that prints as another one."""

    __slots__ = ()

    def __str__(self) -> str:
        return "word"


LEAVES = {
    "np.int64": (np.int64(7), np.int64(0)),
    "np.float32": (np.float32(1.5), np.float32(0)),
    "np.bool": (np.bool_(True), np.bool_(False)),
    "np.complex64": (np.complex64(1j), np.complex64(0)),
    "bfloat16": (ml_dtypes.bfloat16(1.5), ml_dtypes.bfloat16(0)),
    "np.array": (np.arange(6).reshape(2, 3), np.zeros((2, 3), int)),
    "bool": (True, False),
    "int": (2**64 - 1, 0),
    "negative": (-(2**63), 0),
    "float": (0.1, 0.0),
    "infinite": (math.inf, 0.0),
    "str": ("é\n☃", ""),
    "empty": ("", "x"),
    "bytes": (b"\x00\xffb", b""),
    "enum": (Colour.RED, Colour.RED),
    "word": (Word("high"), Word("")),
    "None": (None, None),
}


def saved(folder, extra, step=1) -> dict:
    _, _, state = COLL.lookup(COLL.init(0), {"cat": jde.ids(np.arange(50))})
    tree = {"tables": state, "extra": extra}
    jde.checkpoint.save(folder, step, tree, tables=COLL, wait=True)
    return tree


def test_types_stay(tmp_path):
    saved(tmp_path, {name: leaf for name, (leaf, _) in LEAVES.items()})
    like = {"tables": COLL.init(0), "extra": {n: x for n, (_, x) in LEAVES.items()}}
    restored = jde.checkpoint.restore(tmp_path, like, tables=COLL)
    assert restored.notes == ()
    for name, (leaf, _) in LEAVES.items():
        found = restored.tree["extra"][name]
        assert type(found) is type(leaf), name
        np.testing.assert_array_equal(found, leaf)
    assert COLL.stats(restored.tree["tables"])["cat/rows"] == 50


def test_not_a_number_and_random_keys(tmp_path):
    keys = {"typed": jax.random.key(3), "raw": jax.random.PRNGKey(3)}
    keys["many"] = jax.random.split(jax.random.key(4, impl="rbg"), (2, 3))
    saved(tmp_path, {"nan": math.nan, **keys})
    blank = {"typed": jax.random.key(0), "raw": jnp.zeros(2, jnp.uint32)}
    blank["many"] = jax.random.split(jax.random.key(0, impl="rbg"), (2, 3))
    like = {"tables": COLL.init(0), "extra": {"nan": 0.0, **blank}}
    found = jde.checkpoint.restore(tmp_path, like, tables=COLL).tree["extra"]
    assert math.isnan(found["nan"])
    for name, key in keys.items():
        assert found[name].dtype == key.dtype
        words = key if name == "raw" else jax.random.key_data(key)
        again = found[name] if name == "raw" else jax.random.key_data(found[name])
        np.testing.assert_array_equal(again, words)


REFUSED = {
    "datetime": (datetime.datetime(2026, 1, 1), TypeError, "'x' is a datetime, which"),
    "set": ({1, 2}, TypeError, "'x' is a set, which"),
    "function": (len, TypeError, "which a checkpoint does not store"),
    "complex": (1j, TypeError, "'x' is a complex"),
    "large": (2**64, ValueError, r"Save it as a string: str\(x\)"),
    "objects": (np.array([None]), TypeError, "ndarray of dtype object"),
    "strings": (np.array(["a"]), TypeError, r"or strings: x\.tolist\(\)"),
    "np.str": (np.str_("a"), TypeError, "str_ of dtype <U1"),
    "time": (np.datetime64("2026"), TypeError, "datetime64 of dtype"),
    "bytes order": (np.zeros(3, ">i4"), TypeError, "byte order"),
    "mask": (np.ma.masked_array([1, 2], [True, False]), TypeError, "without masks"),
    "empty": (jnp.zeros((0, 3)), ValueError, r"shape \[0, 3\], without elements"),
    "abstract": (jax.ShapeDtypeStruct((2,), "int32"), TypeError, "does not store"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_could_not_come_back_is_refused_by_save(kind, tmp_path):
    leaf, error, match = REFUSED[kind]
    with pytest.raises(error, match=match):
        jde.checkpoint.save(tmp_path, 1, {"x": leaf, "y": jnp.ones(2)}, wait=True)
    assert not list(tmp_path.iterdir())


NAMES = {
    "a dot": {"a.b": 1, "a": {"b": 2}},
    "a slash": {"a/b": 1, "a": {"b": 2}},
    "a folder": {"a": jnp.ones(2), "a/b": jnp.ones(3)},
    "our file": {"jax_dynemb": {"json": jnp.ones(2)}},
    "checksums": {"checksums": {"0": {"json": jnp.ones(2)}}},
    "orbax's file": {"_METADATA": jnp.ones(2)},
    "nothing": {"": jnp.ones(2)},
    "above": {"..": jnp.ones(2)},
    "outside": {"a/../../b": jnp.ones(2)},
    "absolute": {"/tmp/b": jnp.ones(2)},
    "a zero": {"a\0b": jnp.ones(2)},
    "too long": {"x" * 300: jnp.ones(2)},
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_that_would_share_or_leave_files_are_refused(kind, tmp_path):
    with pytest.raises(ValueError, match=r"Rename (one of them|the key)"):
        jde.checkpoint.save(tmp_path, 1, NAMES[kind], wait=True)
    assert not list(tmp_path.iterdir())


def test_other_names_with_dots_and_slashes_stay(tmp_path):
    tree = {"mlp/~/linear.0": {"w": jnp.ones(2)}, "mlp/~/linear.1": {"w": jnp.zeros(2)}}
    jde.checkpoint.save(tmp_path, 1, tree, wait=True)
    found = jde.checkpoint.restore(tmp_path, jax.tree.map(lambda x: x - 5, tree)).tree
    jax.tree.map(np.testing.assert_array_equal, found, tree)


def test_trees_without_an_end(tmp_path):
    endless: list = [jnp.ones(2)]
    endless.append(endless)
    for tree in (endless, {"a": endless}, {"a": [{"b": endless}]}):
        with pytest.raises(ValueError, match="holds itself"):
            jde.checkpoint.save(tmp_path, 1, tree)
    deep: list = [jnp.ones(2)]
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ValueError, match="200 levels deep"):
        jde.checkpoint.save(tmp_path, 1, deep)
    twice = [jnp.ones(2)]  # one object in two places has an end
    jde.checkpoint.save(tmp_path, 1, {"a": twice, "b": [twice]}, wait=True)
    with pytest.raises(ValueError, match="holds itself"):
        jde.checkpoint.restore(tmp_path, endless)


def test_nothing_is_given_up_before_all_leaves_fit(tmp_path):
    saved(tmp_path, np.int64(7))
    for other in (7, 7.0, "7", b"7", jnp.zeros(3), object()):
        state = COLL.lookup(COLL.init(0), {"cat": jde.ids(np.arange(9))})[2]
        like = {"tables": state, "extra": other}
        with pytest.raises(ValueError, match=r"'extra' was saved as int64\[\]"):
            jde.checkpoint.restore(tmp_path, like, tables=COLL)
        assert COLL.stats(state)["cat/rows"] == 9
