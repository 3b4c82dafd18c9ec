# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""GPUs of several processes of one host map each other's memory.

XLA makes all memory of a GPU in one piece, of which a process can have a file
descriptor. Each process offers its descriptors through a socket, and all processes
agree on whether every one of them could map what it needs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict

import jax
import numpy as np

from jax_dynemb._src.ops import (
    Peer,
    SharedMemory,
    make_mailbox,
    map_memory,
    prepare_peers,
    share_memory,
    texts_of_processes,
)

Device = Any  # a jax.Device; type checkers can not see that class
_SECONDS = 60  # that a process waits for another one's descriptors
_TURN = 0.1  # seconds, after which an offer looks whether it has ended
_WORD = 8  # random bytes that identify the memory of a GPU
_MOST_DESCRIPTORS = 64  # of a message; the kernel sends up to 253
_PIECEMEAL = (
    "XLA allocates memory of a GPU piece by piece; leave XLA_PYTHON_CLIENT_PREALLOCATE "
    "and XLA_PYTHON_CLIENT_ALLOCATOR unset"
)
_HOSTS = (
    "the devices belong to several hosts, or to containers without a network in common"
)


class _Offered(TypedDict):
    """Describes a GPU to other processes, beside its two descriptors."""

    id: int
    ordinal: int
    begin: int
    bytes: int
    offset: int  # of a word that tells whether it is this memory
    word: int
    mailbox: int
    mailbox_bytes: int


class _Offer(TypedDict):
    """Describes a process to all others."""

    problem: str
    host: str
    socket: str
    devices: list[_Offered]


def prepare(groups: np.ndarray) -> str:
    """Prepares groups of GPUs that belong to several processes.

    All processes of the job call it, and all get the same answer.

    Args:
      groups: devices [groups, shards].

    Returns:
      Why some cannot read each other's memory; empty: all can.
    """
    if not can_agree(groups):
        return "a process of the job has no device of the mesh"
    with contextlib.ExitStack() as stack:  # descriptors, until all have answered
        try:
            offer = _make_offer(groups, stack)
        except (ValueError, OSError) as error:
            offer = _Offer(problem=str(error), host="", socket="", devices=[])
        offers = [json.loads(text) for text in texts_of_processes(json.dumps(offer))]
        if reason := _refusal(offers, groups):
            return reason
        return _first_problem(texts_of_processes(_join(groups, offers, stack)))


def can_agree(groups: np.ndarray) -> bool:
    """Whether every process of the job has a GPU there: others would not answer."""
    processes = {device.process_index for device in groups.flat}
    return processes == set(range(jax.process_count()))


@functools.cache
def hosts() -> list[str]:
    """Names the host of each process; all processes of the job call it."""
    try:
        mine = _host()
    except OSError:  # the others wait for an answer
        mine = f"that of process {jax.process_index()}"
    return texts_of_processes(mine)


def _make_offer(groups: np.ndarray, stack: contextlib.ExitStack) -> _Offer:
    """Shares memory of this process's GPUs."""
    devices: list[_Offered] = []
    descriptors: list[int] = []
    for group in groups:
        mine = [each for each in group if each.process_index == jax.process_index()]
        for device in mine:
            offered, memory, mailbox = _share(device, mine, stack)
            devices.append(offered)
            descriptors += [memory.fd, mailbox.fd]
    if len(descriptors) > _MOST_DESCRIPTORS:
        most = _MOST_DESCRIPTORS // 2
        raise ValueError(f"{len(devices)} GPUs; a process shares up to {most}")
    name = stack.enter_context(_served(descriptors))
    return _Offer(problem="", host=_host(), socket=name, devices=devices)


def _share(
    device: Device, group: Sequence[Device], stack: contextlib.ExitStack
) -> tuple[_Offered, SharedMemory, SharedMemory]:
    """Shares memory of one of this process's GPUs of a group."""
    word = secrets.token_bytes(_WORD)
    marked, address = _mark(device, word)
    stack.callback(lambda kept: None, marked)  # until all have read it
    ordinal = _ordinal_of(device)
    memory = share_memory(ordinal, address)
    stack.callback(os.close, memory.fd)
    stats = device.memory_stats()
    if not stats or memory.bytes < stats["bytes_limit"]:
        raise ValueError(_PIECEMEAL)
    others = [_ordinal_of(each) for each in group if each is not device]
    mailbox = make_mailbox([ordinal, *others])
    stack.callback(os.close, mailbox.fd)
    offered = _Offered(
        id=device.id,
        ordinal=ordinal,
        begin=memory.begin,
        bytes=memory.bytes,
        offset=address - memory.begin,
        word=int.from_bytes(word, "little"),
        mailbox=mailbox.begin,
        mailbox_bytes=mailbox.bytes,
    )
    return offered, memory, mailbox


def _mark(device: Device, word: bytes) -> tuple[jax.Array, int]:
    """Writes a word to memory of a device; returns its array and its address."""
    with jax.ensure_compile_time_eval():
        marked = jax.device_put(np.frombuffer(word, np.uint32), device)
        return marked, marked.block_until_ready().unsafe_buffer_pointer()


def _ordinal_of(device: Device) -> int:
    """Returns the number by which CUDA knows a device of this process."""
    ordinal = device.local_hardware_id
    assert ordinal is not None  # another process's has none
    return ordinal


def _refusal(offers: Sequence[_Offer], groups: np.ndarray) -> str:
    """Says what is wrong with the offers; the same in all processes."""
    if problem := _first_problem([offer["problem"] for offer in offers]):
        return problem
    hosts = [{offers[each.process_index]["host"] for each in group} for group in groups]
    return _HOSTS if any(len(each) > 1 for each in hosts) else ""


def _first_problem(problems: Sequence[str]) -> str:
    told = (f"in process {n}: {text}" for n, text in enumerate(problems) if text)
    return next(told, "")


def _join(
    groups: np.ndarray, offers: Sequence[_Offer], stack: contextlib.ExitStack
) -> str:
    """Maps what this process needs, and prepares its groups; returns why it cannot."""
    received: dict[int, list[int]] = {}
    try:
        for group in groups:
            members = _members(group, offers, received, stack)
            if members and (problem := prepare_peers(members)):
                return problem
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def _members(
    group: np.ndarray,
    offers: Sequence[_Offer],
    received: dict[int, list[int]],
    stack: contextlib.ExitStack,
) -> list[Peer]:
    """Describes a group to this process; empty if it has none of the GPUs.

    Args:
      group: its devices.
      offers: of all processes.
      received: descriptors by process, which this adds to.
      stack: what closes them.
    """
    me = jax.process_index()
    local = [_ordinal_of(each) for each in group if each.process_index == me]
    members = []
    for device in group if local else ():
        process = device.process_index
        known = [each["id"] for each in offers[process]["devices"]]
        place = known.index(device.id)
        offered = offers[process]["devices"][place]
        if process == me:
            members.append(_local_member(offered, process))
            continue
        if process not in received:
            received[process] = _fetch(offers[process]["socket"], 2 * len(known))
            for fd in received[process]:
                stack.callback(os.close, fd)
        pair = received[process][2 * place : 2 * place + 2]
        members.append(_mapped_member(offered, process, local, pair))
    return members


def _local_member(offered: _Offered, process: int) -> Peer:
    return Peer(
        offered["id"],
        offered["ordinal"],
        _name(offered, process),
        offered["mailbox"],
        begin=offered["begin"],
        bytes=offered["bytes"],
    )


def _mapped_member(
    offered: _Offered, process: int, local: Sequence[int], descriptors: Sequence[int]
) -> Peer:
    memory, mailbox = descriptors
    name = _name(offered, process)
    begin, word = map_memory(local, memory, offered["bytes"], offered["offset"])
    if word != offered["word"]:
        raise ValueError(f"the memory that was mapped is not that of {name}")
    box, _ = map_memory(local, mailbox, offered["mailbox_bytes"])
    return Peer(offered["id"], -1, name, box, shift=begin - offered["begin"])


def _name(offered: _Offered, process: int) -> str:
    return f"GPU {offered['ordinal']} of process {process}"


def _host() -> str:
    """Names this host and the network that its sockets are in."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/net')}"


@contextlib.contextmanager
def _served(descriptors: Sequence[int]) -> Iterator[str]:
    """Sends descriptors to processes of this user that know the name of a socket."""
    name = f"jax_dynemb-{secrets.token_hex(16)}"
    has_ended = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")  # it has no file, so nothing is left behind
        listener.listen()
        listener.settimeout(_TURN)

        def serve() -> None:
            while not has_ended.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        if _user_of(connection) == os.geteuid():
                            socket.send_fds(connection, [b"\0"], list(descriptors))

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        try:
            yield name
        finally:
            has_ended.set()
            server.join()


def _user_of(connection: socket.socket) -> int:
    credentials = struct.Struct("3i")  # process, user, group
    packed = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size
    )
    return credentials.unpack(packed)[1]


def _fetch(name: str, count: int) -> list[int]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(f"\0{name}")
        _, descriptors, _, _ = socket.recv_fds(connection, 1, count)
    if len(descriptors) != count:
        for fd in descriptors:
            os.close(fd)
        raise ValueError("another process did not send descriptors of its memory")
    return descriptors
