# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Draws initial cores by the law that the entries of the whole table shall have.

The entries of the cores are independent, with mean 0 and standard deviation ``s``. An
entry of the table is a sum of ``prod(R)`` products of T of them. Its mean is 0, and its
variance ``prod(R) * s**(2 * T)``. So ``s = stddev**(1/T) * prod(R)**(-1/(2*T))``.

Every number is a function of the seed, the table's name, the core and the place in it.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jax_dynemb._src.tt.decompose import decompose

_TAIL = 2.0  # in standard deviations
# The variance of a standard normal number beyond this bound: 1 + 2 phi(2) / Phi(-2).
_TAIL_VARIANCE = 5.7464310
_NOISE = 0.01
_MISSING = (
    "Table '{table}': from_dense was given rows 0 to {given} - 1, but rows_shape "
    "{shape} makes {rows}. The {missing} from {given} on count as zeros, which takes "
    "accuracy from the others. Append rows that suit the table: "
    "from_dense(np.resize(table, ({rows}, table.shape[1]))) repeats it."
)


class _TrainTable(Protocol):
    """Lists what first values depend on: ``TTConfig`` without the law it holds."""

    @property
    def name(self) -> str: ...
    @property
    def ids(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def num_embeddings(self) -> int: ...
    @property
    def rows_shape(self) -> Any: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_cores(self) -> int: ...
    @property
    def core_shapes(self) -> tuple[tuple[int, int, int, int], ...]: ...


@dataclasses.dataclass(frozen=True)
class CoreInitializer:
    """Describes the first values of cores; make one with the functions below.

    Attributes:
      stddev: standard deviation of the table's entries; None: 1/sqrt(3 * rows), that
        of a uniform law in ±1/sqrt(rows).
    """

    stddev: float | None = None

    def check(self, config: _TrainTable) -> None:
        """Raises ValueError if the cores of a table cannot have this law."""
        if self.stddev is not None and not self.stddev > 0:
            raise ValueError(
                f"Table '{config.name}': stddev must be above 0, not {self.stddev}"
            )

    def of_table(self, config: _TrainTable) -> float:
        """Returns the standard deviation of the table's entries."""
        if self.stddev is not None:
            return self.stddev
        return 1.0 / math.sqrt(3.0 * config.num_embeddings)

    def of_cores(self, config: _TrainTable) -> float:
        """Returns the standard deviation of the entries of each core."""
        ranks = math.prod(shape[3] for shape in config.core_shapes)
        count = config.num_cores
        return self.of_table(config) ** (1 / count) * ranks ** (-1 / (2 * count))

    def cores(self, config: _TrainTable, key: jax.Array) -> tuple[jax.Array, ...]:
        """Makes the cores, float32[p_t, R_t, q_t, R_{t+1}] each."""
        scale = self.of_cores(config)
        return tuple(
            scale * self.entries(jax.random.fold_in(key, t), shape)
            for t, shape in enumerate(config.core_shapes)
        )

    def entries(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draws independent numbers of mean 0 and variance 1."""
        raise NotImplementedError


class TailNormal(CoreInitializer):
    """See ``tail_normal``."""

    def entries(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        signs, sizes = jax.random.split(key)
        below = jax.scipy.stats.norm.cdf(-_TAIL)
        unit = jax.random.uniform(sizes, shape, minval=2.0**-24)
        tail = -jax.scipy.special.ndtri(unit * below)
        sign = jnp.where(jax.random.bernoulli(signs, 0.5, shape), 1.0, -1.0)
        return sign * tail / math.sqrt(_TAIL_VARIANCE)


class NormalCores(CoreInitializer):
    """See ``normal``."""

    def entries(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(key, shape)


class UniformCores(CoreInitializer):
    """See ``uniform``."""

    def entries(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        bound = math.sqrt(3.0)
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class ApproxUniform(CoreInitializer):
    """See ``approx_uniform``."""

    def cores(self, config: _TrainTable, key: jax.Array) -> tuple[jax.Array, ...]:
        """Makes cores that choose an entry of the last one, and its sign."""
        result = []
        for t, shape in enumerate(config.core_shapes[:-1]):
            places, signs, noise = jax.random.split(jax.random.fold_in(key, t), 3)
            chosen = jax.random.randint(places, shape[:3], 0, shape[3])
            sign = jnp.where(jax.random.bernoulli(signs, 0.5, shape[:3]), 1.0, -1.0)
            core = jax.nn.one_hot(chosen, shape[3]) * sign[..., None]
            # Without it equal choices would stay equal rows for all of training.
            core += _NOISE / math.sqrt(shape[3]) * jax.random.normal(noise, shape)
            result.append(core)
        bound = math.sqrt(3.0) * self.of_table(config)
        end = jax.random.fold_in(key, config.num_cores - 1)
        last = config.core_shapes[-1]
        return (*result, jax.random.uniform(end, last, minval=-bound, maxval=bound))


class Orthogonal(CoreInitializer):
    """See ``orthogonal``."""

    def check(self, config: _TrainTable) -> None:
        """Raises ValueError if a rank is larger than what its core spans."""
        super().check(config)
        for p, before, q, after in config.core_shapes[:-1]:
            if after > before * p * q:
                raise ValueError(
                    f"Table '{config.name}': rank {after} is more than the "
                    f"{before * p * q} rows of its core; use a lower rank or another "
                    "initializer"
                )

    def cores(self, config: _TrainTable, key: jax.Array) -> tuple[jax.Array, ...]:
        """Makes all cores but the last with orthonormal columns.

        Then the Frobenius norm of the table is that of the last core.
        """
        result = []
        for t, (p, before, q, after) in enumerate(config.core_shapes[:-1]):
            flat = jax.random.normal(
                jax.random.fold_in(key, t), (before * p * q, after)
            )
            columns, _ = jnp.linalg.qr(flat)
            result.append(columns.reshape(before, p, q, after).swapaxes(0, 1))
        last = config.core_shapes[-1]
        entries = config.num_rows * config.dim / math.prod(last)
        scale = self.of_table(config) * math.sqrt(entries)
        end = jax.random.fold_in(key, config.num_cores - 1)
        return (*result, scale * jax.random.normal(end, last))


@dataclasses.dataclass(frozen=True, eq=False)
class FromDense(CoreInitializer):
    """See ``from_dense``.

    Attributes:
      table: float[num_embeddings, dim] or float[num_rows, dim].
    """

    table: Any = dataclasses.field(default=None, repr=False)

    def __deepcopy__(self, memo: Any) -> FromDense:
        """Returns the object itself, which equals no other one."""
        return self

    def check(self, config: _TrainTable) -> None:
        """Raises ValueError if the dense table has another shape."""
        wanted = (config.num_embeddings, config.dim)
        if np.shape(self.table) not in (wanted, (config.num_rows, config.dim)):
            raise ValueError(
                f"Table '{config.name}': from_dense needs a table of shape {wanted}, "
                f"not {np.shape(self.table)}"
            )
        if config.ids == "hash":
            raise ValueError(
                f"Table '{config.name}': from_dense has a row for each id, but "
                "ids='hash' gives ids other rows. Write ids='index'."
            )
        if not np.isfinite(np.asarray(self.table)).all():
            raise ValueError(
                f"Table '{config.name}': the table of from_dense has numbers that are "
                "not finite, which have no decomposition. Replace them first."
            )

    def cores(self, config: _TrainTable, key: jax.Array) -> tuple[jax.Array, ...]:
        """Decomposes the table; warns of rows that it lacks. ``key`` is not read."""
        del key
        given, rows = len(self.table), config.num_rows
        if given < rows:
            shape, missing = config.rows_shape, rows - given
            message = _MISSING.format(
                table=config.name, given=given, rows=rows, shape=shape, missing=missing
            )
            warnings.warn(message, stacklevel=2)
        cores, _ = decompose(self.table, config.core_shapes)
        return tuple(jnp.asarray(core, jnp.float32) for core in cores)


def tail_normal(stddev: float | None = None) -> TailNormal:
    """Draws normal numbers beyond two standard deviations, scaled; the default.

    The "sampled Gaussian" of TT-Rec (Yin et al., MLSys 2021): the table's entries are
    near normal, where products of plain normal numbers pile up near 0.
    """
    return TailNormal(stddev)


def normal(stddev: float | None = None) -> NormalCores:
    """Draws normal cores; the entries' kurtosis is 3 * prod(1 + 2 / R)."""
    return NormalCores(stddev)


def uniform(stddev: float | None = None) -> UniformCores:
    """Draws uniform cores in ±sqrt(3) * s."""
    return UniformCores(stddev)


def approx_uniform(stddev: float | None = None) -> ApproxUniform:
    """Entries of the table near uniform in ±sqrt(3) * stddev, for any number of cores.

    FBTT's initialiser of this name has the same law, for three cores. Here a row of a
    core has one large number, so an entry of the table is one of the last core.
    """
    return ApproxUniform(stddev)


def orthogonal(stddev: float | None = None) -> Orthogonal:
    """Cores with orthonormal columns, and the last one normal."""
    return Orthogonal(stddev)


def from_dense(table: Any) -> FromDense:
    """Takes the nearest cores to a dense table, by truncated SVDs; see ``decompose``.

    The cores have a row for each of ``prod(rows_shape)`` numbers. Those that the table
    lacks count as zeros, which takes accuracy from the others: ``init`` warns and says
    which ones they are.

    Args:
      table: float[num_embeddings, dim] or float[prod(rows_shape), dim], on the host.
    """
    return FromDense(None, table)
