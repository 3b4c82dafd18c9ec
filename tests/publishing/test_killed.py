# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Publishers and subscribers that are killed: no version is torn, none is wrong."""

import shutil

import pytest

import jax_dynemb as jde
from processes import NIGHTLY, counts_of
from publishing import kill_serving

KILLS = 1000 if NIGHTLY else 16


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "socket", "redis"])
def test_killed_at_any_moment(tmp_path, capsys, kind):
    if kind == "redis":
        pytest.importorskip("redis", reason="needs pip install 'jax-dynemb[redis]'")
        if shutil.which("redis-server") is None:
            pytest.skip("no redis-server is installed on this machine")
    counts = counts_of(kill_serving.__file__, tmp_path, KILLS, 0, kind)
    with capsys.disabled():
        print(f"\nkilled publishers and subscribers over a {kind}: {counts}")
    assert counts["kills"] == KILLS and counts["versions"] >= KILLS // 4
    if kind != "folder":
        return
    # What is left is whole, and ends at a moment of the training.
    served = jde.serving.Subscriber(tmp_path / "out", kill_serving.COLL, interval=0)
    assert kill_serving.check(served) > 0
