# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.export.program: a lookup as bytes, run by a process without the model."""

import numpy as np
import pytest

import jax_dynemb as jde
from meshes import mesh_of
from served import serve

pytest.importorskip("flatbuffers", reason="jax.export needs it to write bytes")


def test_a_fresh_process_reads_the_same_rows(tmp_path):
    adam = jde.optim.adam(0.1)
    table = jde.TableConfig("t", 4, 500, optimizer=adam, pooling="mean")
    coll = jde.Tables([table])
    keys = jde.ids(np.arange(1, 100) * 10_007)
    _, _, state = coll.lookup(coll.init(seed=3), {"t": keys})
    served, tables = jde.export.frozen(coll, state)
    assert not tables["t"].optimizer
    ids = jde.ids(np.array([[10_007, 20_014], [5, -1]]))

    def look_up(tables, ids):
        return served.find(tables, {"t": ids})[0]["t"] * 2.0

    data = jde.export.program(look_up, tables, ids)
    (answer,) = serve(tmp_path, data, tables, [ids])
    expected, _, _ = coll.find(state, {"t": ids})
    np.testing.assert_array_equal(answer[0], 2 * expected["t"])


@pytest.mark.parametrize("sharding", ["row_wise", "column_wise", "replicated"])
def test_a_program_takes_its_tables_by_name(sharding):
    """Also those that a mesh had; equal tables of another name are refused."""

    def frozen(name, mesh=None):
        coll = jde.Tables([jde.TableConfig(name, 8, 512, sharding=sharding)], mesh)
        ids = {name: jde.ids(np.arange(16))}
        rows, _, state = coll.lookup(coll.init(seed=3), ids)
        return rows[name], *jde.export.frozen(coll, state)

    rows, served, tables = frozen("t")
    ids = jde.ids(np.arange(16))

    def look_up(tables, ids):
        return served.find(tables, {"t": ids})[0]["t"]

    data = jde.export.program(look_up, tables, ids)
    program = jde.export.load_program(data)
    of_mesh, _, joined = frozen("t", mesh_of(2))
    np.testing.assert_array_equal(program.call(tables, ids), rows)
    np.testing.assert_array_equal(program.call(joined, ids), of_mesh)
    _, _, others = frozen("u")
    with pytest.raises(ValueError, match="structure"):
        program.call({"t": others["u"]}, ids)
