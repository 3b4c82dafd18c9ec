# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Bags of the examples of a variable batch, where one bag stands for several."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.torchrec.arrays import is_traced
from jax_dynemb._src.torchrec.bags import entries_of
from jax_dynemb._src.torchrec.keyed_jagged_tensor import KeyedJaggedTensor
from jax_dynemb._src.torchrec.routes import Features


def inverse_of(features: Features, key: str) -> Any:
    """Finds the bag of a key that each example of a variable batch has, or None."""
    variable = isinstance(features, KeyedJaggedTensor)
    if not variable or not features.variable_stride_per_key():
        return None
    inverse = features.inverse_indices_or_none()
    return None if inverse is None else inverse[1][inverse[0].index(key)]


def of_examples(rows: Any, lengths: Any, indices: Any, inverse: Any) -> Any:
    """Returns the bag of each example, where bags stand for several.

    Raises:
      TypeError: under jit.
    """
    if is_traced(lengths, inverse):
        raise TypeError(
            "EmbeddingCollection: under jit the rows of inverse_indices are as many as "
            "data says. Make the KeyedJaggedTensor without them, and pick bags of "
            "equal size: out[key].to_padded_dense(20)[index]."
        )
    lengths, index = np.asarray(lengths), np.asarray(inverse)
    entries = entries_of(lengths, index)
    rows = jnp.take(rows, entries, axis=0)
    return rows, lengths[index], None if indices is None else indices[entries]
