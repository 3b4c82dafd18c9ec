# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Grows tables between two steps, with the next step compiled ahead."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax

from jax_dynemb._src.kind_of import kind_of
from jax_dynemb._src.lifecycle.memory import fits_in_memory
from jax_dynemb._src.lifecycle.watch import GrowthWatch
from jax_dynemb._src.table import Growth, Tables, abstract, abstract_after


@dataclasses.dataclass
class _Next:
    """The step of the next size, while it is compiled.

    Attributes:
      due: rows by table, as ``growth_due`` said.
      ready: what the growth and the step need; None until the arguments of a step are
        known.
    """

    due: dict[str, int]
    growth: Growth
    step: Any
    ready: Future[_Ready] | None = None


@dataclasses.dataclass(frozen=True)
class _Ready:
    """Holds what a swap needs, so that the swap takes no longer than its copies.

    ``needed`` are bytes of the new arrays on a device. ``programs`` are the compiled
    growth, and those of the step and a check if compiled ahead. ``jit`` finds them
    while they are kept.
    """

    needed: int
    programs: tuple[Any, ...]


class Grower:
    """Runs a training step, and gives it larger tables when they fill up.

    The step of the next size is compiled on a background thread while training goes
    on. Then the tables are copied into larger arrays between two steps. The step is
    ``jit``-ted as usual: batches of several shapes, donation and options work.

    Contexts of the calling thread, such as ``with jax.default_device(...)``, do not
    reach the background thread. A step that needs one is compiled when it is called;
    ``jax.config.update`` sets the same for all threads.

    Attributes:
      coll: the tables in their present size.

    Example:
      >>> def make_step(coll):  # doctest: +SKIP
      ...     @functools.partial(jax.jit, donate_argnums=0)
      ...     def step(state, ids): ...
      ...
      ...     return step
      >>> grower = jde.lifecycle.Grower(make_step, coll)  # doctest: +SKIP
      >>> for ids in batches:  # doctest: +SKIP
      ...     state = grower.step(state, ids)
      ...     state = grower.maybe_grow(state)
    """

    def __init__(
        self,
        make_step: Callable[[Tables], Callable[..., Any]],
        coll: Tables,
        *,
        every: int = 100,
        ahead: bool = True,
    ):
        """Makes the first step; compiles nothing yet.

        Args:
          make_step: returns the jitted step of some tables. Its first argument is
            their state.
          coll: the tables.
          every: training steps between two reads of the counters. A table grows
            two reads after it became due, plus the time to compile.
          ahead: False compiles the step of a new size where it is first called.

        Raises:
          TypeError: ``make_step`` is no function of ``Tables`` that returns a function.
          ValueError: ``every`` is less than 1.
        """
        if not isinstance(coll, Tables) or not callable(make_step):
            raise TypeError(
                "Grower takes a function that returns the step of some Tables, and "
                f"the Tables: Grower(make_step, coll), not {kind_of(make_step)} and "
                f"{kind_of(coll)}."
            )
        self.coll = coll
        self._make_step, self._ahead = make_step, ahead
        self._step = make_step(coll)
        self._watch = GrowthWatch(every)
        self._next: _Next | None = None
        # A GPU takes milliseconds to unload a program, so the next thread does it.
        self._past: list[Any] = []
        self._too_large: dict[str, int] | None = None

    def step(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the step of the present size.

        Args:
          state: of the tables.
          args: passed on to the step.
          kwargs: passed on to the step.

        Returns:
          What the step returns.
        """
        if self._ahead and self._next is not None and self._next.ready is None:
            types = abstract((state, args, kwargs))
            self._next.ready = _in_background(_compile, self._next, self._past, *types)
        return self._step(state, *args, **kwargs)

    def maybe_grow(self, state: Any) -> Any:
        """Grows the tables if it is time; call it after each step.

        It waits for no step. It warns where a device has too little memory, and
        training goes on with the present size.

        Args:
          state: what the last step returned. The old arrays are free once the caller
            drops it.

        Returns:
          The state for the next step: the same one, or that of larger tables.

        Raises:
          RuntimeError: a table with ``on_full="error"`` has refused ids.
        """
        self._watch.count()
        # A swap drops the numbers of a check, so it does without one.
        if self._next is None or not self._is_time(self._next):
            self._check(state)
        if self._next is not None and self._is_time(self._next):
            return self._swap(self._next, state)
        return state

    def _check(self, state: Any) -> None:
        """Plans the next size if it is time to check, and tables are due."""
        due = self._watch.due(self.coll, lambda: state)
        if self._next is None and due and due != self._too_large:
            growth = self.coll.plan_growth(due)
            self._next = _Next(due, growth, self._make_step(growth.coll))

    def _is_time(self, coming: _Next) -> bool:
        """Whether the next step is compiled, or shall be awaited now."""
        if coming.ready is None:
            return not self._ahead
        # Hosts must swap at the same step, however long each of them compiles.
        return coming.ready.done() if jax.process_count() == 1 else self._watch.is_check

    def _swap(self, coming: _Next, state: Any) -> Any:
        self._next, growth = None, coming.growth
        if coming.ready is None:
            ready = _compiled_growth(growth, abstract(state))
        else:
            ready = coming.ready.result()
        if not fits_in_memory(growth, state, ready.needed):
            self._too_large = coming.due
            return state
        self._past.append((self._step, coming))
        self.coll, self._step = growth.coll, coming.step
        self._watch.restart()
        return growth.apply(state)


def _in_background(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Runs a function on a thread of its own, which ends with it."""
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="jax_dynemb_grow")
    try:
        return executor.submit(function, *args)
    finally:
        executor.shutdown(wait=False)


def _compiled_growth(growth: Growth, state: Any) -> _Ready:
    programs = growth.compile(state)
    return _Ready(growth.needed_bytes(programs), (programs,))


def _compile(
    coming: _Next, past: list[Any], state: Any, args: Any, kwargs: Any
) -> _Ready:
    past.clear()
    if not hasattr(coming.step, "lower"):
        raise TypeError(
            "jde.lifecycle.Grower compiles steps ahead, so make_step must return a "
            "jitted function: return jax.jit(step, donate_argnums=0). With ahead=False "
            "any function will do."
        )
    ready = _compiled_growth(coming.growth, state)
    (programs,) = ready.programs
    larger = abstract_after(coming.growth, state, programs)
    # On several devices too: to compile needs no collective, only to run does.
    checks = coming.growth.coll.engine.compile_stats(larger)
    # jit finds what lower().compile() made, for arguments of these types.
    step = coming.step.lower(larger, *args, **kwargs).compile()
    return dataclasses.replace(ready, programs=(programs, step, checks))
