# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A tensor-train table: frozen, hashable, checked when it is made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import optax

from jax_dynemb._src.checked_fields import CheckedFields
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.initializers import zeros
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.names import MOST_BYTES, check_table_name
from jax_dynemb._src.optim.interface import Functor, Fused, NoUpdate
from jax_dynemb._src.tt.initializers import CoreInitializer, tail_normal
from jax_dynemb._src.tt.shapes import MOST_CORES, suggested_shapes

_COMPUTE = ("float32", "tensorfloat32", "bfloat16")
_ELEMENTWISE = ("sgd", "adagrad", "adam")
# A row's number is one word; the largest is that of "no row".
MAX_ROWS = 2**32 - 1
_RESIDUAL = "_residual"  # ends the name of a residual table that has none


@dataclasses.dataclass(frozen=True, repr=False)
class TTConfig(CheckedFields):
    """Declares one tensor-train table: its rows are products of small cores.

    Row ``(i0 * p1 + i1) * p2 + i2`` is a product: slice ``i0`` of the first core times
    slice ``i1`` of the second, and so on. Source: Oseledets, "Tensor-train
    decomposition", SIAM J. Sci. Comput. 2011. Core ``t`` is
    float32[p_t, R_t, q_t, R_{t+1}] with R_0 = R_T = 1: FBTT-Embedding's layout.

    Attributes:
      name: of the table; also seeds its cores.
      dim: columns of a row.
      num_embeddings: rows of the table.
      ranks: R_1 to R_{T-1} of 2 to 5 cores; one number means three cores of it.
      rows_shape: p_0 to p_{T-1}, whose product is ``num_embeddings`` or more; None:
        see ``jde.tt.suggested_shapes``.
      dim_shape: q_0 to q_{T-1}, whose product is ``dim``; None: likewise.
      ids: "index": an id is the number of its row. Other ids are counted and read
        zeros. "hash": the hash of any 64-bit id is the number of its row.
      initializer: the law of the table's entries, one of ``jde.tt``.
      optimizer: ``jde.optim.sgd``, ``adagrad`` or ``adam``, or any optax
        transformation, of the whole cores; None: the caller updates them.
      feature_names: features that look up this table; ``(name,)`` if empty.
      pooling: "sum" or "mean" over the last axis of the ids, or None for a row an id.
      compute_dtype: of products: "float32", "tensorfloat32" (float32 where a device has
        no such units) or "bfloat16". Sums are in float32. With "bfloat16" factors and
        the rows of a batch may have 16 bits too, where a GPU has kernels for them.
      hash_seed: a secret in the hash of ids; see ``jde.TableConfig``.
      residual: a dynamic table whose rows are added to those of the cores. Hot ids then
        learn what products of this rank cannot express. A number is the capacity of a
        table that evicts the ids of fewest lookups. Or write a ``jde.TableConfig``
        without features and pooling, whose rows begin as zeros. ``jde.Tables`` and its
        modules hold it as a table of its own: ``<name>_residual``, or its own name.
      key_dtype: "int64", or "int32" for ids that are 32-bit jax Arrays.
    """

    name: str
    dim: int
    num_embeddings: int
    ranks: int | Sequence[int]
    rows_shape: Sequence[int] | None = None
    dim_shape: Sequence[int] | None = None
    ids: Literal["index", "hash"] = "index"
    initializer: CoreInitializer = dataclasses.field(default_factory=tail_normal)
    optimizer: Any = None
    feature_names: tuple[str, ...] = ()
    pooling: Literal["sum", "mean"] | None = None
    compute_dtype: Literal["float32", "tensorfloat32", "bfloat16"] = "tensorfloat32"
    hash_seed: int = dataclasses.field(default=0, repr=False)
    residual: TableConfig | int | None = None
    key_dtype: Literal["int64", "int32"] = "int64"

    def __post_init__(self) -> None:
        """Checks every field and brings it into its one form."""
        check_table_name("TTConfig", self.name, MOST_BYTES - len(_RESIDUAL))
        for field in ("dim", "num_embeddings"):
            self._set(field, self._whole(field, getattr(self, field)))
        one = isinstance(self.ranks, (int, np.integer))
        ranks: Any = (self.ranks,) * 2 if one else self.ranks
        self._set("ranks", self._all_whole("ranks", ranks))
        self._set_shapes()
        self._choose("ids", ("index", "hash"))
        self._choose("pooling", (None, "sum", "mean"))
        self._choose("key_dtype", ("int64", "int32"))
        self._choose("compute_dtype", _COMPUTE)
        self._check_initializer()
        self._check_optimizer()
        self._set_features()
        self._check_hash_seed()
        if self.residual is not None:
            self._set("residual", self._residual_table(self.residual))

    @property
    def num_cores(self) -> int:
        """How many cores the table has."""
        return len(self._ranks) + 1

    @property
    def num_rows(self) -> int:
        """Rows that the cores have: the product of ``rows_shape``."""
        return math.prod(self.row_factors)

    @property
    def core_shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """(p_t, R_t, q_t, R_{t+1}) of each core."""
        before, after = (1, *self._ranks), (*self._ranks, 1)
        pairs = zip(self.row_factors, before, self.dim_factors, after, strict=True)
        return tuple(pairs)

    @property
    def num_parameters(self) -> int:
        """Numbers in all cores."""
        return sum(math.prod(shape) for shape in self.core_shapes)

    @property
    def row_factors(self) -> tuple[int, ...]:
        """``rows_shape`` as resolved."""
        assert self.rows_shape is not None
        return tuple(self.rows_shape)

    @property
    def dim_factors(self) -> tuple[int, ...]:
        """``dim_shape`` as resolved."""
        assert self.dim_shape is not None
        return tuple(self.dim_shape)

    @property
    def _ranks(self) -> tuple[int, ...]:
        assert not isinstance(self.ranks, int)
        return tuple(self.ranks)

    def _whole(self, field: str, value: Any) -> int:
        if not is_whole(value) or value < 1:
            self._fail(f"{field} must be an int of 1 or more, not {value!r}")
        return int(value)

    def _all_whole(self, field: str, values: Any) -> tuple[int, ...]:
        if not isinstance(values, (tuple, list)):
            self._fail(f"{field} must be a tuple of ints, not {values!r}")
        return tuple(self._whole(field, value) for value in values)

    def _set_shapes(self) -> None:
        count = len(self._ranks) + 1
        if not 2 <= count <= MOST_CORES:
            self._fail(
                f"ranks {self._ranks} are those between {count} cores; a table has 2 "
                f"to {MOST_CORES} cores, so give 1 to {MOST_CORES - 1} ranks"
            )
        rows, columns = suggested_shapes(self.num_embeddings, self.dim, count)
        for field, suggested in (("rows_shape", rows), ("dim_shape", columns)):
            given = getattr(self, field)
            shape = suggested if given is None else self._all_whole(field, given)
            if len(shape) != count:
                self._fail(
                    f"{field} {shape} has {len(shape)} factors, but {len(self._ranks)} "
                    f"ranks are between {count} cores; {suggested} would do"
                )
            self._set(field, shape)
        if self.num_rows < self.num_embeddings:
            self._fail(
                f"rows_shape {self.rows_shape} has {self.num_rows} rows, fewer than "
                f"num_embeddings {self.num_embeddings}; {rows} would do"
            )
        if self.num_rows > MAX_ROWS:
            self._fail(f"the cores have {self.num_rows} rows; 2**32 - 1 are the most")
        if math.prod(self.dim_factors) != self.dim:
            self._fail(
                f"dim_shape {self.dim_shape} has the product "
                f"{math.prod(self.dim_factors)}, not dim {self.dim}; {columns} would do"
            )

    def _check_initializer(self) -> None:
        if not isinstance(self.initializer, CoreInitializer):
            self._fail(
                "initializer must be one of jde.tt (tail_normal, normal, uniform, "
                f"approx_uniform, orthogonal, from_dense), not {self.initializer!r}: "
                "the initializers of dynamic tables make rows, not cores"
            )
        self.initializer.check(self)

    def _check_optimizer(self) -> None:
        optimizer = self.optimizer
        if isinstance(optimizer, Fused) and optimizer.kind not in _ELEMENTWISE:
            self._fail(
                f"optimizer {optimizer.kind} has a state for each row of a table, and "
                "a core has none of these rows; use jde.optim.sgd, adagrad or adam"
            )
        if isinstance(optimizer, (Functor, NoUpdate)):
            self._fail(
                f"optimizer jde.optim.{optimizer.kind}, with these options, updates "
                "rows of a table, and a core has none. Use jde.optim.sgd, adagrad or "
                "adam without clipping, any optax transformation, or None"
            )
        known = (Fused, optax.GradientTransformation)
        if optimizer is not None and not isinstance(optimizer, known):
            self._fail(
                "optimizer must be None, jde.optim.sgd, adagrad or adam, or an optax "
                f"transformation, e.g. optax.adam(1e-3), not {optimizer!r}"
            )

    def _residual_table(self, residual: Any) -> TableConfig:
        if not isinstance(residual, TableConfig):
            fused = isinstance(self.optimizer, Fused)
            return TableConfig(
                f"{self.name}{_RESIDUAL}",
                self.dim,
                self._whole("residual", residual),
                initializer=zeros(),
                score_strategy="lfu",
                key_dtype=self.key_dtype,
                **({"optimizer": self.optimizer} if fused else {}),
            )
        if residual.dim != self.dim or residual.key_dtype != self.key_dtype:
            self._fail(
                f"residual '{residual.name}' has dim {residual.dim} and key_dtype "
                f"{residual.key_dtype!r}, but must have dim {self.dim} and "
                f"{self.key_dtype!r}"
            )
        if residual.feature_names != (residual.name,) or residual.pooling is not None:
            self._fail(
                f"residual '{residual.name}' takes features and pooling from this "
                "table: leave feature_names and pooling out of its TableConfig"
            )
        if residual.initializer != zeros():
            self._fail(
                f"residual '{residual.name}' must begin as zeros, so that an id reads "
                "the row of the cores: write initializer=jde.initializers.zeros()"
            )
        return residual
