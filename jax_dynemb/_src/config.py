# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Declares a table: frozen, hashable, checked when it is made."""

from __future__ import annotations

import dataclasses
import datetime
import math
import reprlib
from typing import Any, Literal, Self, get_args

import numpy as np

from jax_dynemb._src import ffi as _ffi
from jax_dynemb._src import initializers
from jax_dynemb._src.admission import Admission
from jax_dynemb._src.checked_fields import CheckedFields
from jax_dynemb._src.dynamicemb_options import table_fields, within_budget
from jax_dynemb._src.host_tier import HostTier
from jax_dynemb._src.initializers import Initializer
from jax_dynemb._src.is_whole import is_whole
from jax_dynemb._src.names import check_table_name
from jax_dynemb._src.optim.interface import (
    StateSpec,
    TableOptimizer,
    as_optimizer,
    checked_state_dtypes,
    known_number,
    sgd,
    stored_states,
)
from jax_dynemb._src.removal_options import kept_for, logged_keys
from jax_dynemb._src.row_formats import ROW_FORMATS, dtype_name
from jax_dynemb._src.score_strategy import (
    COMPETING,
    ScoreStrategy,
    Strategy,
    named_strategy,
)
from jax_dynemb._src.shardings import SHARDINGS, sharding_name
from jax_dynemb._src.store_tier import rows_above_store, tier_problem
from jax_dynemb._src.table_sizes import buckets_for, most_shards

MAX_DIM = 4096
_VALUE_TYPES = ("float32", "bfloat16", "float16")
_KEY_TYPES = ("int64", "int32")
_POOLINGS = (None, "sum", "mean", "sqrtn")
OnFull = Literal["evict", "evict_or_error", "compete", "refuse", "warn", "error"]
_ON_FULL = get_args(OnFull)
_EVICTING = ("evict", "evict_or_error", "compete")
_NONFINITE = ("skip", "propagate")
_ROUNDINGS = ("nearest", "stochastic")


@dataclasses.dataclass(frozen=True, repr=False)
class TableConfig(CheckedFields):
    """Declares one embedding table: its size, its rows, its optimizer, its eviction.

    Attributes:
      name: of the table; also seeds its rows, so renaming a table changes them. It
        begins names of files: no separators, and 180 bytes at most.
      dim: columns of a row, 1 to 4096.
      capacity: rows; rounded up to whole buckets of 128, and to a number of buckets
        that devices can share (by less than 1 % for a million rows).
      feature_names: features that look up this table; ``(name,)`` if empty.
      initializer: first value of a row; uniform in ±1/sqrt(capacity) if None.
      eval_initializer: what ``find`` returns for an id that is not stored.
      optimizer: one of ``jde.optim``, or any row-local optax transformation.
      score_strategy: which row a full bucket evicts first, see ``ScoreStrategy``.
        DynamicEmb's compound of TIMESTAMP and LFU, a tuple, is LFU.
      lfu_halflife: of an "lfu" table: lookups after which a use weighs half as much
        as a new one; None: counts never fade.
      on_full: ``"evict"``. ``"evict_or_error"``: likewise, and ``stats()`` raises if
        an id found no place even so. ``"compete"``, with LFU and CUSTOMIZED: a new key
        evicts only a row with a lower score than one use gives it.
        ``"refuse"``: new keys are refused and counted.
        ``"warn"``: like refuse, and ``stats()`` warns whenever their number has
        doubled; ``"error"``: like refuse, and ``stats()`` raises. None means evict, or
        refuse with NO_EVICTION.
      pooling: ``"sum"`` or ``"mean"`` over the last axis of the ids, or None for a
        row per id. ``"sqrtn"``: the sum divided by the root of the sum of squared
        weights, which are 1 each where a lookup has none, as TensorFlow has it.
      param_dtype: of the stored rows: float32, bfloat16 or float16.
      state_dtype: of optimizer states with a number for each column, by name:
        ``{"mu": "bfloat16"}`` halves a state's bytes. What forgets (``mu``, ``trace``)
        may be bfloat16; sums of squares too, with ``rounding="stochastic"``. All
        others are float32.
      dtype: of the returned rows.
      key_dtype: ``"int64"``, or ``"int32"`` for ids that are 32-bit jax Arrays.
      sharding: on a mesh. ``"row_wise"``: each device holds an equal share of the
        buckets. ``"table_wise"``: whole tables of one shape lie on different devices.
        ``"column_wise"``: each device holds all keys and an equal share of the
        columns. ``"replicated"`` (or ``"data_parallel"``): each device holds all of a
        small table. TorchRec's ``ShardingType`` and its names in capitals work too.
      pooling_factors: how many ids an example has, by feature; 1 each if empty.
        Table-wise tables are placed so that devices have equally much to do.
      nonfinite: what an update does with a row whose summed gradient has a NaN or an
        infinity: ``"skip"``, the row keeps its values and ``nonfinite`` in ``stats()``
        counts it; ``"propagate"``, the optimizer gets the gradient as it is.
      rounding: of rows and states of 16 bits that an update changes. ``"nearest"``:
        steps smaller than half a unit are lost. ``"stochastic"``: up or down at random,
        so that the mean is right; the bits follow from seed, table, id, column and
        update, on any device. ``insert``, ``scatter`` and checkpoints round to nearest.
      max_gradient: each number of the gradients that ``apply_gradients`` takes is
        clipped to this magnitude first, before pooling weights and sums; None: not.
      trainable: False: an update leaves rows, states and counters as they are.
      insert: False: a training lookup gives no row to unseen ids; see ``lookup``.
      admission: which unseen ids get a row, one of ``jde.admission``; None: all.
      hash_seed: a secret, 0 to 2**64 - 1, that goes into the hash of the keys. Set it
        where strangers choose ids: without it they can aim at one bucket. Checkpoints
        keep it; a program with another one inserts the rows again when it restores.
        With 0 the hash is public. See concepts/tables.md.
      max_capacity: rows that the table may grow to by ``growth_due`` and
        ``jde.lifecycle.Grower``. None: no bound for a table that never evicts; one
        that evicts keeps its size.
      grow_at: the share of slots in use from which on growth is due.
      log_removed: how many of the latest removed keys the state keeps, for
        ``take_removed`` and deltas; 0: none. It takes 8 bytes a key, and a little more
        so that any n keys fit with high probability.
      keep_for: rows that one of so many latest lookups has used should stay. If one is
        evicted, ``evicted_young`` counts it and ``growth_due`` names the table. A
        ``timedelta`` for a timestamp table; None: such rows are not counted.
      row_format: how a frozen table stores its rows, "float8_e4m3fn", "int8" or
        "int4", with a scale a row: set by ``jde.export.frozen(dtype=...)``. Only
        ``find`` reads such a table. None: rows are stored as ``param_dtype`` says.
      padding_id: an id that is padding in the ids of this table, as -1 always is: 0
        where that fills up lists. None: -1 alone. No row has it.
      tier: where rows lie: None, in device memory; ``jde.tiers.host(...)``, in host
        memory, with the rows in use in device memory.
    """

    name: str
    dim: int
    capacity: int
    feature_names: tuple[str, ...] = ()
    initializer: Any = None
    eval_initializer: Initializer = dataclasses.field(
        default_factory=initializers.zeros
    )
    optimizer: Any = dataclasses.field(default_factory=lambda: sgd(0.01))
    score_strategy: ScoreStrategy | Strategy | tuple[str, str] = ScoreStrategy.STEP
    lfu_halflife: int | None = None
    on_full: OnFull | None = None
    pooling: Literal["sum", "mean", "sqrtn"] | None = None
    param_dtype: Any = "float32"
    dtype: Any = "float32"
    key_dtype: Literal["int64", "int32"] = "int64"
    sharding: Any = "row_wise"
    pooling_factors: tuple[float, ...] = ()
    nonfinite: Literal["skip", "propagate"] = "skip"
    hash_seed: int = dataclasses.field(default=0, repr=False)
    rounding: Literal["nearest", "stochastic"] = "nearest"
    state_dtype: Any = ()
    max_gradient: float | None = None
    trainable: bool = True
    insert: bool = True
    admission: Admission | None = None
    max_capacity: int | None = None
    grow_at: float = 0.65
    log_removed: int = 0
    keep_for: int | datetime.timedelta | None = None
    row_format: str | None = None
    tier: HostTier | None = None
    padding_id: int | None = None

    def __post_init__(self) -> None:
        """Checks every field and brings it into its one form."""
        check_table_name("TableConfig", self.name)
        self._set_features()
        self._check_size()
        self._set("initializer", self._resolved_initializer())
        self._checked_initializer("eval_initializer")
        self._set("optimizer", self._resolved_optimizer())
        strategy = named_strategy(self.score_strategy, self._fail)
        self._set("score_strategy", strategy)
        self._check_halflife()
        self._set("on_full", self._resolved_on_full())
        self._choose("pooling", _POOLINGS)
        self._choose("nonfinite", _NONFINITE)
        self._check_hash_seed()
        self._check_updates()
        self._check_growth()
        self._check_removals()
        self._set("admission", self._resolved_admission())
        self._set("sharding", self._resolved_sharding())
        self._set("pooling_factors", self._resolved_factors())
        self._set("param_dtype", self._dtype_name("param_dtype", _VALUE_TYPES))
        self._set("state_dtype", self._resolved_state_dtypes())
        self._check_rounding()
        self._set("dtype", self._dtype_name("dtype", _VALUE_TYPES))
        self._set("key_dtype", self._dtype_name("key_dtype", _KEY_TYPES))
        self._choose("row_format", (None, *ROW_FORMATS))
        self._check_tier()
        self._check_padding()

    def to_dict(self, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
        """Returns what JSON and YAML can hold: fields that are not the defaults.

        An optimizer, initializer or rule is a dict with its name as "kind", such as
        ``{"kind": "adam", "learning_rate": 0.001}``. ``hash_seed``, a secret, is among
        the fields.

        Args:
          leave_out: fields that ``from_dict`` will be given.

        Raises:
          ValueError: a field holds what no file can, such as a schedule.

        Example:
          >>> text = yaml.safe_dump(config.to_dict())  # doctest: +SKIP
          >>> config = jde.TableConfig.from_dict(yaml.safe_load(text))  # doctest: +SKIP
        """
        from jax_dynemb._src.config_dict import to_dict

        return to_dict(self, tuple(leave_out))

    @classmethod
    def from_dict(cls, fields: Any, **others: Any) -> Self:
        """Makes a config of a dict, as ``to_dict`` returns it and files hold it.

        Args:
          fields: by name; a "kind" is the name of a function of ``jde.optim``,
            ``jde.initializers``, ``jde.admission`` or ``jde.tiers``, in lower case.
          others: fields as objects, instead of those of the dict.

        Raises:
          TypeError: it is no dict, or a function does not take what stands there.
          ValueError: a key is no field, or a field has no such value.
        """
        from jax_dynemb._src.config_dict import from_dict

        return from_dict(cls, fields, others)

    @classmethod
    def from_dynamicemb(cls, options: Any, name: str, **fields: Any) -> Self:
        """Translates the options of a table of NVIDIA DynamicEmb.

        ``init_capacity`` becomes the capacity, ``max_capacity`` the bound, and
        ``max_load_factor`` is ``grow_at``. They count the rows of one rank there, and
        of all devices here: pass ``capacity=`` where the tables are sharded.
        A rule counts the same, by ``jde.admission.Exact``. Rows beyond a budget of
        device memory get a host tier; no budget means that all rows are on devices.

        Args:
          options: ``DynamicEmbTableOptions``, or a dict of its fields.
          name: of the table.
          fields: of ``TableConfig``, instead of what the options say, or beside it.

        Raises:
          ValueError: an option has no counterpart; the message says what does it here.
        """
        config = cls(name, **table_fields(options, fields))
        return within_budget(config, options, fields)

    @property
    def num_buckets(self) -> int:
        """Buckets of 128 slots above any store, see ``buckets_for``."""
        return buckets_for(rows_above_store(self))

    @property
    def num_slots(self) -> int:
        """Rows that the arrays hold: ``num_buckets * 128``."""
        return self.num_buckets * _ffi.constants()["bucket_capacity"]

    @property
    def max_shards(self) -> int:
        """The most shards of equally many buckets, a power of two."""
        return most_shards(self.num_buckets)

    @property
    def states(self) -> dict[str, StateSpec]:
        """Optimizer states of a row by name, in the order of the arrays."""
        return stored_states(self.optimizer, self.dim, self.state_dtype)

    @property
    def evicts(self) -> bool:
        """Whether a new key may replace an old row."""
        return self.on_full in _EVICTING

    @property
    def grows(self) -> bool:
        """Whether ``growth_due`` may name the table: it refuses, or has a bound."""
        return self.max_capacity is not None or not self.evicts

    @property
    def max_slots(self) -> float:
        """Rows that the arrays may grow to; infinite without ``max_capacity``."""
        if self.max_capacity is None:
            return math.inf
        slots = _ffi.constants()["bucket_capacity"]
        return buckets_for(self.max_capacity) * slots

    @property
    def ids_per_example(self) -> float:
        """Sums ``pooling_factors`` over all features, 1 for each that has none."""
        return sum(self.pooling_factors) or float(len(self.feature_names))

    def _check_size(self) -> None:
        for field in ("dim", "capacity"):
            value = getattr(self, field)
            if not is_whole(value):
                self._fail(f"{field} must be an int, not {value!r}")
            self._set(field, int(value))
        if not 1 <= self.dim <= MAX_DIM:
            self._fail(f"dim must be 1 to {MAX_DIM}, not {self.dim}")
        if self.capacity < 1:
            self._fail(f"capacity must be 1 or more, not {self.capacity}")
        if buckets_for(self.capacity) >= 1 << 32:
            self._fail(f"capacity {self.capacity} is more than 2**39 rows")

    def _check_updates(self) -> None:
        limit = self.max_gradient
        if limit is not None:
            number = known_number(limit)
            # A kernel takes it as a float32, in which 0 would clip all to nothing.
            if number is None or not 0 < np.float32(number) < math.inf:
                self._fail(
                    f"max_gradient must be a number above 0, not {limit!r}; "
                    "None leaves gradients as they are"
                )
            self._set("max_gradient", number)
        for field in ("trainable", "insert"):
            self._choose(field, (True, False))
            self._set(field, bool(getattr(self, field)))

    def _check_rounding(self) -> None:
        self._choose("rounding", _ROUNDINGS)
        if self.rounding == "nearest" or self.state_dtype:
            return
        if self.param_dtype == "float32":
            self._fail(
                "rounding='stochastic' is for rows of 16 bits, but float32 rows are "
                "stored as they are computed; set param_dtype='bfloat16', or leave "
                "rounding out"
            )

    def _resolved_state_dtypes(self) -> tuple[tuple[str, str], ...]:
        args = self.optimizer, self.dim, self.rounding, self.state_dtype
        try:
            return checked_state_dtypes(*args)
        except ValueError as error:
            self._fail(str(error))

    def _check_growth(self) -> None:
        share = self.grow_at
        if isinstance(share, bool) or not isinstance(share, (int, float)):
            self._fail(f"grow_at must be a number, not {share!r}")
        if not 0 < share <= 1:
            self._fail(
                f"grow_at must be above 0 and at most 1, not {share}; 0.65 keeps a "
                "place for nearly every key, see concepts/lifecycle.md"
            )
        most = self.max_capacity
        if most is None:
            return
        if not is_whole(most):
            self._fail(f"max_capacity must be an int or None, not {most!r}")
        self._set("max_capacity", int(most))
        if self.max_slots < self.num_slots:
            self._fail(
                f"max_capacity {most} is less than the {self.num_slots} rows of "
                f"capacity={self.capacity}; raise max_capacity, or lower capacity"
            )

    def _check_removals(self) -> None:
        self._set("log_removed", logged_keys(self.log_removed, self._fail))
        is_timed = self.score_strategy is ScoreStrategy.TIMESTAMP
        kept = kept_for(self.keep_for, is_timed, self.evicts, self._fail)
        self._set("keep_for", kept)

    def _check_tier(self) -> None:
        if problem := tier_problem(self):
            self._fail(problem)

    def _check_padding(self) -> None:
        number = self.padding_id
        if number is None:
            return
        bits = 63 if self.key_dtype == "int64" else 31
        if not is_whole(number) or not -(1 << bits) <= number < 1 << bits:
            self._fail(
                f"padding_id must be one id, an int of {self.key_dtype}, not "
                f"{number!r}; None leaves -1 as the only padding"
            )
        self._set("padding_id", None if number == -1 else int(number))

    def _resolved_initializer(self) -> Initializer:
        if self.initializer is None:
            self._set("initializer", initializers.uniform())
        if isinstance(self.initializer, initializers.DefaultUniform):
            return self.initializer.for_capacity(self.capacity)
        return self._checked_initializer("initializer")

    def _checked_initializer(self, field: str) -> Initializer:
        given = getattr(self, field)
        if isinstance(given, Initializer):
            return given
        self._fail(
            f"{field} must be one of jde.initializers (uniform, normal, "
            f"truncated_normal, constant, zeros, debug), not {given!r}"
        )

    def _resolved_optimizer(self) -> Any:
        optimizer = as_optimizer(self.optimizer)
        if not isinstance(optimizer, TableOptimizer):
            what = "optimizer must be one of jde.optim or a row-local optax "
            what += "transformation"
            name = getattr(optimizer, "__name__", None)
            if callable(optimizer) and name:
                self._fail(f"{what}, not the function {name}: call it, {name}(0.01)")
            self._fail(f"{what}, e.g. jde.optim.adam(0.01), not {optimizer!r}")
        optimizer.states(self.dim)  # raises if it cannot serve a table
        return optimizer

    def _check_halflife(self) -> None:
        lookups = self.lfu_halflife
        if lookups is None:
            return
        if not is_whole(lookups):
            self._fail(f"lfu_halflife must be an int or None, not {lookups!r}")
        if not 1 <= lookups < 1 << 31:
            self._fail(
                f"lfu_halflife must be 1 to 2**31 - 1 lookups, not {lookups}; None "
                "keeps counts as they are"
            )
        if self.score_strategy is not ScoreStrategy.LFU:
            self._fail(
                "lfu_halflife is for counts of uses: set score_strategy='lfu', or "
                "leave lfu_halflife out"
            )
        self._set("lfu_halflife", int(lookups))

    def _resolved_on_full(self) -> str:
        keeps = self.score_strategy is ScoreStrategy.NO_EVICTION
        if self.on_full is None:
            return "refuse" if keeps else "evict"
        self._choose("on_full", _ON_FULL)
        if keeps and self.on_full in _EVICTING[:2]:
            self._fail(
                f"on_full={self.on_full!r} contradicts NO_EVICTION; use "
                "on_full='refuse' or 'error', or another score_strategy"
            )
        if self.on_full == "compete" and self.score_strategy not in COMPETING:
            strategy = ScoreStrategy(self.score_strategy).value
            self._fail(
                "on_full='compete' compares uses or custom scores, but with "
                f"score_strategy={strategy!r} a new key always has "
                "the highest score; use on_full='evict', or score_strategy='lfu'"
            )
        return self.on_full

    def _resolved_admission(self) -> Admission | None:
        rule = self.admission
        if rule is None:
            return None
        if not isinstance(rule, Admission):
            self._fail(
                f"admission must be a rule of jde.admission, not {rule!r}: write "
                "jde.admission.Probability(0.1), or "
                "jde.admission.Frequency(5, jde.admission.Sketch(bytes=1 << 24))"
            )
        return rule.for_buckets(self.num_buckets)

    def _resolved_sharding(self) -> str:
        name = sharding_name(self.sharding)
        if name not in SHARDINGS:
            self._fail(f"sharding must be one of {SHARDINGS}, not {self.sharding!r}")
        return name

    def _resolved_factors(self) -> tuple[float, ...]:
        features = self.feature_names
        given = self.pooling_factors
        factors: tuple = tuple(given) if hasattr(given, "__len__") else (None,)
        numbers = [x for x in factors if isinstance(x, (int, float)) and x > 0]
        if len(factors) not in (0, len(features)) or len(numbers) != len(factors):
            self._fail(
                f"pooling_factors must have a number above 0 for each of the features "
                f"{features}, not {reprlib.repr(given)}"
            )
        return tuple(float(x) for x in factors)

    def _dtype_name(self, field: str, allowed: tuple[str, ...]) -> str:
        given = getattr(self, field)
        name = dtype_name(given)
        if name not in allowed:
            self._fail(f"{field} must be one of {allowed}, not {given!r}")
        return name
