# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Trains from parquet files through Arrow, a batch at a time.

python examples/recipes/arrow_files.py

The files may be larger than memory, because Arrow reads ahead only a few batches.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.dataset
import pyarrow.parquet

import clicks


def main() -> clicks.Training:
    """Writes the log into two files, and trains one epoch from them."""
    folder = tempfile.mkdtemp()
    log = pyarrow.table(clicks.click_log())
    for number, part in enumerate((log.slice(0, 1_000), log.slice(1_000))):
        pyarrow.parquet.write_table(part, Path(folder) / f"{number}.parquet")

    files = pyarrow.dataset.dataset(folder)
    batches = files.to_batches(batch_size=clicks.BATCH)  # none reaches over two files
    columns = (dict(zip(part.schema.names, part, strict=True)) for part in batches)
    return clicks.train(map(clicks.to_batch, columns))


if __name__ == "__main__":
    print(np.round(main().losses, 3))
