# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of the shared loop, with options that make each term count."""

from typing import Any

import jax_dynemb as jde

OPTIM = jde.optim
KINDS: dict[str, Any] = {
    "sgd_clipped": OPTIM.sgd(0.1, clip_row_value=0.5, clip_row_norm=0.9),
    "adagrad_clipped": OPTIM.adagrad(0.1, clip_row_norm=0.9),
    "momentum": OPTIM.momentum(0.05),
    "nesterov": OPTIM.momentum(0.05, 0.8, nesterov=True),
    "rowwise_adagrad_l2": OPTIM.rowwise_adagrad(
        0.1, weight_decay=0.05, weight_decay_mode="l2"
    ),
    "rowwise_adagrad_decoupled": OPTIM.rowwise_adagrad(
        0.1, initial_accumulator_value=0.1, weight_decay=0.05
    ),
    "rowwise_adagrad_max_norm": OPTIM.rowwise_adagrad(0.3, max_norm=0.4),
    "adam_row": OPTIM.adam(0.05, bias_correction="row", weight_decay=0.1),
    "adam_none": OPTIM.adam(0.05, bias_correction="none"),
    "adam_clipped": OPTIM.adam(0.05, clip_row_value=0.3),
    "partial_rowwise_adam": OPTIM.partial_rowwise_adam(0.05, weight_decay=0.1),
    "lamb": OPTIM.lamb(0.05, weight_decay=0.1),
    "partial_rowwise_lamb": OPTIM.partial_rowwise_lamb(0.05, weight_decay=0.1),
    "lars": OPTIM.lars(0.5, eta=0.1, weight_decay=0.05),
    "lion": OPTIM.lion(0.01, weight_decay=0.1),
    "rmsprop": OPTIM.rmsprop(0.05),
    "rmsprop_eps_in_sqrt": OPTIM.rmsprop(
        0.05, eps=1e-3, eps_in_sqrt=True, initial_scale=0.5
    ),
    "rowwise_rmsprop": OPTIM.rowwise_rmsprop(0.05, decay=0.9),
    "rowwise_adagrad_caught_up": OPTIM.rowwise_adagrad(
        0.1, weight_decay=0.5, catch_up="decay", catch_up_floor=0.3
    ),
    "rowwise_adagrad_cow_clip": OPTIM.rowwise_adagrad(
        0.1, weight_decay=0.05, cow_clip=OPTIM.CowClip(0.1, 0.05, half_life=3.0)
    ),
    "rowwise_adagrad_cow_clip_l2": OPTIM.rowwise_adagrad(
        0.1, weight_decay=0.05, weight_decay_mode="l2", cow_clip=OPTIM.CowClip(0.3)
    ),
    "rowwise_adagrad_counter": OPTIM.rowwise_adagrad(
        0.1,
        weight_decay=0.05,
        counter=OPTIM.Counter(
            4.0, "l2", "increase", start=2, bound=0.5, threshold=1.5, max_count=20
        ),
    ),
    "rowwise_adagrad_counter_sgd": OPTIM.rowwise_adagrad(
        0.1, weight_decay=0.05, counter=OPTIM.Counter(3.0, "decoupled", "sgd", bound=2)
    ),
    "rowwise_adagrad_adagradw": OPTIM.rowwise_adagrad(
        0.1, weight_decay=0.05, counter=OPTIM.Counter(None, "adagradw_root")
    ),
    "adam_caught_up": OPTIM.adam(
        0.05, weight_decay=0.5, catch_up="decay", catch_up_start=3
    ),
    "adam_smart": OPTIM.adam(
        0.05, weight_decay=0.1, bias_correction="none", catch_up="smart"
    ),
    "momentum_smart": OPTIM.momentum(0.05, 0.8, catch_up="smart"),
    "nesterov_smart": OPTIM.momentum(0.05, 0.8, True, catch_up="smart"),
    "rowwise_rmsprop_shrinking": OPTIM.rowwise_rmsprop(
        0.1, decay=0.9, ar_alpha=0.5, min_shrinkage=0.6
    ),
    "ftrl": OPTIM.ftrl(0.1, l1=0.05, l2=0.01, beta=1.0),
    "ftrl_shrinkage": OPTIM.ftrl(0.1, l2_shrinkage=0.02, lr_power=-0.4),
    "ftrl_consistent": OPTIM.ftrl(0.1, beta=1.0, z_init="consistent"),
}
# The sums of these mix the columns of a row, so no device may have some of them only.
SUM_ROWS = {
    "sgd_clipped",
    "adagrad_clipped",
    "rowwise_adagrad_l2",
    "rowwise_adagrad_decoupled",
    "rowwise_adagrad_max_norm",
    "partial_rowwise_adam",
    "lamb",
    "partial_rowwise_lamb",
    "lars",
    "rowwise_rmsprop",
    "rowwise_adagrad_caught_up",
    "rowwise_adagrad_cow_clip",
    "rowwise_adagrad_cow_clip_l2",
    "rowwise_adagrad_counter",
    "rowwise_adagrad_counter_sgd",
    "rowwise_adagrad_adagradw",
    "rowwise_rmsprop_shrinking",
}
# Norms of rows make rounding larger.
LOOSE = {"rtol": 2e-4, "atol": 1e-5}
