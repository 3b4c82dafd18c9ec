# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from ctr import criteo
from ctr.clicks import PADDING

HEADER = ["label", *criteo.NUMBERS, *criteo.CATEGORIES]


def line(label, number, category):
    numbers = [number] + [""] * 12
    categories = [category] + ["68fd1e64"] * 24 + [""]
    return [str(label), *numbers, *categories]


ROWS = [line(0, "3", "05db9164"), line(1, "-2", "05db9164"), line(1, "", "be589b51")]


def write(path, separator, header):
    lines = ([HEADER] if header else []) + ROWS
    text = "\n".join(separator.join(fields) for fields in lines)
    path.write_text(text + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize("header", [True, False])
def test_reads_every_spelling_of_the_format(tmp_path, separator, header):
    source = criteo.load(write(tmp_path / "day.txt", separator, header))
    train, test = source.epoch(0)
    assert (len(train), len(test)) == (3, 0) or len(train) + len(test) == 3
    assert source.features == criteo.CATEGORIES
    assert source.dense_width == 13
    labels = np.concatenate([train.labels, test.labels])
    np.testing.assert_array_equal(labels, [0.0, 1.0, 1.0])


def test_missing_and_negative_values(tmp_path):
    source = criteo.load(write(tmp_path / "day.txt", "\t", False))
    train, _ = source.epoch(0)
    np.testing.assert_allclose(train.dense[:2, 0], [np.log1p(3.0), 0.0])
    np.testing.assert_array_equal(train.dense[:, 1:], 0.0)
    assert train.ids["C1"][0] == train.ids["C1"][1] != PADDING
    assert (train.ids["C26"] == PADDING).all()
    assert train.ids["C2"][0] != train.ids["C3"][0], "columns are hashed apart"


def test_stops_after_so_many_rows(tmp_path):
    path = write(tmp_path / "day.txt", ",", True)
    train, test = criteo.load(path, most_rows=2).epoch(0)
    assert len(train) + len(test) == 2


def test_a_short_line_is_refused(tmp_path):
    path = write(tmp_path / "day.txt", ",", True)
    path.write_text(path.read_text() + "1,2,3\n")
    with pytest.raises(ValueError, match="line 5: 3 fields instead of 40"):
        criteo.load(path)
