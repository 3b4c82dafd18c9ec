# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
# pyright: reportMissingImports=false
"""Trains from a polars frame.

python examples/recipes/polars_frame.py

A series is handed over as an Arrow array, so its strings are not copied before they
are hashed. Only examples that polars keeps reach a table: here, those with a label.
"""

import numpy as np
import polars

import clicks


def main() -> clicks.Training:
    """Trains one epoch, in the order of the log."""
    frame = polars.DataFrame(clicks.click_log()).lazy()
    frame = frame.filter(polars.col("label").is_not_null()).collect()
    return clicks.train(
        clicks.to_batch(part.to_dict()) for part in frame.iter_slices(clicks.BATCH)
    )


if __name__ == "__main__":
    print(np.round(main().losses, 3))
