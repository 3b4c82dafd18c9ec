# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers that a table does not have, each with what to use instead."""

from __future__ import annotations

_COUPLES_ROWS = (
    "its statistics of columns couple all rows of a table, so an update of some rows "
    "would need the others. Use jde.optim.partial_rowwise_adam or rowwise_rmsprop: one "
    "number a row is Adafactor's row factor."
)
_SWEEPS = (
    "it sweeps over all rows every few steps, and rows that are absent or new have no "
    "place in an average. Average the rows that you serve instead: export them twice."
)
_NAME_ONLY = (
    "FBGEMM has it by name only, or has deprecated it. Use jde.optim.adagrad or "
    "rowwise_adagrad."
)
_REASONS = {
    "adafactor": _COUPLES_ROWS,
    "sm3": _COUPLES_ROWS,
    "muon": _COUPLES_ROWS,
    "shampoo": _COUPLES_ROWS,
    "ensemble_rowwise_adagrad": _SWEEPS,
    "ema_in_place": _SWEEPS,
    "madgrad": _NAME_ONLY,
    "weighted_adagrad": _NAME_ONLY,
    "approximate_sgd": "all updates are exact here: use jde.optim.sgd.",
    "approximate_rowwise_adagrad": (
        "all updates are exact here: use jde.optim.rowwise_adagrad."
    ),
    "adamw": "jde.optim.adam has it: write jde.optim.adam(..., weight_decay=0.01).",
    "nesterov": "write jde.optim.momentum(..., nesterov=True).",
}


def refusal(name: str) -> str:
    """Spells the error for a name that ``jde.optim`` does not have."""
    if name in _REASONS:
        return f"jde.optim.{name} does not exist: {_REASONS[name]}"
    return f"module 'jax_dynemb.optim' has no attribute {name!r}"
