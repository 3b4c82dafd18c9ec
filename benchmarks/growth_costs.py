# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where the fixed time of a swap goes."""

import time, jax, jax.numpy as jnp, numpy as np, sys
import jax_dynemb as jde
from bench_growth import make_step
from jax_dynemb.lifecycle._grower import _compile, _Next
from jax_dynemb.lifecycle._memory import fits_in_memory
from jax_dynemb.table import abstract


def ms(f, *a):
    b = time.perf_counter()
    r = jax.block_until_ready(f(*a))
    return 1e3 * (time.perf_counter() - b), r


n = int(sys.argv[1])
dim = int(sys.argv[2])
direct = len(sys.argv) > 3
print(jax.devices()[0].device_kind, n, dim, direct)
for rep in range(3):
    n += 128 * 8  # other shapes: nothing is cached
    coll = jde.Tables(
        [jde.TableConfig("t", dim, n, max_capacity=8 * n, on_full="refuse")]
    )
    step = make_step(coll)
    ids = {"t": jde.ids(np.arange(4096))}
    state = step(coll.init(0), ids)
    state = jax.block_until_ready(step(state, ids))
    for _ in range(3):
        base, state = ms(step, state, ids)
    growth = coll.plan_growth({"t": 2 * n})
    step2 = make_step(growth.coll)
    coming = _Next({}, growth, step2)
    ready = _compile(coming, abstract(state), abstract((ids,)), {})
    programs, compiled = ready.programs
    out = {}
    jax.block_until_ready(coll.stats_async(state).result())
    out["stats_async"], _ = ms(lambda: coll.stats_async(state))
    out["fits"], _ = ms(fits_in_memory, growth, state, ready.needed)
    out["fits2"], _ = ms(fits_in_memory, growth, state, ready.needed)
    t, a = ms(jnp.zeros, (2 * n, dim))
    out["zeros"] = t
    a = None
    if direct:
        out["compiled"] = ms(
            lambda s: {k: programs[k](v) for k, v in s.items()}, state
        )[0]
    out["apply"], new = ms(growth.apply, state)
    new = None
    out["apply2"], new = ms(growth.apply, state)
    new = None
    out["apply3"], new = ms(growth.apply, state)
    del state
    if direct:
        out["step compiled"], new = ms(compiled, new, ids)
    out["step"], new = ms(step2, new, ids)
    out["step2"], new = ms(step2, new, ids)
    out["step3"], new = ms(step2, new, ids)
    copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
    c = copy(new)
    c = None
    out["copy"], c = ms(copy, new)
    c = None
    print("step %.3f" % base, {k: round(v, 3) for k, v in out.items()}, flush=True)
