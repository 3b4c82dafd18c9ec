# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from ctr import movielens
from ctr.clicks import PADDING

INTER = """user_id:token\titem_id:token\trating:float\ttimestamp:float
u1\ti1\t5\t30
u2\ti2\t3\t10
u1\ti2\t4\t20
"""
USER = """user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token
u1\t24\tM\tother\t85711
u2\t53\tF\tother\t
"""
ITEM = """item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq
i1\tA Film\t1995\tComedy Drama
i2\tB\t\t
"""


@pytest.fixture
def folder(tmp_path):
    for ending, text in (("inter", INTER), ("user", USER), ("item", ITEM)):
        (tmp_path / f"tiny.{ending}").write_text(text, encoding="utf-8")
    return tmp_path


def joined(folder):
    train, test = movielens.load(folder).epoch(0)
    assert len(train) + len(test) == 3
    names = train.ids
    return {name: np.concatenate([train.ids[name], test.ids[name]]) for name in names}


def test_rows_come_in_time_order_and_a_like_is_four_stars(folder):
    source = movielens.load(folder)
    train, test = source.epoch(0)
    labels = np.concatenate([train.labels, test.labels])
    np.testing.assert_array_equal(labels, [0.0, 1.0, 1.0])
    assert source.features == (
        "user",
        "item",
        "age",
        "gender",
        "occupation",
        "zip",
        "year",
        "genre",
    )


def test_equal_values_get_equal_ids_and_features_differ(folder):
    ids = joined(folder)
    user, item = ids["user"], ids["item"]
    assert user[1] == user[2] != user[0]
    assert item[0] == item[1] != item[2]
    assert ids["occupation"][0] == ids["occupation"][1]
    assert len({*user.tolist(), *item.tolist()}) == 4


def test_missing_values_are_padding(folder):
    ids = joined(folder)
    assert ids["zip"][0] == PADDING != ids["zip"][1]
    assert ids["year"][0] == PADDING != ids["year"][2]
    assert ids["genre"].shape == (3, 2)
    assert (ids["genre"][0] == PADDING).all()
    assert (ids["genre"][2] != PADDING).all()


def test_a_rated_item_without_a_line_is_refused(folder):
    (folder / "tiny.item").write_text(ITEM.replace("i2", "i3"), encoding="utf-8")
    with pytest.raises(ValueError, match="'i2' is rated but has no line"):
        movielens.load(folder)


def test_a_missing_file_or_column_is_refused(folder):
    (folder / "tiny.user").write_text(USER.replace("gender", "sex"), encoding="utf-8")
    with pytest.raises(ValueError, match="has no column gender"):
        movielens.load(folder)
    (folder / "tiny.user").unlink()
    with pytest.raises(ValueError, match=r"holds 0 \.user files"):
        movielens.load(folder)
