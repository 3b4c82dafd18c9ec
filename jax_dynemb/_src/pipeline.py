# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Builds batches and copies them to devices while the step before runs."""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Self, TypeVar

import jax
import numpy as np

from jax_dynemb._src.kind_of import kind_of

T = TypeVar("T")
_END = object()
_WAIT_S = 5.0  # for an iterator that is in the middle of a batch when it is closed


def prefetch(
    iterator: Iterable[T], size: int = 2, sharding: Any = None
) -> Prefetched[T]:
    """Iterates with a thread that has the next batches ready on the devices.

    The thread runs the iterator and ``jax.device_put``, so both overlap with the step
    that the caller runs. Order is kept. An error of the iterator is raised where its
    batch would have come. Leaving the loop early is safe: the thread ends when the
    result is closed or collected, or at exit. Contexts of the calling thread, such as
    ``jax.default_device``, do not reach it.

    Args:
      iterator: of batches, any pytrees: arrays, dicts, ``Jagged``. It must not write
        into arrays that it has handed out.
      size: batches that are ready or in the making; they are in device memory.
      sharding: a ``Sharding``, a device, or a pytree of them that is a prefix of a
        batch; None for the default device.

    Returns:
      An iterator; ``close()``, or ``with``, ends its thread at once.

    Raises:
      TypeError: it is no iterator, or (when its turn comes) a batch has 64-bit
        integers of NumPy, which ``device_put`` would cut to 32 bits.
      ValueError: there is no room for a batch.

    Example:
      >>> for batch in jde.pipeline.prefetch(batches, sharding=split):  # doctest: +SKIP
      ...     state = step(state, batch)
    """
    if not isinstance(iterator, Iterable):
        raise TypeError(
            f"prefetch takes an iterator of batches, not {kind_of(iterator)}: call "
            "the generator function, or write iter(...)."
        )
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"prefetch needs a size of 1 batch or more, not {size!r}.")
    return Prefetched(iterator, size, functools.partial(_to_device, sharding))


class Prefetched(Generic[T]):
    """Yields the batches of an iterator that runs in a thread; see ``prefetch``."""

    def __init__(self, iterator: Iterable[Any], size: int, make: Callable[[Any], T]):
        """Starts the thread, in which both ``iterator`` and ``make`` run."""
        self._shared = _Shared(size)
        # The thread must not hold this object: its collection ends the thread.
        thread = threading.Thread(
            target=_produce,
            args=(iterator, make, self._shared),
            name="jax_dynemb.prefetch",
            daemon=True,
        )
        self._finalize = weakref.finalize(self, _close, self._shared, thread)
        thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if not self._finalize.alive:
            raise StopIteration
        batch, error = self._shared.ready.get()
        self._shared.room.release()
        if batch is not _END:
            return batch
        self.close()
        if error is None:
            raise StopIteration
        raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the thread and drops the batches that are ready."""
        self._finalize()


class _Shared:
    """Connects the thread and the caller.

    Attributes:
      ready: pairs (batch, None), and at the end (_END, error or None).
      room: counts the batches that the thread may still begin.
      stop: set when no more batches are wanted.
    """

    def __init__(self, size: int):
        self.ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.room = threading.Semaphore(size)
        self.stop = threading.Event()


def _produce(
    iterator: Iterable[Any], make: Callable[[Any], Any], shared: _Shared
) -> None:
    try:
        batches = iter(iterator)
        while True:
            shared.room.acquire()
            if shared.stop.is_set():
                return
            batch = next(batches, _END)
            if batch is _END:
                break
            shared.ready.put((make(batch), None))
            del batch  # no second reference to what the caller may donate
        shared.ready.put((_END, None))
    except BaseException as error:  # the caller raises it
        shared.ready.put((_END, error))


def _close(shared: _Shared, thread: threading.Thread) -> None:
    shared.stop.set()
    shared.room.release()
    with contextlib.suppress(queue.Empty):
        while True:
            shared.ready.get_nowait()
    shared.ready.put((_END, None))  # for a caller that waits in another thread
    if thread is not threading.current_thread():
        thread.join(_WAIT_S)


def _to_device(sharding: Any, batch: Any) -> Any:
    _check_integers(batch)
    return jax.device_put(batch, sharding)


def _check_integers(batch: Any) -> None:
    """Refuses what ``device_put`` would cut without a word."""
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        return
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        in_numpy = isinstance(leaf, (np.ndarray, np.generic))
        if in_numpy and leaf.dtype in (np.int64, np.uint64):
            name = jax.tree_util.keystr(path)
            raise TypeError(
                f"prefetch: batch{name} is {leaf.dtype}, which JAX would cut to 32 "
                f"bits. Write jde.ids(...) around ids, and .astype(np.int32) behind "
                "what is no id."
            )
