# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.hash_ids: one function of the value and the salt, whatever holds the values."""

import ast
import re
import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jax_dynemb as jde
from siphash import reference_id, siphash24

TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
VALUES = st.one_of(TEXT, st.binary(max_size=40), st.integers(-(2**130), 2**130))
WORDS = ["user:1", "", "a", "1234567", "12345678", "Zürich", "日本語", "😀\x00x"]


def expected(values, salt=0):
    return [reference_id(each, salt) for each in values]


def test_the_reference_is_siphash():
    """The paper has this example: key 00 to 0f, message 00 to 0e."""
    assert siphash24(bytes(range(16)), bytes(range(15))) == 0xA129CA6149BE45E5


def test_hashes_are_stable():
    # A change of these numbers would orphan every table trained on strings.
    hashes = jde.hash_ids(["user:1", b"user:1", "", 7, 2**63, -1])
    assert hashes.dtype == np.int64
    assert hashes.tolist() == [
        -2604854645105378236,
        -2604854645105378236,
        -8615371235126802977,
        -2277807408576062917,
        -4248780891913498863,
        7380795064051383813,
    ]
    assert jde.hash_ids(["user:1", 7], salt="clicks").tolist() == [
        -954673828769121292,
        7649769644155731045,
    ]


def test_the_documented_ids_are_right():
    page = Path(__file__).resolve().parents[2] / "docs/api/ids.md"
    row = re.compile(r"^\| (`.+`) \| (\S+) \| (-?\d+) \|$", re.MULTILINE)
    rows = row.findall(page.read_text(encoding="utf-8"))
    assert len(rows) == 8
    for values, salt, wanted in rows:
        for value in re.findall("`(.+?)`", values):
            given, own = eval(value), ast.literal_eval(salt.strip("`"))
            assert (
                reference_id(given, own) == jde.hash_ids([given], own)[0] == int(wanted)
            )


@given(st.lists(VALUES, max_size=12), st.one_of(st.integers(), TEXT))
def test_lists(values, salt):
    hashes = jde.hash_ids(values, salt=salt)
    assert hashes.tolist() == expected(values, salt)
    assert not ((hashes >= -4) & (hashes <= -1)).any()
    jde.ids(hashes)


@pytest.mark.parametrize("dtype", "bhilqBHILQ?")
def test_integers_of_every_width(dtype):
    if dtype == "?":
        array = np.array([True, False])
    else:
        limits = np.iinfo(dtype)
        array = np.array([limits.min, limits.max, 0, 5, limits.max // 2 + 1], dtype)
    assert jde.hash_ids(array).tolist() == expected(int(x) for x in array)
    swapped = array.astype(array.dtype.newbyteorder())
    assert jde.hash_ids(swapped).tolist() == jde.hash_ids(array).tolist()


@given(st.lists(TEXT, max_size=8))
def test_arrays_of_text(words):
    """NumPy strips zeros at a value's end, so they are no part of it."""
    text = np.array(words, "U")
    assert jde.hash_ids(text).tolist() == expected(text.tolist())
    octets = np.array([word.encode() for word in words], "S")
    assert jde.hash_ids(octets).tolist() == expected(octets.tolist())
    objects = np.array(words, object)
    assert jde.hash_ids(objects).tolist() == expected(words)


def test_text_is_its_bytes_and_numbers_are_not_text():
    text, octets, number = jde.hash_ids(["5", b"5", 5]).tolist()
    assert text == octets != number
    assert jde.hash_ids([np.str_("5"), np.bytes_(b"5")]).tolist() == [text] * 2
    assert jde.hash_ids([bytearray(b"5"), memoryview(b"5")]).tolist() == [text] * 2
    assert jde.hash_ids([np.int8(5), np.uint64(5)]).tolist() == [number] * 2
    # The bytes of the integer are not the integer either.
    assert jde.hash_ids([(5).to_bytes(8, "little")])[0] != number


def test_shapes():
    words = np.array([["a", "b", "c"], ["c", "a", ""]])
    flat = jde.hash_ids(["a", "b", "c", "c", "a", ""])
    for array in (words, words.astype("S"), words.astype(object), words.tolist()):
        hashed = jde.hash_ids(array)
        assert hashed.shape == (2, 3)
        assert hashed.ravel().tolist() == flat.tolist()
    assert jde.hash_ids(words.T).tolist() == flat.reshape(2, 3).T.tolist()
    assert jde.hash_ids(np.array("a")).shape == ()
    assert jde.hash_ids(np.arange(12)[::-2]).tolist() == expected(range(11, 0, -2))
    assert jde.hash_ids(word for word in "abc").tolist() == flat[:3].tolist()
    assert jde.hash_ids({"a": 1, "b": 2}.keys()).tolist() == flat[:2].tolist()
    assert jde.hash_ids([[["a"], ["b"]], [["c"], ["c"]]]).shape == (2, 2, 1)


@pytest.mark.parametrize("empty", [[], (), np.empty(0, "U3"), np.empty(0, object)])
def test_nothing(empty):
    hashed = jde.hash_ids(empty)
    assert hashed.dtype == np.int64 and hashed.shape == (0,)


def test_text_of_no_width():
    for dtype in ("U", "S"):
        assert jde.hash_ids(np.array(["", ""], dtype)).tolist() == expected(["", ""])


def test_missing_values_become_padding():
    gone = [None, float("nan"), np.float32("nan"), np.datetime64("NaT", "ns")]
    assert jde.hash_ids(gone).tolist() == [-1] * 4
    mixed = np.array(["a", None, float("nan"), 3], object)
    assert jde.hash_ids(mixed).tolist() == expected(["a", None, None, 3])


@pytest.mark.parametrize("single", ["abc", b"abc", 5])
def test_a_single_value_is_refused(single):
    with pytest.raises(TypeError, match=r"put a single one in a list: \["):
        jde.hash_ids(single)


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        ([1.5], r"not float; a float holds .* \.astype\('int64'\)"),
        (np.array([1.0, np.nan]), r"not float64; a float holds .* dtype='Int64'"),
        (np.array(["2026-01-01"], "M8[D]"), r"not datetime64\[D\]; convert other"),
        ([object()], r"not object; convert other values with str\(\)"),
        ([["a"], "b"], "unequal lengths"),
        ([["a"], ["b", "c"]], r"\[jde.hash_ids\(bag\) for bag in bags\]"),
        (["a", ["b"]], "not list"),
        (jnp.arange(3), "may already have truncated"),
    ],
)
def test_other_values_are_refused_with_the_fix(values, fix):
    with pytest.raises((TypeError, ValueError), match=fix):
        jde.hash_ids(values)


def test_salts():
    assert jde.hash_ids(["a"], salt=1)[0] != jde.hash_ids(["a"])[0]
    assert jde.hash_ids(["a"], salt=1)[0] == jde.hash_ids(["a"], salt="1")[0]
    with pytest.raises(TypeError, match='salt="user"'):
        jde.hash_ids(["a"], salt=1.5)  # pyright: ignore[reportArgumentType]


def test_half_a_surrogate_pair_is_no_text():
    for values in (["a", "\ud800"], np.array(["a", "\ud800"])):
        with pytest.raises(UnicodeEncodeError):
            jde.hash_ids(values)


def test_large_inputs_are_hashed_by_threads():
    numbers = np.arange(-100_000, 200_000)
    words = np.array([f"item {i}" for i in range(100_000)])
    whole = jde.hash_ids(numbers), jde.hash_ids(words)
    for hashes, values in zip(whole, (numbers, words), strict=True):
        small = [jde.hash_ids(part) for part in np.array_split(values, 50)]
        np.testing.assert_array_equal(hashes, np.concatenate(small))
        assert len(np.unique(hashes)) == len(values)
        some = np.arange(0, len(values), 9973)
        assert hashes[some].tolist() == expected(values[some].tolist())
    np.testing.assert_array_equal(jde.hash_ids(words.tolist()), whole[1])
    np.testing.assert_array_equal(jde.hash_ids(pa.array(words)), whole[1])


def test_other_threads_go_on():
    """A thread counts while an array is hashed: the interpreter is not locked."""
    numbers, ticks = np.arange(8_000_000), 0
    done = threading.Event()

    def hash_all():
        jde.hash_ids(numbers)
        done.set()

    thread = threading.Thread(target=hash_all)
    thread.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 3


# ---- Arrow ---------------------------------------------------------------------------

GAPS = [*WORDS, None, "after", None]


@pytest.mark.parametrize(
    "kind", ["string", "large_string", "string_view", "binary", "large_binary"]
)
def test_arrow_text(kind):
    dtype = getattr(pa, kind)()
    array = pa.array(GAPS).cast(pa.binary()).cast(dtype) if "b" in kind else None
    array = pa.array(GAPS, dtype) if array is None else array
    assert jde.hash_ids(array).tolist() == expected(GAPS)
    assert jde.hash_ids(array[3:-1]).tolist() == expected(GAPS[3:-1])
    chunks = pa.chunked_array([array[:4], array[4:4], array[4:]])
    assert jde.hash_ids(chunks).tolist() == expected(GAPS)


@pytest.mark.parametrize("width", ["int8", "int32", "int64", "uint16", "uint64"])
def test_arrow_integers(width):
    high = int(np.iinfo(width).max)
    values = [0, 5, None, high, 7]
    array = pa.array(values, getattr(pa, width)())
    assert jde.hash_ids(array).tolist() == expected(values)
    assert jde.hash_ids(array[2:]).tolist() == expected(values[2:])


def test_arrow_dictionaries_and_others():
    words = ["b", "a", None, "b", "c"]
    encoded = pa.array(words).dictionary_encode()
    assert jde.hash_ids(encoded).tolist() == expected(words)
    assert jde.hash_ids(encoded[1:4]).tolist() == expected(words[1:4])
    with_null = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None]), pa.array(["x", None])
    )
    assert jde.hash_ids(with_null).tolist() == expected(["x", None, None])
    assert jde.hash_ids(pa.nulls(3)).tolist() == [-1] * 3
    assert jde.hash_ids(pa.array([], pa.string())).shape == (0,)
    assert jde.hash_ids(pa.chunked_array([], pa.string())).shape == (0,)
    assert jde.hash_ids(pa.array([True, None])).tolist() == expected([1, None])
    fixed = [b"ab\0", None, b"xyz"]
    array = pa.array(fixed, pa.binary(3))
    assert jde.hash_ids(array).tolist() == expected(fixed)
    assert jde.hash_ids(array[1:]).tolist() == expected(fixed[1:])


class Capsules:
    """Shows what another library's column shows of itself."""

    def __init__(self, array):
        self.array = pa.chunked_array([array])

    def __iter__(self):
        raise AssertionError("one value at a time")

    def __arrow_c_stream__(self, requested_schema=None):
        return self.array.__arrow_c_stream__(requested_schema)


def test_columns_of_other_libraries():
    assert jde.hash_ids(Capsules(pa.array(GAPS))).tolist() == expected(GAPS)


@pytest.mark.parametrize(
    ("values", "fix"),
    [
        (pa.array([1.5]), "a float holds integers up to"),
        (pa.array([["a"]]), r"not Arrow's list<.*convert other"),
        (pa.table({"a": ["x"]}), "hash its columns one by one"),
    ],
)
def test_other_arrow_types_are_refused(values, fix):
    with pytest.raises(TypeError, match=fix):
        jde.hash_ids(values)


# ---- pandas --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["object", "string", "str", "string[python]", None])
def test_pandas_text(dtype):
    pd = pytest.importorskip("pandas")
    words = ["b", "a", None, "Zürich", "b"]
    column = pd.Series(words, dtype=dtype)
    assert jde.hash_ids(column).tolist() == expected(words)
    assert jde.hash_ids(column[::2]).tolist() == expected(words[::2])
    assert jde.hash_ids(pd.Index(column)).tolist() == expected(words)
    assert jde.hash_ids(column.astype("category")).tolist() == expected(words)
    assert jde.hash_ids(pd.Categorical(words)).tolist() == expected(words)


def test_pandas_numbers():
    pd = pytest.importorskip("pandas")
    assert jde.hash_ids(pd.Series([5, 7])).tolist() == expected([5, 7])
    assert jde.hash_ids(pd.RangeIndex(3)).tolist() == expected(range(3))
    gaps = pd.Series([5, None, 2**62 + 1], dtype="Int64")
    assert jde.hash_ids(gaps).tolist() == expected([5, None, 2**62 + 1])
    assert jde.hash_ids(gaps.astype("int64[pyarrow]"))[1] == -1
    assert jde.hash_ids(pd.Series(["a", pd.NA], dtype=object))[1] == -1
    with pytest.raises(TypeError, match="dtype='Int64'"):
        jde.hash_ids(pd.Series([5, None]))
    with pytest.raises(TypeError, match="columns one by one"):
        jde.hash_ids(pd.DataFrame({"a": [1]}))
