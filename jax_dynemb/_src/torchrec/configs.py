# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's table configs, and the jde.TableConfig that each becomes."""

from __future__ import annotations

import dataclasses
import enum
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from jax_dynemb._src import initializers, lifecycle, tt
from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.optim import sgd
from jax_dynemb._src.row_formats import dtype_name
from jax_dynemb._src.table_sizes import room_for
from jax_dynemb._src.torchrec.init_fns import initializer_of
from jax_dynemb._src.torchrec.policies import scores_for


class PoolingType(str, enum.Enum):  # noqa: UP042 (str() gives TorchRec's text)
    """Chooses how the rows of a bag become one."""

    SUM = "SUM"
    MEAN = "MEAN"
    NONE = "NONE"


class DataType(str, enum.Enum):  # noqa: UP042
    """Names what rows are stored as; tables take FP32, FP16 and BF16."""

    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"
    FP64 = "FP64"
    FP8 = "FP8"
    NFP8 = "NFP8"
    INT64 = "INT64"
    INT32 = "INT32"
    INT16 = "INT16"
    INT8 = "INT8"
    UINT8 = "UINT8"
    UINT32 = "UINT32"
    INT4 = "INT4"
    INT2 = "INT2"


DTYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
NAMES_OF_DTYPES = {dtype: DataType(name) for name, dtype in DTYPES.items()}
_UNUSED = (
    *("need_pos", "input_dim", "num_embeddings_post_pruning", "total_num_buckets"),
)
_told: set[tuple[str, ...]] = set()


@dataclasses.dataclass
class Config:
    """Describes a table of either kind.

    Attributes:
      num_embeddings: ids that the table holds, each with a row of its own. Ids are hash
        keys, not row numbers: any 64-bit id may come. For that the table gets about
        twice as many slots; ``to_table(capacity=...)`` chooses another number.
      embedding_dim: columns of a row.
      name: of the table.
      data_type: of the stored rows.
      feature_names: keys that look it up; ``[name]`` if empty.
      weight_init_max: bounds of the uniform initial rows; ±1/sqrt(num_embeddings) if
        None.
      weight_init_min: the lower one.
      init_fn: one of ``jde.initializers``, of ``torch.nn.init`` what draws each number
        by itself (``functools.partial(torch.nn.init.normal_, std=0.02)``), or of
        jax.nn.initializers zeros and ones.
      optimizer: of the rows, see ``with_optimizer``; SGD of 0.01 if None. For cores it
        may be any optax transformation.
      tt_ranks: makes a tensor train of the table: the ranks between its cores, as in
        FBTT-Embedding. Its ids are row numbers, and ``num_embeddings`` is exact.
      table_fields: other fields of ``jde.TableConfig``, as ``to_table`` takes them: the
        second result of ``from_fused_params``, or ``{"tier": ...}``.
      use_virtual_table: accepted: every table here creates rows as ids come.
      virtual_table_eviction_policy: TorchRec's object or a dict of its fields; the
        table then scores its rows by uses or by time, see ``eviction_rule``.
      need_pos: accepted and unused, as are the three below.
      input_dim: unused.
      num_embeddings_post_pruning: unused.
      total_num_buckets: unused.
      enable_embedding_update: accepted: ``Tables.insert`` writes rows of every table.
    """

    num_embeddings: int
    embedding_dim: int
    name: str = ""
    data_type: DataType | str = DataType.FP32
    feature_names: Sequence[str] = ()
    weight_init_max: float | None = None
    weight_init_min: float | None = None
    num_embeddings_post_pruning: int | None = None
    init_fn: Any = None
    need_pos: bool = False
    input_dim: int | None = None
    total_num_buckets: int | None = None
    use_virtual_table: bool = False
    virtual_table_eviction_policy: Any = None
    optimizer: Any = None
    tt_ranks: Sequence[int] | int | None = None
    table_fields: Mapping[str, Any] | None = None
    enable_embedding_update: bool = False

    _pools: ClassVar[bool] = False

    def __hash__(self) -> int:
        """Hashes what does not change: modules hold configs as static attributes."""
        return hash((type(self), self.name, self.num_embeddings, self.embedding_dim))

    def to_table(self, **more: Any) -> TableConfig | tt.TTConfig:
        """Returns the table as the core knows it.

        Args:
          more: other fields of ``jde.TableConfig``: capacity, sharding,
            score_strategy, ...; or of ``jde.TTConfig`` where there are ``tt_ranks``.
            They win over what the config says.

        Returns:
          ``jde.TableConfig``, or ``jde.TTConfig`` where there are ``tt_ranks``.

        Raises:
          TypeError: ``init_fn`` cannot be a function of the key, or fills no cores.
          ValueError: the data type is none of FP32, FP16 and BF16; a number that is
            none; or bounds that cores cannot have.
        """
        self._tell_unused()
        self._check_sizes()
        more = {**(self.table_fields or {}), **more}
        scores = scores_for(self.name, self.virtual_table_eviction_policy)
        if self.tt_ranks is not None:
            if scores:
                raise ValueError(
                    f"table '{self.name}': a tensor train has no rows that could "
                    "leave: drop virtual_table_eviction_policy."
                )
            return tt.TTConfig(**{**self._tensor_train(), **self._pooling(), **more})
        fields = {
            "name": self.name,
            "dim": self.embedding_dim,
            "capacity": room_for(int(self.num_embeddings)),
            "feature_names": tuple(self.feature_names),
            "initializer": self._initializer(),
            "param_dtype": self._dtype(),
        }
        if self.optimizer is not None:
            fields["optimizer"] = self.optimizer
        fields = {**fields, **scores, **self._pooling(), **more}
        if fields.get("rounding") == "stochastic" and _rounds_nothing(fields):
            del fields["rounding"]  # as FBGEMM, whose default it is
        return TableConfig(**fields)

    def eviction_rule(self, **options: Any) -> lifecycle.Rule | None:
        """Returns the policy as a rule for ``erase_where`` of the collection.

        Nothing triggers it: call ``erase_where`` as often as it shall evict.

        Args:
          options: of ``jde.lifecycle.Rule.from_policy``.

        Returns:
          ``jde.lifecycle.Rule``; None if it evicts nothing.

        Raises:
          TypeError: ``virtual_table_eviction_policy`` is no policy.
        """
        policy = self.virtual_table_eviction_policy
        if policy is None:
            return None
        return lifecycle.Rule.from_policy(policy, **options)

    def _check_sizes(self) -> None:
        for field in ("num_embeddings", "embedding_dim"):
            size = getattr(self, field)
            if not is_whole(size) or size < 1:
                raise ValueError(
                    f"table '{self.name}': {field} must be an int of 1 or more, not "
                    f"{size!r}."
                )
        if isinstance(self.feature_names, str):
            raise ValueError(
                f"table '{self.name}': feature_names must be a list: write "
                f"[{self.feature_names!r}]."
            )

    def _tensor_train(self) -> dict[str, Any]:
        """Returns the fields of a tensor train whose rows have the same law."""
        if self._dtype() != "float32":
            raise ValueError(
                f"table '{self.name}': cores of a tensor train are FP32; write "
                "to_table(compute_dtype='bfloat16') for products of BF16."
            )
        return {
            "name": self.name,
            "dim": self.embedding_dim,
            "num_embeddings": self.num_embeddings,
            "ranks": self.tt_ranks,
            "feature_names": tuple(self.feature_names),
            "initializer": self._cores(),
            "optimizer": sgd(0.01) if self.optimizer is None else self.optimizer,
        }

    def _cores(self) -> tt.CoreInitializer:
        if self.init_fn is not None:
            if isinstance(self.init_fn, tt.CoreInitializer):
                return self.init_fn
            raise TypeError(
                f"table '{self.name}': init_fn {self.init_fn!r} makes rows, not cores: "
                "use one of jde.tt (tail_normal, normal, uniform, from_dense, ...)."
            )
        low, high = self.weight_init_min, self.weight_init_max
        if low is None and high is None:
            return tt.tail_normal()  # the variance of ±1/sqrt(num_embeddings)
        bound = high if high is not None else -(low or 0.0)
        if bound <= 0 or (low is not None and low != -bound):
            raise ValueError(
                f"table '{self.name}': rows of a tensor train lie around 0: give "
                f"weight_init_min = -weight_init_max, not {low} and {high}."
            )
        return tt.tail_normal(bound / math.sqrt(3.0))

    def _pooling(self) -> dict[str, Any]:
        return {}

    def _dtype(self) -> str:
        name = str(getattr(self.data_type, "value", self.data_type)).upper()
        if name not in DTYPES:
            raise ValueError(
                f"table '{self.name}': data_type {name} cannot be trained: tables "
                f"take {', '.join(DTYPES)}. For integers of serving files see "
                "jde.export."
            )
        return DTYPES[name]

    def _initializer(self) -> Any:
        if self.init_fn is not None:
            rows, dim = int(self.num_embeddings), int(self.embedding_dim)
            return initializer_of(self.name, self.init_fn, rows, dim)
        bound = 1.0 / math.sqrt(self.num_embeddings)
        low, high = self.weight_init_min, self.weight_init_max
        high = bound if high is None else high
        return initializers.uniform(-bound if low is None else low, high)

    def _tell_unused(self) -> None:
        set_here = tuple(f for f in _UNUSED if getattr(self, f))
        if set_here and set_here not in _told:
            _told.add(set_here)
            warnings.warn(
                f"{', '.join(set_here)} of table '{self.name}' have no meaning for "
                "hash tables and are passed over; leave them out.",
                stacklevel=3,
            )


@dataclasses.dataclass
class EmbeddingBagConfig(Config):
    """Describes a table whose rows are pooled, with TorchRec's fields."""

    pooling: PoolingType | str = PoolingType.SUM

    _pools: ClassVar[bool] = True
    __hash__ = Config.__hash__

    def _pooling(self) -> dict[str, Any]:
        name = str(getattr(self.pooling, "value", self.pooling)).lower()
        if name not in ("sum", "mean"):
            raise ValueError(
                f"table '{self.name}': pooling {name.upper()} gives a row an id: use "
                "EmbeddingConfig and EmbeddingCollection."
            )
        return {"pooling": name}


@dataclasses.dataclass
class EmbeddingConfig(Config):
    """Describes a table that gives a row an id, with TorchRec's fields."""

    __hash__ = Config.__hash__


def _rounds_nothing(fields: Mapping[str, Any]) -> bool:
    is_float32 = dtype_name(fields["param_dtype"]) == "float32"
    return is_float32 and not fields.get("state_dtype")


Table = EmbeddingBagConfig | EmbeddingConfig | TableConfig | tt.TTConfig
