# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what is read out of a profiler's trace."""

import jax
import jax.numpy as jnp
import pytest

from suite import busy

# Two kernels that overlap, a copy after them, and a line that repeats what they did.
TRACE = """
planes {
  name: "/device:GPU:0"
  lines {
    name: "Stream #13(Compute)" timestamp_ns: 1000
    events { metadata_id: 1 offset_ps: 0 duration_ps: 4000000 }
    events { metadata_id: 1 offset_ps: 9000000 duration_ps: 1000000 }
  }
  lines {
    name: "Stream #14(MemcpyD2D)" timestamp_ns: 1000
    events { metadata_id: 2 offset_ps: 2000000 duration_ps: 4000000 }
  }
  lines {
    name: "XLA Ops" timestamp_ns: 1000
    events { metadata_id: 1 offset_ps: 0 duration_ps: 10000000 }
  }
  event_metadata {
    key: 1
    value { id: 1 name: "void dynemb::(anonymous namespace)::find<4>(dynemb::Args)" }
  }
  event_metadata { key: 2 value { id: 2 name: "MemcpyD2D" } }
}
planes { name: "/host:CPU" lines { name: "Stream of thoughts" } }
"""


def test_time_is_counted_once_where_kernels_overlap():
    found = busy.summarize(jax.profiler.ProfileData.from_text_proto(TRACE), steps=2)
    assert found is not None
    assert found.ms == pytest.approx((6 + 1) / 2 / 1e3)
    assert found.kernels == 1.5
    assert found.by_name == pytest.approx({"find": 2.5, "MemcpyD2D": 2.0})


def test_a_cpu_has_nothing_to_tell():
    double = jax.jit(lambda x: x + x)
    x = jax.device_put(jnp.ones(8), jax.devices("cpu")[0])
    assert busy.trace(lambda: double(x).block_until_ready(), steps=1) is None


@pytest.mark.gpu
def test_a_gpu_tells_of_a_kernel():
    double = jax.jit(lambda x: x + x)
    x = jax.device_put(jnp.ones(1 << 20), jax.devices("cuda")[0])
    double(x).block_until_ready()
    found = busy.trace(lambda: double(x).block_until_ready(), steps=1)
    assert found is not None
    assert 0 < found.ms < 10
    assert found.kernels >= 1
