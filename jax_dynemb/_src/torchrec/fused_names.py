# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Names of FBGEMM's fused parameters: their defaults, and what stands for them here."""

from __future__ import annotations

import difflib
from typing import Any

# Numbers of optimizers, with FBGEMM's defaults. Those that an optimizer does not take
# change nothing there, and fused_params tend to list them for every optimizer.
NUMBERS: dict[str, float] = {
    "learning_rate": 0.01,
    "eps": 1e-8,
    "beta1": 0.9,
    "beta2": 0.999,
    "momentum": 0.9,
    "eta": 0.001,
    "weight_decay": 0.0,
    "max_norm": 0.0,
    "ar_alpha": 0.0,
    "ema_beta": 0.99,
    "min_shrinkage": 0.1,
}
OPTIONS = (
    "optimizer",
    "output_dtype",
    "weights_precision",
    "stochastic_rounding",
    "gradient_clipping",
    "max_gradient",
    "weight_decay_mode",
    "global_weight_decay",
    "use_rowwise_bias_correction",
)
_HOST_TIER = (
    "it belongs to the host tier, which decides by itself which rows lie on the "
    "device: write to_table(tier=jde.tiers.host(hbm_fraction=0.2))"
)
_METRICS = "stats() of a collection counts hits of the host tier and the bytes it moves"
_OF_THE_CONFIG = "it belongs to the config of a table"
_DEVICE = "give the collection mesh=..., or use jax.default_device"
_SERVICE = "nothing here stands for it"
_COUNTER = (
    "give the table optimizer=jde.optim.rowwise_adagrad(..., counter=jde.optim."
    "Counter(...)) or cow_clip=jde.optim.CowClip(...)"
)
_AVERAGE = "rows of other steps have no place in a table: average the rows you serve"
_LRU, _WARNING = (0, "lru"), (1, "warning", "v2_warning")
_OFF = (None, False)
# Arguments of SplitTableBatchedEmbeddingBagsCodegen that optimizers do not read: values
# that change nothing, and what to write instead of another one.
OTHERS: dict[str, tuple[tuple[Any, ...], str]] = {
    "cache_algorithm": (_LRU, _HOST_TIER),
    "cache_load_factor": ((0.2,), _HOST_TIER),
    "cache_sets": ((0,), _HOST_TIER),
    "cache_reserved_memory": ((0.0,), _HOST_TIER),
    "cache_precision": (_OFF, _HOST_TIER),
    "enforce_hbm": (_OFF, _HOST_TIER),
    "uvm_non_rowwise_momentum": (_OFF, _HOST_TIER),
    "uvm_host_mapped": (_OFF, _HOST_TIER),
    "prefetch_pipeline": (_OFF, f"{_HOST_TIER}, and jde.tiers.ahead above a store"),
    "multipass_prefetch_config": (_OFF, _HOST_TIER),
    "record_cache_metrics": (_OFF, _METRICS),
    "gather_uvm_cache_stats": (_OFF, _METRICS),
    "stats_reporter_config": (_OFF, _METRICS),
    "bounds_check_mode": (
        _WARNING,
        "no id is out of bounds: ids are hash keys of 64 bits",
    ),
    "pooling_mode": ((0, "sum"), f"{_OF_THE_CONFIG}: EmbeddingBagConfig(pooling=...)"),
    "feature_table_map": (_OFF, f"{_OF_THE_CONFIG}: feature_names=[...]"),
    "table_names": (_OFF, f"{_OF_THE_CONFIG}: name=..."),
    "embedding_specs": (_OFF, f"{_OF_THE_CONFIG}: num_embeddings, embedding_dim"),
    "embedding_table_index_type": (
        _OFF,
        "ids have 64 bits; write to_table(key_dtype='int32') for 32",
    ),
    "embedding_table_offset_type": (_OFF, "lengths are int32"),
    "optimizer_state_dtypes": (
        _OFF,
        "write to_table(state_dtype={'mu': 'bfloat16'}) with the names of jde.optim",
    ),
    "counter_based_regularization": (_OFF, _COUNTER),
    "cowclip_regularization": (_OFF, _COUNTER),
    "ensemble_mode": (_OFF, _AVERAGE),
    "emainplace_mode": (_OFF, _AVERAGE),
    "extra_optimizer_config": (
        _OFF,
        "write use_rowwise_bias_correction=True itself, beside optimizer='adam'",
    ),
    "use_writeback_bwd_prehook": (_OFF, _SERVICE),
    "device": (_OFF, _DEVICE),
    "use_experimental_tbe": (_OFF, _SERVICE),
    "embedding_shard_info": (_OFF, _SERVICE),
    "enable_raw_embedding_streaming": (_OFF, _SERVICE),
    "res_params": (_OFF, _SERVICE),
    "preallocated_host_buffers": (_OFF, _SERVICE),
    "tbe_input_multiplexer_config": (_OFF, _SERVICE),
    "is_qr_tbe": (_OFF, _SERVICE),
    "row_alignment": (_OFF, _SERVICE),
}
# Optimizers of EmbOptimType that jde.optim does not have, and what it calls them.
ABSENT = {
    "rowwise_adagrad_approximate": "approximate_rowwise_adagrad",
    "approx_sgd": "approximate_sgd",
    "approx_rowwise_adagrad": "approximate_rowwise_adagrad",
    "approx_row_wise_adagrad": "approximate_rowwise_adagrad",
    "ensemble_row_wise_adagrad": "ensemble_rowwise_adagrad",
    "ensemble_rowwise_adagrad": "ensemble_rowwise_adagrad",
    "emainplace_row_wise_adagrad": "ema_in_place",
    "emainplace_rowwise_adagrad": "ema_in_place",
    "shampoo": "shampoo",
    "shampoo_v2": "shampoo",
    "madgrad": "madgrad",
    "exact_rowwise_weighted_adagrad": "weighted_adagrad",
    "exact_row_wise_weighted_adagrad": "weighted_adagrad",
}


def changes_nothing(name: str, value: Any) -> bool:
    """Whether a name of ``OTHERS`` has FBGEMM's default; ValueError if not."""
    if name not in OTHERS:
        near = difflib.get_close_matches(name, [*OPTIONS, *NUMBERS, *OTHERS], 1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise ValueError(
            f"fused_params: {name} is unknown{hint} Known are {', '.join(OPTIONS)} and "
            f"{', '.join(NUMBERS)}."
        )
    defaults, instead = OTHERS[name]
    plain = value.lower() if isinstance(value, str) else value
    if any(plain is each or _equal(plain, each) for each in defaults):
        return True
    raise ValueError(
        f"fused_params: {name}={value!r} is refused: {instead}. Leave {name} out."
    )


def _equal(value: Any, default: Any) -> bool:
    """Whether two plain values are equal; False is not 0 here."""
    if not isinstance(value, (bool, int, float, str)):
        return False
    return isinstance(value, bool) == isinstance(default, bool) and value == default
