# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""nnx.jit that keeps tables in place."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from flax import nnx

from jax_dynemb._src.ids import now
from jax_dynemb._src.nnx.coming import taking_coming, with_coming
from jax_dynemb._src.nnx.fast_path import FastPath, Program, iter_variables, unwatched
from jax_dynemb._src.nnx.host_time import NAME, NeedsTime, taking_time
from jax_dynemb._src.nnx.variable import Table

_Donated = tuple[tuple[int, ...], tuple[str, ...]]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Jitted(Protocol[P, R_co]):
    """A function with the signature of the one that ``jit`` was given."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Calls the compiled function."""
        ...

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Lowers for these arguments, see ``jax.jit(...).lower``."""
        ...


@overload
def jit(fun: Callable[P, R_co], **options: Any) -> Jitted[P, R_co]: ...
@overload
def jit(
    fun: None = None, **options: Any
) -> Callable[[Callable[P, R_co]], Jitted[P, R_co]]: ...
def jit(fun: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compiles as ``nnx.jit``, and donates what holds tables or optimizer state.

    A table is updated in place only when its old value is donated. So every argument
    that holds a ``jde.nnx.Table`` or an ``nnx.OptState`` is donated: the model
    and the optimizer. Batches and models without tables are not. Arrays taken out of
    a donated argument before the call (``nnx.state(model)``) are gone after it. Tables
    that the function only reads are not donated: they stay where they are.

    Where tables note times (``score_strategy="timestamp"``), each call passes the
    host's time on to their lookups, one for all devices. With ``in_shardings``, which
    leave no room for one more argument, devices read their own clocks.

    Args:
      fun: the function, or None to use ``jit`` as a decorator with options.
      options: options of ``nnx.jit``; donations given here are added.

    Returns:
      A function like ``fun``, with ``lower`` as ``nnx.jit`` has it.

    Example:
      >>> @jde.nnx.jit
      ... def train_step(model, optimizer, batch):
      ...     loss, grads = jde.nnx.value_and_grad(loss_fn)(model, batch)
      ...     optimizer.update(model, grads)
      ...     return loss
    """
    if fun is None:
        return functools.partial(jit, **options)
    return _Jit(fun, options)


class _Jit:
    """Takes the fast path where it can, else an nnx.jit for each set of donations."""

    def __init__(self, fun: Callable[..., Any], options: dict[str, Any]):
        functools.update_wrapper(self, fun)
        self._takes_time = False  # until a trace has read it
        self._takes_more = "in_shardings" not in options
        if self._takes_more:
            fun = taking_coming(taking_time(fun))
        self._fun, self._options = fun, options
        self._argnums = _several(options.get("donate_argnums"))
        self._argnames = _several(options.get("donate_argnames"))
        self._jitted: dict[_Donated, Any] = {}
        self._fast_path = FastPath(fun, _to_donate, Table)
        self._fast_path.is_supported = not options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with unwatched:
            try:
                if self._takes_more:
                    kwargs = with_coming(args, kwargs)
                return self._with_time(self._call, args, kwargs)
            except (RuntimeError, ValueError) as error:
                if any(text in str(error) for text in _DELETED):
                    raise RuntimeError(_DONATED) from error
                raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        done, out = self._fast_path.run(Program.call, args, kwargs)
        return out if done else self._for(args, kwargs)(*args, **kwargs)

    def _with_time(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not self._takes_time:
            try:
                return call(args, kwargs)
            except NeedsTime:  # while tracing: nothing has run
                self._takes_time = True
        return call(args, {**kwargs, NAME: now()})

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Lowers for these arguments, see ``jax.jit(...).lower``."""
        if self._takes_more:
            kwargs = with_coming(args, kwargs)
        return self._with_time(self._lower, args, kwargs)

    def _lower(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        done, lowered = self._fast_path.run(Program.lower, args, kwargs)
        return lowered if done else self._for(args, kwargs).lower(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        argnums = {i for i, x in enumerate(args) if _to_donate(x)}
        argnames = {name for name, x in kwargs.items() if _to_donate(x)}
        donated = (
            tuple(sorted(argnums | {i for i in self._argnums if i < len(args)})),
            tuple(sorted(argnames | (set(self._argnames) & set(kwargs)))),
        )
        if donated not in self._jitted:
            names = {"donate_argnums": donated[0], "donate_argnames": donated[1]}
            self._jitted[donated] = nnx.jit(self._fun, **{**self._options, **names})
        return self._jitted[donated]


# Walking a large model costs more than calling its compiled step. Only modules with
# tables are remembered: others may get some later. The key is id(), since a dataclass
# has no hash.
_known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _to_donate(argument: Any) -> bool:
    if isinstance(argument, nnx.Pytree) and _known.get(id(argument)) is argument:
        return True
    held = any(isinstance(v, Table | nnx.OptState) for v in iter_variables(argument))
    if held and isinstance(argument, nnx.Pytree):
        _known[id(argument)] = argument
    return held


# What JAX says of deleted arrays: of a program in its cache, and of a new one.
_DELETED = ("deleted or donated", "has been deleted")
_DONATED = (
    "jde.nnx.jit: an argument has arrays that an earlier call was given and has "
    "deleted. nnx.clone and nnx.state share the arrays of a model: write "
    "copy.deepcopy(model) for a second model, and read nnx.state(model) again after "
    "each call."
)


def _several(option: Any) -> tuple[Any, ...]:
    if option is None:
        return ()
    return (option,) if isinstance(option, int | str) else tuple(option)
