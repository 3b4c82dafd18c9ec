# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's arguments: its defaults change nothing, all others map or are refused."""

import enum
import re
import types

import jax.numpy as jnp
import numpy as np
import pytest

import jax_dynemb as jde
from jax_dynemb._src.torchrec import fused_names
from peer_options import given, options_of, wanted

T = jde.torchrec
OPTIONS = options_of("fbgemm")
DEFAULTS = {name: option.get("default") for name, option in OPTIONS.items()}
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


@pytest.fixture
def notes(caplog, monkeypatch):
    """What is logged, as if nothing had been logged before."""
    monkeypatch.setattr(fused_names, "_noted", set())
    return caplog


class _Int64:
    """Shows itself as torch's dtype does."""

    def __str__(self):
        return "torch.int64"


def test_the_offsets_that_fbgemm_has_are_taken_silently(notes):
    for offsets in ("int64", _Int64()):
        _, fields = T.from_fused_params({"embedding_table_offset_type": offsets})
        assert fields == {} and not notes.text


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_fbgemm_change_nothing(notes, kind):
    plain = T.from_fused_params({"optimizer": kind})[0]
    for given_ in (DEFAULTS, {n: x for n, x in DEFAULTS.items() if x is not None}):
        optimizer, fields = T.from_fused_params(given_ | {"optimizer": kind})
        assert optimizer == plain
        assert table_of(optimizer, fields) == table_of(plain, {})
    assert not notes.text


def table_of(optimizer, fields, **config):
    bag = T.EmbeddingBagConfig(100, 8, "t", feature_names=["f"], **config)
    return bag.to_table(optimizer=optimizer, **fields)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_argument_does_what_the_list_says(notes, name):
    option, plain = OPTIONS[name], T.from_fused_params({})
    example = given(name, option)
    if "refused" in option:
        with pytest.raises(ValueError, match=re.escape(option["refused"])) as error:
            T.from_fused_params(example)
        assert name in str(error.value)
        return
    optimizer, fields = T.from_fused_params(example)
    if "note" in option:
        assert (optimizer, fields) == plain
        assert name in notes.text and option["note"] in notes.text
        T.from_fused_params(example)
        assert len(notes.records) == 1
        return
    assert {"optimizer": plain[0]} | wanted(option) == fields | {"optimizer": optimizer}
    assert not notes.text
    table_of(optimizer, fields)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_an_optimizer_does_not_read_are_noted(notes, kind):
    """FBGEMM trains without them; its formula is in ``jde.optim``'s docstrings."""
    params = {"optimizer": kind}
    if kind == "rowwise_rmsprop_ar":
        params["ar_alpha"] = 0.2  # without it nothing shrinks
    plain = T.from_fused_params(params)
    for name in fused_names.NUMBERS:
        made = T.from_fused_params(params | {name: 0.123})
        assert (made != plain) != (f"{name}: " in notes.text), name


def test_enums_are_taken_by_their_value():
    class Bounds(enum.IntEnum):
        FATAL = 0
        NONE = 3

    assert T.from_fused_params({"bounds_check_mode": Bounds.NONE})[1] == {}
    with pytest.raises(ValueError, match="out of bounds"):
        T.from_fused_params({"bounds_check_mode": Bounds.FATAL})


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


def test_modes_of_row_wise_adagrad_are_noted_elsewhere(notes):
    plain = T.from_fused_params({"optimizer": "adam"})
    assert T.from_fused_params({"optimizer": "adam", "weight_decay_mode": "NONE"})
    assert not notes.text
    for mode in ("l2", 2, "DECOUPLE_GLOBAL"):
        given_ = {"optimizer": "adam", "weight_decay_mode": mode}
        assert T.from_fused_params(given_) == plain
    assert "weight_decay_mode: it is of row-wise Adagrad" in notes.text


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
    for said in (object_, vars(object_)):
        made = T.from_fused_params(GLOBAL | {"global_weight_decay": said})[0]
        assert made == expected
    with pytest.raises(ValueError, match="start_iter.*lower_bound"):
        T.from_fused_params(GLOBAL | {"global_weight_decay": {"start": 7}})
    with pytest.raises(ValueError, match="global_weight_decay is of weight_decay_mode"):
        T.from_fused_params(
            GLOBAL | {"weight_decay_mode": "l2", "global_weight_decay": object_}
        )


def test_regularizations_that_need_more_are_refused():
    adagrad = {"optimizer": "exact_row_wise_adagrad", "weight_decay_mode": "counter"}
    for fields, match in (
        ({"learning_rate_mode": 0}, "needs max_counter"),
        ({"tail_id_threshold": {"val": 0.5, "is_ratio": True}}, "needs max_counter"),
        ({"grad_sum_decay": 0}, "grad_sum_decay 'no_decay' alone"),
        ({"counter_half_life": 1}, r"not \['counter_half_life'\]"),
        ({"counter_weight_decay_mode": 7}, "is none of"),
        (3, "has the fields .*, not 3"),
    ):
        with pytest.raises(ValueError, match=match):
            T.from_fused_params(adagrad | {"counter_based_regularization": fields})


@pytest.mark.parametrize("share, nearest", [(0.001, 1 / 128), (0.7, 0.5), (0.99, 0.5)])
def test_a_share_of_the_cache_that_no_tier_has(notes, share, nearest):
    _, fields = T.from_fused_params({"cache_load_factor": share})
    assert fields == {"tier": jde.tiers.host(hbm_fraction=nearest)}
    assert f"cache_load_factor={share}: the nearest of a host tier is" in notes.text
    coll = jde.Tables([jde.TableConfig("t", 8, 5000, **fields)])
    rows, _, _ = coll.lookup(coll.init(0), {"t": jde.ids(np.arange(100))})
    assert rows["t"].shape == (100, 8)


def test_all_rows_in_the_cache_need_no_tier():
    assert T.from_fused_params({"cache_load_factor": 1.0})[1] == {}
    assert T.from_fused_params({"cache_load_factor": 0.01})[1] == {
        "tier": jde.tiers.host(hbm_fraction=0.01)
    }
    with pytest.raises(ValueError, match="above 0"):
        T.from_fused_params({"cache_load_factor": 0.0})


def test_row_wise_states_stay_float32(notes):
    given_ = {"optimizer_state_dtypes": {"momentum1": "bf16", "momentum2": "fp16"}}
    _, fields = T.from_fused_params({"optimizer": "partial_rowwise_adam", **given_})
    assert fields == {"state_dtype": {"mu": "bfloat16"}}
    assert "one number a row is float32" in notes.text
    _, fields = T.from_fused_params(
        {"optimizer": "adam", "optimizer_state_dtypes": {"momentum1": "fp16"}}
    )
    assert fields == {"state_dtype": {"mu": "bfloat16"}}
    assert "the range of float32" in notes.text
    with pytest.raises(ValueError, match="momentum1, momentum2"):
        T.from_fused_params({"optimizer_state_dtypes": {"momentum1": "fp16"}})


SPECS = [(100, 8, 2, 0), (50, 16, "DEVICE", "CUDA"), (60, 8, "MANAGED", "CUDA")]


def test_tables_of_fbgemm():
    arguments = {"optimizer": "adam", "pooling_mode": 1, "learning_rate": 0.1}
    configs = T.tables_from_fbgemm(
        SPECS, [0, 1, 0, 2], table_names=["a", "b", "c"], **arguments
    )
    assert [config.num_embeddings for config in configs] == [100, 50, 60]
    cached, plain, managed = (config.to_table() for config in configs)
    assert [t.name for t in (cached, plain, managed)] == ["a", "b", "c"]
    assert (cached.feature_names, plain.feature_names) == (("f0", "f2"), ("f1",))
    assert (cached.dim, plain.dim, plain.pooling) == (8, 16, "mean")
    assert plain.optimizer == jde.optim.adam(0.1, eps=1e-8)
    assert plain.initializer == jde.initializers.uniform(-(50**-0.5), 50**-0.5)
    tiers = [each.tier for each in (cached, plain, managed)]
    host = jde.tiers.host
    assert tiers == [host(hbm_fraction=0.2), None, host(hbm_fraction=1 / 128)]
    # 32 rows a set, of all tables that are cached together.
    (one,) = T.tables_from_fbgemm(SPECS[:1], cache_sets=1)
    assert (one.to_table().tier, one.name) == (host(hbm_fraction=0.32), "t0")
    for one in T.tables_from_fbgemm(SPECS[:1] * 2, cache_sets=1):
        assert one.to_table().tier == host(hbm_fraction=0.16)
    (one,) = T.tables_from_fbgemm(SPECS[:1], cache_sets=4)  # for 128 rows of 100
    assert one.to_table().tier is None
    (one,) = T.tables_from_fbgemm(SPECS[:1], enforce_hbm=True)
    assert one.to_table().tier is None
    (one,) = T.tables_from_fbgemm(SPECS[:1], pooling_mode=2)
    assert isinstance(one, T.EmbeddingConfig) and one.to_table().pooling is None
    with pytest.raises(ValueError, match="in which each has a feature"):
        T.tables_from_fbgemm(SPECS, [0, 0])
    with pytest.raises(ValueError, match="the location of a table is one of"):
        T.tables_from_fbgemm([(10, 8, "disk")])
