# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A training whose rows say which steps they have: each row counts its uses.

A row is the number of steps that have used it since it was removed last, in all of its
columns. So what a version must hold follows from its step alone, and a row that is too
small has missed a step, one that is too large had it twice.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jax_dynemb as jde

IDS, BATCH, REMOVED, DIM = 400, 60, 15, 4
TABLES = "ab"
COLL = jde.Tables(
    [
        jde.TableConfig(
            name,
            dim=DIM,
            capacity=1024,
            initializer=jde.initializers.zeros(),
            optimizer=jde.optim.sgd(1.0),
            log_removed=4096,
        )
        for name in TABLES
    ]
)


def drawn(step: int) -> tuple[np.ndarray, np.ndarray]:
    """The ids that a step uses, and those that it removes before."""
    draw = np.random.default_rng(step)
    return draw.permutation(IDS)[:BATCH], draw.permutation(IDS)[:REMOVED]


_COUNTS = [np.zeros(IDS, np.int16)]


def counts_at(step: int) -> np.ndarray:
    """How often each id was used since it was removed last, after a step."""
    while len(_COUNTS) <= step:
        used, removed = drawn(len(_COUNTS))
        counts = _COUNTS[-1].copy()
        counts[removed] = 0
        counts[used] += 1
        _COUNTS.append(counts)
    return _COUNTS[step]


@jax.jit
def train(state, used, removed):
    state = COLL.erase(state, removed)
    rows, residual, state = COLL.lookup(state, used)
    grads = {name: -jnp.ones_like(each) for name, each in rows.items()}
    return COLL.apply_gradients(state, residual, grads)


def of_both(ids: np.ndarray) -> dict:
    """The same ids for both tables."""
    return {name: jde.ids(ids) for name in TABLES}


def trained(state: Any, step: int) -> Any:
    """The state after one more step, which has this number."""
    used, removed = drawn(step)
    return train(state, of_both(used), of_both(removed))


def save(path: Path, step: int, state: Any) -> None:
    """Replaces a checkpoint: all arrays of a state, in one file that is there whole."""
    arrays = {str(n): np.asarray(x) for n, x in enumerate(jax.tree.leaves(state))}
    draft = path.with_name("draft.npz")
    np.savez(draft, step=step, **arrays)
    os.replace(draft, path)


def resumed(path: Path) -> tuple[Any, int]:
    """The state and the step of a checkpoint; those of a beginning if there is none."""
    state = COLL.init(0)
    if not path.exists():
        return state, 0
    leaves, tree = jax.tree.flatten(state)
    with np.load(path) as file:
        arrays = [jnp.asarray(file[str(n)]) for n in range(len(leaves))]
        return jax.tree.unflatten(tree, arrays), int(file["step"])


class Faults(NamedTuple):
    """Rows of one version that are not what its step says.

    Attributes:
      torn: rows whose columns differ, and dense parameters of another step.
      missed: rows that lack a step or are not there.
      twice: rows that had a step twice, and those that were removed and are there.
    """

    torn: int = 0
    missed: int = 0
    twice: int = 0


def faults_of(step: int, dense: np.ndarray, rows: dict[str, np.ndarray]) -> Faults:
    """Compares all rows of a version.

    Args:
      step: of the version.
      dense: what was published as [step, step].
      rows: by table, [IDS, DIM]; zeros for an id that is not there.
    """
    want = counts_at(step)
    torn = int((np.asarray(dense) != step).any())
    missed = twice = 0
    for name in TABLES:
        own = np.asarray(rows[name])
        torn += int((own != own[:, :1]).any(axis=1).sum())
        missed += int((own.min(axis=1) < want).sum())
        twice += int((own.max(axis=1) > want).sum())
    return Faults(torn, missed, twice)
