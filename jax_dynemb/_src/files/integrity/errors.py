# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Defines what a reader raises for a file that it cannot trust."""

from __future__ import annotations

import os

DEFAULT_FIX = "Write it anew, or copy it again from where it is whole."


class DamagedFileError(ValueError):
    """Says that a file is not what was written, or not of this library.

    Every reader raises only this for the content of a file, such as wrong checksums
    or sizes, a missing part, a later version. A file that does not
    exist raises ``FileNotFoundError``, a failing disk ``OSError``.

    Args:
      path: of the file.
      problem: what is wrong with it, as a clause.
      fix: what to do about it, as a sentence.

    Attributes:
      path: of the file.
      problem: what is wrong with it.
      fix: what to do about it.
    """

    def __init__(
        self, path: str | os.PathLike[str], problem: str, fix: str = DEFAULT_FIX
    ):
        super().__init__(os.fspath(path), problem, fix)  # so that it can be pickled
        self.path = os.fspath(path)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.path} is damaged: {self.problem}. {self.fix}"
