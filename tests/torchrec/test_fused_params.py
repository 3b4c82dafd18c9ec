# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's arguments: its defaults change nothing, all others map or are refused."""

import enum
import types

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde

T = jde.torchrec
# Arguments of SplitTableBatchedEmbeddingBagsCodegen with their defaults, by name.
DEFAULTS = {
    "cache_algorithm": 0,
    "cache_load_factor": 0.2,
    "cache_sets": 0,
    "cache_reserved_memory": 0.0,
    "cache_precision": None,
    "weights_precision": "fp32",
    "output_dtype": "fp32",
    "enforce_hbm": False,
    "record_cache_metrics": None,
    "gather_uvm_cache_stats": False,
    "stochastic_rounding": True,
    "gradient_clipping": False,
    "max_gradient": 1.0,
    "max_norm": 0.0,
    "learning_rate": 0.01,
    "eps": 1e-8,
    "momentum": 0.9,
    "eta": 0.001,
    "beta1": 0.9,
    "beta2": 0.999,
    "weight_decay": 0.0,
    "weight_decay_mode": "none",
    "ar_alpha": 0.0,
    "ema_beta": 0.99,
    "min_shrinkage": 0.1,
    "ensemble_mode": None,
    "emainplace_mode": None,
    "counter_based_regularization": None,
    "cowclip_regularization": None,
    "global_weight_decay": None,
    "pooling_mode": 0,
    "device": None,
    "bounds_check_mode": 1,
    "uvm_non_rowwise_momentum": False,
    "use_experimental_tbe": False,
    "prefetch_pipeline": False,
    "stats_reporter_config": None,
    "table_names": None,
    "optimizer_state_dtypes": None,
    "multipass_prefetch_config": None,
    "uvm_host_mapped": False,
    "feature_table_map": None,
    "extra_optimizer_config": None,
    "embedding_shard_info": None,
    "tbe_input_multiplexer_config": None,
}
# Another value of each; what maps is an optimizer, or fields.
OTHERS = {
    "cache_algorithm": 1,
    "cache_load_factor": 0.5,
    "cache_sets": 8,
    "cache_reserved_memory": 1.0,
    "cache_precision": "fp16",
    "weights_precision": "fp16",
    "output_dtype": "fp16",
    "enforce_hbm": True,
    "record_cache_metrics": object(),
    "gather_uvm_cache_stats": True,
    "gradient_clipping": True,
    "max_norm": 1.0,
    "learning_rate": 0.5,
    "eps": 1e-3,
    "momentum": 0.5,
    "eta": 0.5,
    "beta1": 0.5,
    "beta2": 0.5,
    "weight_decay": 0.5,
    "weight_decay_mode": "cowclip",
    "ar_alpha": 0.5,
    "ema_beta": 0.5,
    "min_shrinkage": 0.5,
    "ensemble_mode": object(),
    "emainplace_mode": object(),
    "counter_based_regularization": object(),
    "cowclip_regularization": object(),
    "global_weight_decay": {"lower_bound": 0.5},
    "pooling_mode": 1,
    "device": "cpu",
    "bounds_check_mode": 0,
    "uvm_non_rowwise_momentum": True,
    "use_experimental_tbe": True,
    "prefetch_pipeline": True,
    "stats_reporter_config": object(),
    "table_names": ["a"],
    "optimizer_state_dtypes": {"momentum1": "fp16"},
    "multipass_prefetch_config": object(),
    "uvm_host_mapped": True,
    "feature_table_map": [0],
    "extra_optimizer_config": object(),
    "embedding_shard_info": object(),
    "tbe_input_multiplexer_config": object(),
}
# What changes nothing there either: a bound that does not clip, and float32 rows.
DEAD = {"max_gradient", "stochastic_rounding"}
KINDS = (
    "exact_sgd",
    "exact_adagrad",
    "exact_row_wise_adagrad",
    "adam",
    "lamb",
    "lars_sgd",
    "partial_row_wise_adam",
    "partial_row_wise_lamb",
    "rowwise_rmsprop_ar",
    "none",
)


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_fbgemm_change_nothing(kind):
    plain = T.from_fused_params({"optimizer": kind})[0]
    for given in (DEFAULTS, {n: x for n, x in DEFAULTS.items() if x is not None}):
        optimizer, fields = T.from_fused_params({"optimizer": kind, **given})
        assert optimizer == plain
        table = table_of(optimizer, fields)
        assert table == table_of(plain, {})


def table_of(optimizer, fields, **config):
    bag = T.EmbeddingBagConfig(100, 8, "t", feature_names=["f"], **config)
    return bag.to_table(optimizer=optimizer, **fields)


@pytest.mark.parametrize("kind", KINDS)
def test_no_argument_is_dropped_in_silence(kind):
    assert DEFAULTS.keys() == OTHERS.keys() | DEAD
    params = {"optimizer": kind}
    if kind == "rowwise_rmsprop_ar":
        params["ar_alpha"] = 0.2  # without it nothing shrinks
    plain = T.from_fused_params(params)
    for name, value in OTHERS.items():
        try:
            made = T.from_fused_params({**params, name: value})
        except ValueError as error:
            assert name in str(error)
            assert len(str(error)) > len(name) + 40, error
        else:
            assert made != plain, name


def test_enums_are_taken_by_their_value():
    class Bounds(enum.IntEnum):
        WARNING = 1
        NONE = 3

    assert T.from_fused_params({"bounds_check_mode": Bounds.WARNING})[1] == {}
    with pytest.raises(ValueError, match="out of bounds"):
        T.from_fused_params({"bounds_check_mode": Bounds.NONE})


def test_stochastic_rounding_is_of_rows_of_16_bits():
    optimizer, fields = T.from_fused_params({"stochastic_rounding": True})
    assert table_of(optimizer, fields).rounding == "nearest"
    half = table_of(optimizer, fields, data_type=T.DataType.FP16)
    assert (half.rounding, half.param_dtype) == ("stochastic", "float16")
    _, fields = T.from_fused_params({"weights_precision": "BF16"})
    assert fields == {"param_dtype": "bfloat16", "rounding": "stochastic"}
    half = {"weights_precision": "fp16", "stochastic_rounding": False}
    assert T.from_fused_params(half)[1] == {"param_dtype": "float16"}
    with pytest.raises(ValueError, match="cannot be trained"):
        T.from_fused_params({"weights_precision": "int8"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lerning_rate", "learning_rate"),
        ("weight_dekay", "weight_decay"),
        ("cache_load_faktor", "cache_load_factor"),
    ],
)
def test_a_typo_names_what_was_meant(name, meant):
    with pytest.raises(ValueError, match=f"did you mean {meant}"):
        T.from_fused_params({name: 0.1})


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("ensemble_row_wise_adagrad", "Average the rows"),
        ("emainplace_row_wise_adagrad", "Average the rows"),
        ("shampoo", "couple all rows"),
        ("madgrad", "jde.optim.adagrad"),
        ("rprop", "is none of"),
    ],
)
def test_an_optimizer_that_tables_do_not_have(kind, instead):
    with pytest.raises(ValueError, match=instead):
        T.from_fused_params({"optimizer": kind})


def test_modes_of_row_wise_adagrad_are_refused_elsewhere():
    for mode in ("l2", 2, "DECOUPLE_GLOBAL"):
        with pytest.raises(ValueError, match="weight_decay_mode is of row-wise"):
            T.from_fused_params({"optimizer": "adam", "weight_decay_mode": mode})
    assert T.from_fused_params({"optimizer": "adam", "weight_decay_mode": "NONE"})


GLOBAL = {
    "optimizer": "exact_rowwise_adagrad",
    "learning_rate": 0.1,
    "weight_decay": 0.5,
    "weight_decay_mode": "decouple_global",
}


@pytest.mark.parametrize("bound", [0.0, 0.9])
def test_a_lookup_reads_the_decay_of_decouple_global(bound):
    """FBGEMM reads row * max(bound, (1 - lr * decay) ** (step - last - 1))."""
    given = GLOBAL | {"global_weight_decay": {"lower_bound": bound}}
    optimizer, fields = T.from_fused_params(given)
    coll = jde.Tables([jde.TableConfig("t", 4, 128, optimizer=optimizer, **fields)])
    ones = {"t": np.ones((2, 4), np.float32)}
    state = coll.insert(coll.init(0), {"t": jde.ids(np.arange(2))}, ones)
    for number in (0, 1, 1, 1):
        rows, residual, state = coll.lookup(state, {"t": jde.ids([number])})
        state = coll.apply_gradients(state, residual, {"t": jnp.ones_like(rows["t"])})
    rows, _, _ = coll.lookup(state, {"t": jde.ids([0])})
    trained = (1 - 0.1 * 0.5) - 0.1  # one update: of decay, then of a gradient of 1
    expected = trained * max(bound, (1 - 0.1 * 0.5) ** 3)
    np.testing.assert_allclose(rows["t"], expected, rtol=1e-5)


def test_numbers_of_decouple_global():
    object_ = types.SimpleNamespace(start_iter=7, lower_bound=0.5)
    expected = jde.optim.rowwise_adagrad(
        0.1,
        weight_decay=0.5,
        catch_up="decay",
        catch_up_start=7,
        catch_up_floor=0.5,
        catch_up_forward=True,
    )
    for given in (object_, vars(object_)):
        assert T.from_fused_params(GLOBAL | {"global_weight_decay": given})[0] == (
            expected
        )
    with pytest.raises(ValueError, match="start_iter and lower_bound"):
        T.from_fused_params(GLOBAL | {"global_weight_decay": {"start": 7}})
    with pytest.raises(ValueError, match="global_weight_decay is of weight_decay_mode"):
        T.from_fused_params(
            GLOBAL | {"weight_decay_mode": "l2", "global_weight_decay": object_}
        )
