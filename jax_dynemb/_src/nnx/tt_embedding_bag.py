# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""One tensor-train table as an nnx module with the arguments of FBTT-Embedding."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.core import Tracer
from jaxtyping import Array, Float

from jax_dynemb._src import tt
from jax_dynemb._src.jagged import Jagged
from jax_dynemb._src.nnx.fast_path import writable
from jax_dynemb._src.nnx.table_module import drawn_seed

# FBTT's names of initialisers. Each has the law that its name says, at the right scale.
_WEIGHT_DISTS = {
    "approx-normal": tt.tail_normal,
    "approx-uniform": tt.approx_uniform,
    "naive-uniform": tt.uniform,  # FBTT's table of this law is zeros but for rounding
    "normal": tt.normal,
    "uniform": tt.uniform,
}
_OPTIMIZER = (
    "the cores are nnx.Param: write nnx.Optimizer(model, tx, wrt=nnx.Param). FBTT's "
    "Adagrad is tx = jde.tt.core_optimizer(jde.optim.adagrad(0.1, eps=1e-10)), its SGD "
    "optax.sgd(0.1)"
)
_CACHE = "every row trains through its cores, so no cache can lose updates: drop it"
# FBTT's arguments with values that say what holds here anyway; None: any value.
_HOLDS: dict[str, Any] = {
    "sparse": False,
    "use_cache": False,
    "cache_size": 0,
    "hashtbl_size": 0,
    "enforce_embedding_dim": None,
}
_NOT_HERE = {
    "optimizer": _OPTIMIZER,
    "learning_rate": _OPTIMIZER,
    "eps": _OPTIMIZER,
    "sparse": _OPTIMIZER,
    "use_cache": _CACHE,
    "cache_size": _CACHE,
    "hashtbl_size": _CACHE,
    "num_tables": "write TableBatchedTTEmbeddingBag",
    "ranks": "write tt_ranks=",
    "rows_shape": "write tt_p_shapes=",
    "dim_shape": "write tt_q_shapes=",
    "dim": "write embedding_dim=",
    "pooling": "write mode=",
    "residual": "write jde.nnx.EmbeddingBagCollection([jde.TTConfig(...)]), whose "
    "tables train through jde.nnx.Optimizer",
}
_OPTIONS = ("ids", "compute_dtype", "hash_seed", "key_dtype")
_UNKNOWN = f"the options are {', '.join(_OPTIONS)}"
_ARGUMENTS = {
    "rows_shape": "tt_p_shapes",
    "dim_shape": "tt_q_shapes",
    "pooling": "mode",
}


class Counter(nnx.Variable[jax.Array]):
    """Holds a number that lookups count; optimizers skip it, as no parameter."""


class TTEmbeddingBag(nnx.Module):
    """Stores only small cores of a table; takes FBTT-Embedding's arguments.

    The cores are ``nnx.Param``: ``nnx.grad`` and optax train them like any dense
    parameter. See ``jde.TTConfig`` for what the arguments mean.

    Args:
      num_embeddings: rows of the table.
      embedding_dim: columns of a row.
      positional: ``tt_ranks, tt_p_shapes, tt_q_shapes`` in FBTT's order, or as its
        README has them, the two shapes with ``tt_ranks=``.
      tt_ranks: ranks between the cores, one fewer than there are cores; 2 to 5 cores.
      tt_p_shapes: factors of the rows; None: ``jde.tt.suggested_shapes``.
      tt_q_shapes: factors of the columns; None: likewise.
      weight_dist: the law of the table's entries: an initializer of ``jde.tt``, or
        FBTT's name of one: "approx-normal" (``tail_normal``), "approx-uniform",
        "naive-uniform", "normal" or "uniform". Each has the scale of
        ``1 / sqrt(3 * num_embeddings)``, which some of FBTT's miss.
      mode: "sum" or "mean" of the rows of a bag, or None for a row an id.
      name: of the table; also seeds its cores.
      rngs: the seed of the cores is drawn from ``rngs.params()``.
      options: ``ids``, ``compute_dtype``, ``hash_seed`` and ``key_dtype`` of
        ``jde.TTConfig``. Of FBTT's arguments ``sparse=False``, ``use_cache=False`` and
        ``enforce_embedding_dim`` say what holds anyway.

    Attributes:
      config: ``jde.TTConfig``, static.
      cores: float32[p_t, R_t, q_t, R_{t+1}] each.
      out_of_range: uint32[], ids of training lookups that had no row.
      deterministic: True after ``model.eval()``: lookups do not count.

    Raises:
      TypeError: an argument of FBTT that has another form here.
      ValueError: sizes do not fit together.

    Example:
      >>> bag = jde.TTEmbeddingBag(10_000_000, 64, [32, 32], rngs=nnx.Rngs(0))
      >>> bag(jde.ids([[7, 9_999_999], [9, -1]])).shape
      (2, 64)
      >>> bag.config.num_parameters
      939904
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *positional: Any,
        tt_ranks: Sequence[int] | int | None = None,
        tt_p_shapes: Sequence[int] | None = None,
        tt_q_shapes: Sequence[int] | None = None,
        weight_dist: Any = "approx-normal",
        mode: Any = "sum",
        name: str = "tt",
        rngs: nnx.Rngs,
        **options: Any,
    ):
        options = _options(options)
        ranks, rows_shape, dim_shape = _shapes(
            positional, [tt_ranks, tt_p_shapes, tt_q_shapes]
        )
        try:
            self.config = tt.TTConfig(
                name,
                embedding_dim,
                num_embeddings,
                ranks,
                rows_shape=rows_shape,
                dim_shape=dim_shape,
                pooling=mode,
                initializer=_initializer(weight_dist),
                **options,
            )
        except ValueError as error:
            raise ValueError(_in_names_of_fbtt(str(error))) from None
        self.cores = nnx.List([nnx.Param(core) for core in _cores(self.config, rngs)])
        self.out_of_range = Counter(jnp.zeros((), jnp.uint32))
        self.deterministic = False

    def __call__(
        self,
        indices: jax.Array | Jagged,
        offsets: Any = None,
        per_sample_weights: jax.Array | None = None,
    ) -> Float[Array, "*bags dim"]:
        """Looks up and pools rows.

        Args:
          indices: ``jde.ids`` of shape [..., length], padded with -1, or
            ``jde.Jagged``; with ``offsets`` all ids one after the other.
          offsets: integers [bags + 1]: where each bag begins, and where the last one
            ends, as FBTT takes them.
          per_sample_weights: one number an id; differentiable. A ``jde.Jagged`` may
            have them instead.

        Returns:
          float32[bags, dim], or [..., dim].

        Raises:
          ValueError: offsets beside ids that are bags already, or that leave ids out;
            or weights come twice.
        """
        if offsets is not None:
            indices = _bags(indices, offsets)
        state = tt.TTState.of(self._arrays())
        rows, _, state = tt.lookup(self.config, state, indices, per_sample_weights)
        if not self.deterministic and writable(self.out_of_range):
            count = self.out_of_range[...] + state.out_of_range
            self.out_of_range.set_value(count)
        return rows

    def full_weight(self, chunk_rows: int = 1 << 20) -> Iterator[np.ndarray]:
        """Streams the rows 0 to num_embeddings - 1 to the host, in chunks.

        Args:
          chunk_rows: the most rows of a chunk.

        Returns:
          An iterator over float32[rows, dim].
        """
        return tt.full_weight(self.config, self._arrays(), chunk_rows)

    def reset_parameters(self, weight_dist: Any = None, *, rngs: nnx.Rngs) -> None:
        """Draws new cores.

        Args:
          weight_dist: as in the constructor; None: the law that the module has.
          rngs: the seed is drawn from ``rngs.params()``.
        """
        if weight_dist is not None:
            law = _initializer(weight_dist)
            self.config = dataclasses.replace(self.config, initializer=law)
        self._assign(_cores(self.config, rngs))

    def load_fbtt(self, state_dict: Mapping[str, Any], table: int = 0) -> None:
        """Takes over the cores of an FBTT-Embedding module.

        Sums of its Adagrad stay behind, with a warning: they belong to an optimizer.

        Args:
          state_dict: of the PyTorch module.
          table: which table of a ``TableBatchedTTEmbeddingBag``.

        Raises:
          ValueError: the cores have other shapes, or are missing.
        """
        self._assign(tt.from_fbtt(self.config, state_dict, table).cores)
        if tt.holds_sums(state_dict):
            warnings.warn(
                "load_fbtt takes the cores. The state dict has sums of Adagrad too, "
                "which belong to an optimizer and stay behind: jde.tt.from_fbtt takes "
                "both, with TTConfig(optimizer=jde.optim.adagrad(...)).",
                RuntimeWarning,
                stacklevel=2,
            )

    def to_fbtt(self) -> dict[str, np.ndarray]:
        """Makes the state dict of an FBTT-Embedding module without a cache.

        See ``jde.tt.to_fbtt``.
        """
        return tt.to_fbtt(self.config, self._arrays())

    def to_torch(self) -> dict[str, np.ndarray]:
        """Makes what ``jax_dynemb_torch.TTEmbeddingBag`` is built from.

        See ``jde.tt.to_torch``.
        """
        return tt.to_torch(self.config, self._arrays())

    def set_view(self, deterministic: bool | None = None) -> None:
        """Class method used by ``nnx.view``.

        Args:
          deterministic: if True, lookups do not count.
        """
        if deterministic is not None:
            self.deterministic = deterministic

    def _arrays(self) -> tuple[jax.Array, ...]:
        return tuple(core[...] for core in self.cores)

    def _assign(self, cores: Sequence[jax.Array]) -> None:
        for variable, core in zip(self.cores, cores, strict=True):
            variable.set_value(core)


def _cores(config: tt.TTConfig, rngs: nnx.Rngs) -> tuple[jax.Array, ...]:
    seed = drawn_seed("TTEmbeddingBag", rngs)
    if getattr(config.initializer, "table", None) is not None:
        return tt.init(config, seed).cores  # else jit's cache would keep the table
    return _drawn(config, seed)


@functools.partial(jax.jit, static_argnums=0)
def _drawn(config: tt.TTConfig, seed: jax.Array) -> tuple[jax.Array, ...]:
    """Compiles once what would compile one by one, operation for operation."""
    return tt.init(config, seed).cores


def _initializer(weight_dist: Any) -> Any:
    if not isinstance(weight_dist, str):
        return weight_dist
    if weight_dist not in _WEIGHT_DISTS:
        raise ValueError(
            f"weight_dist must be one of {list(_WEIGHT_DISTS)} or an initializer of "
            f"jde.tt, not {weight_dist!r}"
        )
    return _WEIGHT_DISTS[weight_dist]()


def _check_end(ids: np.ndarray, end: int) -> None:
    """Refuses offsets that leave ids out: PyTorch's, which do not say where ids end."""
    behind = ids[max(end, 0) :]
    if behind.dtype == np.uint32 and behind.ndim == 2:  # pairs of words
        left = int((behind != 0xFFFF_FFFF).any(axis=-1).sum())
    else:
        left = int((behind != ~behind.dtype.type(0)).sum())
    if left:
        raise ValueError(
            f"offsets end with {end}, but {left} ids come after it. The last offset is "
            "where the last bag ends, as FBTT takes them: append the number of ids."
        )


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of ``TTConfig``; refuses others, and says what to write instead."""
    kept = {
        name: value
        for name, value in options.items()
        if name not in _HOLDS or _HOLDS[name] not in (None, value)
    }
    reasons: dict[str, list[str]] = {}
    for option in [each for each in kept if each not in _OPTIONS]:
        reasons.setdefault(_NOT_HERE.get(option, _UNKNOWN), []).append(option)
    if reasons:
        wrong = [option for names in reasons.values() for option in names]
        why = "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())
        raise TypeError(f"TTEmbeddingBag has no argument {wrong}: {why}.")
    return kept


def _shapes(positional: Sequence[Any], named: list[Any]) -> list[Any]:
    """Returns ranks, row and column factors, given by position or by name."""
    places = [k for k in range(3) if named[0] is None or k]
    if len(positional) > len(places) or any(
        named[k] is not None for k, _ in zip(places, positional, strict=False)
    ):
        raise TypeError(
            "TTEmbeddingBag takes num_embeddings, embedding_dim, tt_ranks, tt_p_shapes "
            "and tt_q_shapes by position, each once; all others are keywords. "
            f"{_OPTIMIZER}."
        )
    for place, value in zip(places, positional, strict=False):
        named[place] = value
    if named[0] is None:
        raise TypeError("TTEmbeddingBag needs tt_ranks: write tt_ranks=[32, 32].")
    return named


def _in_names_of_fbtt(message: str) -> str:
    """Says what the user wrote where a config says its own fields."""
    for field, argument in _ARGUMENTS.items():
        message = message.replace(field, argument)
    return message


def _bags(indices: Any, offsets: Any) -> Jagged:
    if isinstance(indices, Jagged):
        raise ValueError("a Jagged has its own lengths; leave out offsets")
    if not hasattr(offsets, "dtype"):
        offsets = np.asarray(offsets, np.int64)
    if offsets.ndim != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"offsets must be integers [bags + 1], not of shape {offsets.shape}; the "
            "last one is the number of ids"
        )
    known = offsets.shape[0] and not isinstance(offsets, Tracer)
    if known and int(offsets[0]) != 0:
        raise ValueError(
            f"offsets begin with {int(offsets[0])}, but the first bag begins at id 0: "
            "write offsets - offsets[0], and cut the ids to these bags."
        )
    if known and not isinstance(indices, Tracer):
        _check_end(np.asarray(indices), int(offsets[-1]))
    return Jagged(indices, offsets[1:] - offsets[:-1])
