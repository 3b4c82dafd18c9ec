# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A GPU without the kernels for it: one sentence with the fix."""

import types

import jax
import pytest

import jax_dynemb as jde
from jax_dynemb._src import ffi as _ffi


def test_a_gpu_without_kernels_is_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(_ffi, "_load", lambda: {"CUDA": ImportError("absent")})
    gpu = types.SimpleNamespace(platform="gpu")
    monkeypatch.setattr(jax, "devices", lambda *_: [gpu])
    coll = jde.Tables([jde.TableConfig("t", 4, 100)])
    with jax.default_device(None), pytest.raises(RuntimeError, match="JAX_PLATFORMS"):
        coll.init(0)


def test_where_the_modules_came_from():
    assert (_ffi.loaded()["cpu"] or "").endswith(".so")
