# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""An export compiles for the shapes of arrays, not for each table."""

import numpy as np
import optax

import jax_dynemb as jde
from jax_dynemb._src.engines.shard import export_rows as _export
from jax_dynemb.admission import Frequency, Sketch
from support import export

IDS = np.arange(5) * 2**40


def exported(name: str, **options) -> None:
    """Exports a table of one size with five rows."""
    coll = jde.Tables([jde.TableConfig(name, 8, 1024, **options)])
    rows, _, state = coll.lookup(coll.init(0), {name: jde.ids(IDS)})
    got = export(coll, state, name)
    assert sorted(got) == IDS.tolist()
    want = dict(zip(IDS.tolist(), np.asarray(rows[name]), strict=True))
    for key, row in got.items():
        np.testing.assert_array_equal(row.values, want[key])


def test_tables_of_a_size_share_programs():
    programs = _export._index_range, _export._take
    exported("a")
    before = [each._cache_size() for each in programs]
    exported("b", optimizer=jde.optim.adam(0.1), score_strategy="lfu")
    exported("c", optimizer=optax.adam(0.1), nonfinite="propagate", hash_seed=3)
    counted = Frequency(1, Sketch(1 << 13))
    exported("d", admission=counted, log_removed=64)
    assert [each._cache_size() for each in programs] == before
