# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Philox4x32, the counter-based generator behind every random row.

From Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
3" (SC 2011).
"""

import numpy as np

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10  # the default of its authors


def philox4x32(
    counter: np.ndarray, key: tuple[int, int], rounds: int = ROUNDS
) -> np.ndarray:
    """Draws four random words for each counter, uint32[..., 4]."""
    # uint64 everywhere: a product of two words then keeps its high half
    c0, c1, c2, c3 = np.moveaxis(counter.astype(np.uint64), -1, 0)
    low, shift = np.uint64(2**32 - 1), np.uint64(32)
    k0, k1 = key
    for _ in range(rounds):
        product0 = c0 * np.uint64(MULTIPLIERS[0])
        product1 = c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            product1 >> shift ^ c1 ^ np.uint64(k0),
            product1 & low,
            product0 >> shift ^ c3 ^ np.uint64(k1),
            product0 & low,
        )
        k0 = k0 + KEY_STEPS[0] & 0xFFFFFFFF
        k1 = k1 + KEY_STEPS[1] & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)
