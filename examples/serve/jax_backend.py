# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an exported program on tables that follow a training. No code of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jax_dynemb as jde
from serve.answer import MAX_BATCH, Answer, check_ids


class JaxBackend:
    """Serves the program and the publication in a folder of ``publish.py``."""

    def __init__(self, folder: str, warm: tuple[int, ...] = (1, 64)):
        """Loads both, and compiles for batches of these sizes."""
        configs = json.loads((Path(folder) / "tables.json").read_text())
        self._coll = jde.Tables([jde.TableConfig.from_dict(each) for each in configs])
        self.features = list(self._coll.features)
        self._predict = jax.jit(jde.export.load_program(f"{folder}/program.bin").call)
        self._served = jde.serving.Subscriber(f"{folder}/published", self._coll)
        self._version: jde.serving.Version | None = None
        self._arrays: Any = None  # of the version
        for size in warm:
            self(np.full((len(self.features), size), -1))

    def __call__(self, ids: np.ndarray) -> Answer:
        """Predicts for int64[features, batch]; -1 is padding."""
        check_ids(ids, len(self.features))
        batch = ids.shape[1]
        # A program is compiled for each size, so sizes are powers of two.
        size = min(MAX_BATCH, 1 << (batch - 1).bit_length())
        ids = np.pad(ids, ((0, 0), (0, size - batch)), constant_values=-1)
        words = ids.view(np.uint32).reshape(*ids.shape, 2)  # what jde.ids returns
        with self._served.reading() as (version, state):
            if version is not self._version:
                # Of another moment; the arrays of the state, without copies.
                tables = jde.export.frozen(self._coll, state)[1]
                self._arrays = tables, jax.device_put(dict(version.dense))
                self._version = version
            logits, rows = self._predict(*self._arrays, words)
        logits, rows = np.asarray(logits)[:batch], np.asarray(rows)[:, :batch]
        return Answer(logits, rows, version.step, version.age())

    def close(self) -> None:
        """Ends the thread that follows the training."""
        self._served.close()
