# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to damage a directory of files, each drawn from a seed. Plain Python and NumPy.

A mutation never makes other valid contents with checksums to match: what it changes is
what a disk, a copy or a hostile archive changes. Headers and JSON may get the checksum
of the changed text, so that the checks behind the checksum are reached.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Random = np.random.Generator
HOSTILE: tuple[Any, ...] = (
    2**62,
    2**64,
    10**400,
    -1,
    -(2**63),
    0,
    1,
    True,
    None,
    1.5,
    1e308,
    "",
    "x",
    "../../outside",
    "/etc/passwd",
    "float64",
    [],
    [2**40, 2**40],
    {},
)
OUTSIDE = Path("/dev/zero")


def mutate(rng: Random, folder: Path) -> str:
    """Damages one thing below a directory; says what."""
    for _ in range(100):
        kind = MUTATIONS[rng.integers(len(MUTATIONS))]
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        file = files[rng.integers(len(files))]
        before = None if kind in STRUCTURAL else file.read_bytes()
        done = kind(rng, folder, file)
        if done and (before is None or file.read_bytes() != before):
            return f"{kind.__name__} {file.relative_to(folder)} {done}"
    raise AssertionError("no mutation applies")


def flip(rng: Random, _: Path, file: Path) -> str:
    """Flips one to three bits."""
    data = bytearray(file.read_bytes())
    places = rng.integers(0, 8 * max(1, len(data)), rng.integers(1, 4))
    for place in places if data else ():
        data[place // 8] ^= 1 << (place % 8)
    file.write_bytes(data)
    return str(places.tolist())


def flip_early(rng: Random, _: Path, file: Path) -> str:
    """Flips a bit where formats have their lengths and marks."""
    data = bytearray(file.read_bytes())
    if not data:
        return ""
    place = int(rng.integers(0, 8 * min(16, len(data))))
    data[place // 8] ^= 1 << (place % 8)
    file.write_bytes(data)
    return str(place)


def truncate(rng: Random, _: Path, file: Path) -> str:
    """Leaves out the end."""
    size = file.stat().st_size
    if not size:
        return ""
    kept = int(rng.choice([0, size - 1, rng.integers(size), size // 8 * 4]))
    os.truncate(file, kept)
    return f"{size} to {kept}"


def extend(rng: Random, _: Path, file: Path) -> str:
    """Adds some bytes."""
    count = int(rng.choice([1, 8, 64, 4096]))
    more = bytes(count) if rng.integers(2) else rng.bytes(count)
    with file.open("ab") as output:
        output.write(more)
    return f"by {count}"


def zero(rng: Random, _: Path, file: Path) -> str:
    """A lost sector."""
    data = bytearray(file.read_bytes())
    if not data:
        return ""
    begin = int(rng.integers(len(data)))
    end = min(len(data), begin + int(rng.choice([1, 8, 512])))
    data[begin:end] = bytes(end - begin)
    file.write_bytes(data)
    return f"{begin} to {end}"


def exchange(rng: Random, _: Path, file: Path) -> str:
    """Exchanges two ranges of a file, as a wrong block list would."""
    data = bytearray(file.read_bytes())
    width = int(rng.choice([8, 16, 64]))
    if len(data) < 3 * width:
        return ""
    first, second = sorted(rng.integers(0, len(data) // width, 2).tolist())
    one, two = (slice(n * width, (n + 1) * width) for n in (first, second))
    data[one], data[two] = data[two], data[one]
    file.write_bytes(data)
    return f"{one} {two}"


def header_length(rng: Random, _: Path, file: Path) -> str:
    """Another length of a safetensors header."""
    if file.suffix != ".safetensors":
        return ""
    data = bytearray(file.read_bytes())
    length = int(rng.choice([0, 1, 2**24, 2**31, 2**40, 2**62, len(data)]))
    data[:8] = length.to_bytes(8, "little")
    file.write_bytes(data)
    return str(length)


def header(rng: Random, _: Path, file: Path) -> str:
    """Edits the JSON of a safetensors header; its checksum may match the edit."""
    if file.suffix != ".safetensors":
        return ""
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    fields = json.loads(data[8 : 8 + length])
    if rng.integers(3) == 0:
        inner = json.loads(fields["__metadata__"]["jax_dynemb"])
        done = _edit(rng, inner)
        fields["__metadata__"]["jax_dynemb"] = json.dumps(inner)
    else:
        done = _edit(rng, fields)
    text = json.dumps(fields, separators=(",", ":")).encode()
    if rng.integers(4) == 0:  # a name twice
        text, done = b'{"keys":{},' + text[1:], "a name twice"
    if rng.integers(2):
        text, done = _with_its_checksum(text), f"{done}, with its checksum"
    text += b" " * (-(len(text) + 8) % 64)
    file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return done


def _with_its_checksum(text: bytes) -> bytes:
    mark = b'"jax_dynemb_crc32":"'
    if mark not in text:
        return text
    at = text.index(mark) + len(mark)
    padding = b" " * (-(len(text) + 8) % 64)
    zeroed = text[:at] + b"0" * 8 + text[at + 8 :] + padding
    return text[:at] + f"{zlib.crc32(zeroed):08x}".encode() + text[at + 8 :]


def json_entry(rng: Random, _: Path, file: Path) -> str:
    """Edits a JSON file; a checksum that it has of itself may match the edit."""
    try:
        fields = json.loads(file.read_bytes())
    except ValueError:
        return ""
    if not isinstance(fields, dict) or not fields:
        return ""
    done = _edit(rng, fields)
    if "crc32" in fields and rng.integers(2):
        body = {name: each for name, each in fields.items() if name != "crc32"}
        text = json.dumps(body, sort_keys=True).encode()
        fields["crc32"], done = zlib.crc32(text), f"{done}, with its checksum"
    file.write_text(json.dumps(fields))
    return done


def json_text(rng: Random, _: Path, file: Path) -> str:
    """JSON that parsers stumble over."""
    if file.suffix != ".json" and file.name != ".zarray":
        return ""
    text = file.read_bytes()
    texts = {
        "deep": b"[" * 200_000,
        "nothing": b"",
        "null": b"null",
        "list": b"[1, 2]",
        "nan": text.replace(b": 1", b": NaN", 1),
        "not utf-8": text[:-1] + b"\xff\xfe" + text[-1:],
        "digits": b'{"format_version": ' + b"1" * 10_000 + b"}",
        "twice": b'{"format_version": 1, "format_version": 1,' + text[1:],
    }
    done = list(texts)[rng.integers(len(texts))]
    file.write_bytes(texts[done])
    return done


def _edit(rng: Random, fields: Any) -> str:
    """Changes, removes or exchanges an entry somewhere in some JSON."""
    at = "it"
    while True:
        names = list(fields) if isinstance(fields, dict) else range(len(fields))
        if not len(names):
            return at
        name = names[rng.integers(len(names))]
        inner = fields[name]
        at = f"{at}[{name!r}]"
        if isinstance(inner, dict | list) and inner and rng.integers(5):
            fields = inner
            continue
        action = rng.integers(4)
        if action == 0 and isinstance(fields, dict):
            del fields[name]
            return f"{at} removed"
        if action == 1:
            other = names[rng.integers(len(names))]
            fields[name], fields[other] = fields[other], fields[name]
            return f"{at} exchanged with {other!r}"
        if action == 2 and type(inner) is int:
            fields[name] = inner + int(rng.choice([-1, 1, 8, 2**31, 2**63]))
            return f"{at} = {fields[name]}"
        fields[name] = HOSTILE[rng.integers(len(HOSTILE))]
        return f"{at} = {str(fields[name])[:30]}"


def remove(_: Random, __: Path, file: Path) -> str:
    """A file is missing."""
    file.unlink()
    return "removed"


def rename(rng: Random, _: Path, file: Path) -> str:
    """A file has another name; often one that looks right."""
    name = file.name
    digits = [i for i, letter in enumerate(name) if letter.isdigit()]
    if digits and rng.integers(4):
        place = digits[rng.integers(len(digits))]
        new = name[:place] + str(rng.integers(10)) + name[place + 1 :]
    else:
        new = f"x{name}"
    if (file.parent / new).exists():
        return ""
    file.rename(file.parent / new)
    return f"to {new}"


def swap(rng: Random, folder: Path, file: Path) -> str:
    """Two files have changed places."""
    alike = [f for f in folder.rglob("*") if f.is_file() and f.suffix == file.suffix]
    other = sorted(alike)[rng.integers(len(alike))]
    if other.read_bytes() == file.read_bytes():
        return ""
    spare = file.with_name("spare")
    file.rename(spare)
    other.rename(file)
    spare.rename(other)
    return f"with {other.relative_to(folder)}"


def replace(rng: Random, folder: Path, file: Path) -> str:
    """A file is a copy of another one."""
    alike = [f for f in folder.rglob("*") if f.is_file() and f.suffix == file.suffix]
    other = sorted(alike)[rng.integers(len(alike))]
    if other.read_bytes() == file.read_bytes():
        return ""
    shutil.copy(other, file)
    return f"by {other.relative_to(folder)}"


def add(rng: Random, _: Path, file: Path) -> str:
    """A file too many, named like the next delta, rank or chunk."""
    digits = [i for i, letter in enumerate(file.name) if letter.isdigit()]
    if not digits:
        return ""
    place = digits[rng.integers(len(digits))]
    number = (int(file.name[place]) + 1) % 10
    new = file.with_name(file.name[:place] + str(number) + file.name[place + 1 :])
    if new.exists():
        return ""
    shutil.copy(file, new)
    return f"copied to {new.name}"


def no_file(rng: Random, _: Path, file: Path) -> str:
    """Something else than a file: a directory, a device, a pipe, a dangling link."""
    kind = ["directory", "device", "pipe", "dangling"][rng.integers(4)]
    file.unlink()
    if kind == "directory":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(OUTSIDE if kind == "device" else "nowhere")
    return kind


MUTATIONS: tuple[Callable[[Random, Path, Path], str], ...] = (
    flip,
    flip,
    flip_early,
    truncate,
    truncate,
    extend,
    zero,
    exchange,
    header_length,
    header,
    header,
    header,
    json_entry,
    json_entry,
    json_text,
    remove,
    rename,
    swap,
    replace,
    add,
    no_file,
)
STRUCTURAL = (remove, rename, swap, replace, add, no_file)
