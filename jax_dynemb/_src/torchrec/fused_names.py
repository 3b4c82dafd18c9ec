# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments of FBGEMM's tables that no optimizer reads: noted, or refused by sentence.

``docs/migration/options.toml`` lists every argument; its tests walk that list.
"""

from __future__ import annotations

import difflib
import logging
from typing import Any

_log = logging.getLogger("jax_dynemb.torchrec")
_noted: set[str] = set()

# Numbers of optimizers, with FBGEMM's defaults.
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
# What else is translated, with values that change nothing. False is not 0 here.
MAPPED: dict[str, tuple[Any, ...]] = {
    "optimizer": (),
    "output_dtype": (),
    "weights_precision": (),
    "stochastic_rounding": (),
    "gradient_clipping": (),
    "max_gradient": (),
    "weight_decay_mode": (0, "none"),
    "global_weight_decay": (),
    "counter_based_regularization": (),
    "cowclip_regularization": (),
    "use_rowwise_bias_correction": (False,),
    "extra_optimizer_config": (),
    "optimizer_state_dtypes": (),
    "pooling_mode": (0, "sum"),
    "table_names": (),
    "cache_algorithm": (0, "lru"),
    "cache_load_factor": (0.2,),
    "cache_sets": (0,),
    "cache_precision": (),
    "enforce_hbm": (False,),
    "embedding_table_index_type": ("int64", "torch.int64"),
}
_STATS = "stats() counts what the host tier reads, and the bytes that it moves"
_PREFETCH = "Tables.prefetch brings the rows of a coming batch to the device"
_TIER = "a host tier has states beside their rows, and takes no memory but its frames"
_SERVICE = "nothing here stands for it"
_AVERAGE = "only the optimizer of its name reads it"
# What changes no number: the value that needs no note, and the note of another one.
NOTED: dict[str, tuple[Any, str]] = {
    "cache_reserved_memory": (0.0, _TIER),
    "uvm_non_rowwise_momentum": (False, _TIER),
    "uvm_host_mapped": (False, _TIER),
    "prefetch_pipeline": (False, _PREFETCH),
    "multipass_prefetch_config": (None, _PREFETCH),
    "record_cache_metrics": (None, _STATS),
    "gather_uvm_cache_stats": (False, _STATS),
    "stats_reporter_config": (None, _STATS),
    "ensemble_mode": (None, _AVERAGE),
    "emainplace_mode": (None, _AVERAGE),
    "device": (None, "mesh=... of the collection, or jax.default_device places it"),
    "embedding_shard_info": (None, "plan=... of the collection places shards"),
    "embedding_table_offset_type": ("int64", "lengths and offsets are int32"),
    "use_experimental_tbe": (False, _SERVICE),
    "enable_raw_embedding_streaming": (False, "Tables.export(since=...) streams rows"),
    "res_params": (None, "Tables.export(since=...) streams rows"),
    "preallocated_host_buffers": (None, _SERVICE),
    "tbe_input_multiplexer_config": (None, _SERVICE),
    "row_alignment": (None, _SERVICE),
}
_MANY = (
    "write jde.torchrec.tables_from_fbgemm(**arguments), which makes a table of each"
)
# What would change numbers: values that do not, and what to write instead.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "embedding_specs": ((None,), _MANY),
    "feature_table_map": ((None,), _MANY),
    "bounds_check_mode": (
        (1, 2, 3, 4, 5, "warning", "ignore", "none", "v2_warning", "v2_ignore"),
        "ids are hash keys of 64 bits, of which none is out of bounds: call "
        "jde.torchrec.check_bounds(collection, kjt) on the host, which raises",
    ),
    "is_qr_tbe": (
        (None, False),
        "a quotient and a remainder are two features: give each a table",
    ),
    "use_writeback_bwd_prehook": (
        (None, False),
        "gradients of one row are summed before its one update, always",
    ),
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
_KNOWN = [*MAPPED, *NUMBERS, *NOTED, *REFUSED]


def plain(value: Any) -> Any:
    """Makes what an enum, a number or a name says; names in lower case."""
    value = getattr(value, "value", value)
    return value.lower() if isinstance(value, str) else value


def is_one_of(value: Any, plain_values: tuple[Any, ...]) -> bool:
    """Whether it is None or among some values, where False is not 0."""
    if value is None:
        return True
    known = isinstance(value, (bool, int, float, str))
    return known and any(
        value == each and isinstance(value, bool) == isinstance(each, bool)
        for each in plain_values
    )


def check_known(names: Any) -> None:
    """Refuses an argument that FBGEMM does not have, with the nearest that it has."""
    for name in names:
        if name not in _KNOWN:
            near = difflib.get_close_matches(name, _KNOWN, 1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise ValueError(
                f"fused_params: {name} is unknown{hint} Known are {', '.join(_KNOWN)}."
            )


def pass_over(name: str, value: Any) -> None:
    """Takes an argument that changes no number, with a note unless it is the default.

    Raises:
      ValueError: it would change numbers; the sentence says what to write.
    """
    if name in REFUSED:
        allowed, instead = REFUSED[name]
        if not is_one_of(plain(value), allowed):
            raise ValueError(
                f"fused_params: {name}={value!r} is refused: {instead}. Leave {name} "
                "out."
            )
        return
    default, why = NOTED[name]
    is_default = is_one_of(plain(value), (default,)) or str(value) == f"torch.{default}"
    if value is not None and not is_default:
        note(name, why)


def note(name: str, why: str) -> None:
    """Logs once that an argument is passed over."""
    text = f"fused_params: {name}: {why}."
    if text not in _noted:
        _noted.add(text)
        _log.warning(text)
