# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""How much of the library a plain lookup runs through before its kernel is called."""

from __future__ import annotations

import pathlib
import sys

import jax

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi

LIBRARY = str(pathlib.Path(jde.__file__).parent)
# Comprehensions are functions of their own before Python 3.12 only.
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")


class Walk:
    """Notes the functions of the library that a call enters.

    Attributes:
      functions: file and name of each.
      way: those on the stack when the first kernel is called, outermost first.
    """

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.way: list[str] = []

    def __call__(self, frame, event, arg) -> None:
        del arg
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(LIBRARY):
            return
        name = code.co_qualname
        if not name.endswith((*INLINED, "<genexpr>")):
            self.functions.add((code.co_filename, name))
        if code is _ffi.call.__code__ and not self.way:
            while frame is not None:
                if frame.f_code.co_filename.startswith(LIBRARY):
                    self.way.insert(0, frame.f_code.co_qualname)
                frame = frame.f_back


def walk_of(config: jde.TableConfig | jde.TTConfig, **placement) -> Walk:
    """Traces a lookup of a table whose specs are known already."""
    coll = jde.Tables([config], **placement)
    state, ids = coll.init(0), {"t": jde.ids(list(range(8)))}
    jax.eval_shape(lambda state: coll.lookup(state, ids), state)
    walk = Walk()
    sys.setprofile(walk)
    try:
        jax.eval_shape(lambda state: coll.lookup(state, ids), state)
    finally:
        sys.setprofile(None)
    return walk


def test_plain_lookup_takes_a_plain_way():
    walk = walk_of(jde.TableConfig("t", 8, 1024, optimizer=jde.optim.sgd(0.1)))
    assert walk.way == [
        "Operations.lookup",
        "Lookups.lookup",
        "Lookups.lookup.<locals>.body",
        "lookup",  # of the strategy of one device
        "lookup",  # of the kernels
        "Call.run",
        "call",
    ]
    assert len(walk.functions) <= 70
    files = {pathlib.Path(file).name for file, _ in walk.functions}
    assert not files & {"due_decay.py", "tier_lookup.py", "sent_ids.py"}
