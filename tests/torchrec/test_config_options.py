# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Every field of TorchRec's configs and constraints does what the list says."""

import dataclasses
import inspect
import re
import warnings

import pytest

import jax_dynemb as jde
from jax_dynemb._src.torchrec import configs
from peer_options import given, options_of, wanted

T = jde.torchrec
CONFIGS, CONSTRAINTS = options_of("torchrec"), options_of("torchrec_constraints")
BASE = {"num_embeddings": 1000, "embedding_dim": 8, "name": "t"}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_field_of_a_config(monkeypatch, name):
    monkeypatch.setattr(configs, "_told", set())
    option = CONFIGS[name]
    example = given(name, option)
    if name == "init_fn":
        example[name] = eval(example[name], {"jde": jde})
    plain = T.EmbeddingBagConfig(**BASE).to_table()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = T.EmbeddingBagConfig(**BASE | example).to_table()
    said = [str(each.message) for each in told]
    meant = option.get("note") == "no meaning for hash tables"
    assert len(said) == meant and all(name in text for text in said)
    expected = wanted(option) if "gives" in option else {}
    assert made == dataclasses.replace(plain, **expected)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_field_of_constraints(name):
    option = CONSTRAINTS[name]
    if "refused" in option:
        with pytest.raises(ValueError, match=re.escape(option["refused"])) as error:
            T.ParameterConstraints(**given(name, option))
        assert name in str(error.value)
        return
    made = dataclasses.asdict(T.ParameterConstraints(**given(name, option)))
    plain = dataclasses.asdict(T.ParameterConstraints())
    if "note" in option:
        assert made == plain | {name: option["other"]}
        return
    lists = {k: list(v) if isinstance(v, tuple) else v for k, v in made.items()}
    assert lists == plain | wanted(option)


OWN = {"optimizer", "tt_ranks", "table_fields", "num_keys", "key_skew"}


@pytest.mark.parametrize(
    ("kind", "options"),
    [(T.EmbeddingBagConfig, CONFIGS), (T.ParameterConstraints, CONSTRAINTS)],
)
def test_the_list_has_every_field_and_its_default(kind, options):
    parameters = inspect.signature(kind).parameters
    assert parameters.keys() - OWN == options.keys()
    for name, option in options.items():
        default = parameters[name].default
        if default is not inspect.Parameter.empty:
            default = list(default) if isinstance(default, tuple) else default
            assert getattr(default, "value", default) == option.get("default"), name
