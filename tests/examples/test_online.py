# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Another process serves what is trained here, and follows a change of taste."""

import pytest

import online


@pytest.mark.slow
@pytest.mark.parametrize("to", ["folder", "tcp"])
def test_a_server_follows_a_change_of_taste(tmp_path, monkeypatch, to):
    monkeypatch.chdir(tmp_path)
    options = ["--seconds", "10", "--change", "3", "--intervals", "0.05", "--to", to]
    ((auc, age),) = online.main(options).values()
    # A model of before the change has 0.43: the kinds are others than it has learned.
    assert auc > 0.55 and age < 5
