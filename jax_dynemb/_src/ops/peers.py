# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Prepares GPUs of one host to read each other's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax_dynemb._src import ffi as _ffi

_OTHER_VERSION = "the GPU kernels are of another version"


class Peer(NamedTuple):
    """Describes a GPU of a group, to the process that calls.

    Attributes:
      id: of the device; no other one of the job has it.
      ordinal: by which CUDA knows it; -1: another process has it.
      name: for messages.
      mailbox: address of its mailbox in this process, where other processes reach that;
        0: one is made.
      shift: from an address in its process to one in this process.
      begin: address of what other processes map of its memory.
      bytes: of that; 0: they map none.
    """

    id: int
    ordinal: int
    name: str
    mailbox: int = 0
    shift: int = 0
    begin: int = 0
    bytes: int = 0


class SharedMemory(NamedTuple):
    """Describes memory of a GPU that other processes can map.

    Attributes:
      fd: a file descriptor that stands for it, which the caller closes.
      begin: its address here.
      bytes: of it.
    """

    fd: int
    begin: int
    bytes: int


def prepare_peers(members: Sequence[Peer]) -> str:
    """Prepares a group in order of rank; returns why it cannot be one."""
    most = _ffi.constants()["most_peers"]
    if len(members) > most:
        return f"{len(members)} devices; up to {most} read each other's memory"
    module = _ffi.cuda_with_peers()
    if module is None:
        return _ffi.cuda_problem() or _OTHER_VERSION
    return module.prepare_peers([tuple(member) for member in members])


def share_memory(ordinal: int, address: int) -> SharedMemory:
    """Shares the allocation of a GPU that an address lies in.

    Raises:
      ValueError: it is of a kind that processes cannot share.
    """
    return SharedMemory(*_checked(_module().share_memory(ordinal, address)))


def make_mailbox(ordinals: Sequence[int]) -> SharedMemory:
    """Makes a mailbox on the first of some GPUs that the others reach.

    Raises:
      ValueError: they cannot.
    """
    return SharedMemory(*_checked(_module().make_mailbox(list(ordinals))))


def map_memory(
    ordinals: Sequence[int], fd: int, size: int, offset: int = 0
) -> tuple[int, int]:
    """Maps another process's memory for good, where some GPUs reach it.

    Args:
      ordinals: of these GPUs.
      fd: what stands for the memory.
      size: its bytes.
      offset: of eight bytes in it.

    Returns:
      Its address, and the number at the offset.

    Raises:
      ValueError: the GPUs do not reach it.
    """
    return _checked(_module().map_memory(list(ordinals), fd, size, offset))


def _module() -> Any:
    module = _ffi.cuda_with_peers()
    if module is None:
        raise ValueError(_ffi.cuda_problem() or _OTHER_VERSION)
    return module


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    problem, *rest = result
    if problem:
        raise ValueError(problem)
    return tuple(rest)
