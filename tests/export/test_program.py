# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""jde.export.program: a lookup as bytes, run by a process without the model."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import jax_dynemb as jde

pytest.importorskip("flatbuffers", reason="jax.export needs it to write bytes")

READER = """
import sys, jax, numpy as np, jax_dynemb as jde
program = jde.export.load_program(open(sys.argv[1] + "/program", "rb").read())
with np.load(sys.argv[1] + "/leaves.npz") as file:
    leaves = [file[str(n)] for n in range(len(file.files))]
arguments, _ = jax.tree.unflatten(program.in_tree, leaves)
np.save(sys.argv[1] + "/rows.npy", jax.jit(program.call)(*arguments))
"""


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

    (tmp_path / "program").write_bytes(jde.export.program(look_up, tables, ids))
    leaves = jax.tree.leaves((tables, ids))
    named = {str(n): np.asarray(leaf) for n, leaf in enumerate(leaves)}
    np.savez(tmp_path / "leaves.npz", **named)
    # -P: the package that is installed, as in this process, not the checkout.
    subprocess.run([sys.executable, "-P", "-c", READER, str(tmp_path)], check=True)
    expected, _, _ = coll.find(state, {"t": ids})
    np.testing.assert_array_equal(np.load(tmp_path / "rows.npy"), 2 * expected["t"])
