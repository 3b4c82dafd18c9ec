# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A store that restore has no table for is refused, not left out."""

import pytest

import jax_dynemb as jde
from walks import PLAIN


def test_a_misspelt_name_of_a_store_is_refused_and_advice_is_accepted(tmp_path):
    coll, store = jde.Tables([PLAIN]), jde.stores.Memory(PLAIN)
    jde.checkpoint.save(tmp_path, 1, coll.init(0), tables=coll)

    def restored(stores):
        return jde.checkpoint.restore(
            tmp_path, coll.init(5), tables=coll, stores=stores
        )

    sentence = r"stores names \['cats'\], but the tables to restore are \['cat'\]"
    with pytest.raises(ValueError, match=sentence):
        restored({"cat": store, "cats": store})
    restored({"cat": store})
    restored({})
