# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Where things lie in a directory of checkpoints.

<directory>/<step>/state/    arrays, as orbax writes them
                         jax_dynemb.json    tables and leaves, with a version
                         checksums.json     of all files here
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jax_dynemb._src.files.checkpoint import checksums as _checksums
from jax_dynemb._src.files.integrity import DamagedFileError

Directory = str | os.PathLike[str]

ITEM = "state"
DRAFT = ".orbax-checkpoint-tmp"  # in the names of checkpoints that are being written
SCHEMA_FILE = "jax_dynemb.json"
_STEP = re.compile("0|[1-9][0-9]{0,18}")


def resolved(directory: Directory) -> Path:
    """Returns the absolute path of a directory; ValueError if it is another address."""
    if "://" in os.fspath(directory):
        raise ValueError(
            f"{directory} is not a directory of this machine's file systems. Mount it, "
            "or save with orbax itself: tables are ordinary arrays to it."
        )
    return Path(directory).expanduser().absolute()


def steps(directory: Directory) -> list[int]:
    """Lists the steps of the complete checkpoints of a directory, in order."""
    return _steps(directory, lambda item: (item / _checksums.FILE).is_file())


def _steps(directory: Directory, is_one: Callable[[Path], bool]) -> list[int]:
    path = resolved(directory)
    found = path.iterdir() if path.is_dir() else ()
    numbered = (each for each in found if _STEP.fullmatch(each.name))
    return sorted(int(each.name) for each in numbered if is_one(each / ITEM))


def latest(directory: Directory) -> int | None:
    """Returns the step of the newest complete checkpoint, or None."""
    return max(steps(directory), default=None)


def robbed(directory: Directory) -> list[int]:
    """Lists the steps that lost the checksums they got together with their names."""
    return _steps(
        directory,
        lambda item: (
            (item / SCHEMA_FILE).is_file() and not (item / _checksums.FILE).is_file()
        ),
    )


def whole_step(step: Any) -> int:
    """Converts a step to an int that can name a directory; refuses all else."""
    try:
        if isinstance(step, bool | np.bool_):
            raise TypeError
        number = operator.index(step)
    except TypeError:
        raise TypeError(
            f"A step must be a whole number, not {step!r} ({type(step).__name__}). "
            "Give an int, such as int(step)."
        ) from None
    if not 0 <= number < 2**63:
        raise ValueError(
            f"A step must be 0 or more and less than 2**63, not {number}. Count the "
            "steps of a run from 0."
        )
    return number


def check_no_links(path: Path, step: int, keep: int | None) -> None:
    """Refuses links in the place of checkpoints that a save writes or deletes."""
    for each in path.iterdir() if path.is_dir() else ():
        is_step = _STEP.fullmatch(each.name) and (keep or each.name == str(step))
        if each.is_symlink() and (is_step or DRAFT in each.name):
            raise ValueError(
                f"{each} is a link, and a save neither writes through links nor "
                f"deletes what they lead to. Move it out of {path}, or copy the "
                "checkpoint there in its place."
            )


def chosen_step(path: Path, step: int | None) -> int:
    """Finds a complete checkpoint, the latest if None; checksums must be there."""
    step = None if step is None else whole_step(step)
    there, lost = steps(path), robbed(path)
    chosen = max([*there, *lost], default=None) if step is None else step
    if chosen in lost:
        item = path / str(chosen) / ITEM
        with _checksums.of_checkpoint():
            raise DamagedFileError(item / _checksums.FILE, "it is missing")
    if not there:
        raise FileNotFoundError(f"There is no complete checkpoint in {path}.")
    if step is None:
        return there[-1]
    if step not in there:
        raise FileNotFoundError(
            f"There is no complete checkpoint of step {step} in {path}; there are "
            f"{there}."
        )
    return step
