# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""The version of our formats, and the refusal of files that are newer."""

from __future__ import annotations

from .errors import DamagedFileError
from .json import Fields, is_whole

FORMAT_VERSION = 1
_PACKAGE = __name__.split(".")[0]


def check_version(fields: Fields, newest: int = FORMAT_VERSION) -> None:
    """Refuses a format without a version, or newer than this package."""
    version = fields.get("format_version")
    if not is_whole(version) or not 1 <= version <= newest:
        raise DamagedFileError(
            fields.path,
            f"its format_version is {version!r}, and this {_PACKAGE} reads versions up "
            f"to {newest}",
            f"Write it with jax_dynemb, or upgrade {_PACKAGE}.",
        )
