# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Carries a publication through a bucket, or any file system that fsspec knows.

The files of a part lie in a directory of a name that no other writer chooses. The part
is there when one object, ``segment-<n>.json``, names that directory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .channel import (
    Heartbeat,
    HistoryLostError,
    RemoteChannel,
    files_of,
    new_file,
    owner_text,
    refused,
    taken,
)
from .json import Fields, parse_json
from .publication import PUBLICATION, Part, part_of, part_path

_PART = re.compile(r"(segment|snapshot)-(\d{12,})\.json")
_DATA = re.compile(r"(segment|snapshot)-(\d{12,})\.[0-9a-f]+")


class Bucket(RemoteChannel):
    """Carries a publication through a bucket, for publishers and subscribers.

    Needs the package fsspec and the one for the bucket, such as gcsfs or s3fs.

    Buckets have no locks. A publisher writes a count into its lease from time to time,
    and another one that sees it grow is refused. A publisher that lost the lease writes
    nothing more. If both write at the same moment, a segment does not continue what
    subscribers have, so they load the newest snapshot.

    Args:
      url: of a directory, such as "gs://bucket/published".
      lease: seconds for which another publisher watches the lease before it takes it.
      folder: where copies of parts lie on this machine; None: in a temporary one.
      options: of the file system, as ``fsspec.filesystem`` has them.

    Raises:
      ImportError: the package fsspec, or the one for the bucket, is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        lease: float = 10.0,
        folder: str | os.PathLike[str] | None = None,
        **options: Any,
    ):
        """Makes the object; nothing is sent before a publisher or subscriber has it."""
        super().__init__(folder)
        if lease <= 0:
            raise ValueError(f"Bucket: lease={lease!r} must be above 0 seconds.")
        try:
            core = importlib.import_module("fsspec.core")
        except ImportError as error:
            raise ImportError("Bucket needs fsspec: pip install fsspec") from error
        self._files, root = core.url_to_fs(url, **options)
        self._url, self._root, self._lease = url, root.rstrip("/"), lease
        self._token, self._count = secrets.token_hex(16), 0
        self._beat: Heartbeat | None = None

    def __str__(self) -> str:
        """Names it in messages."""
        return self._url

    def numbers(self, kind: str) -> list[int]:
        """Lists the numbers of the parts that are there, ascending."""
        found = (_PART.fullmatch(name) for name in self._names(self._root))
        return sorted(int(each[2]) for each in found if each and each[1] == kind)

    def look(self, kind: str, number: int) -> Part:
        """Returns what a part says of itself, without its files."""
        path = part_path(self.folder, kind, number)
        said = self._said(kind, number).text("said")
        return part_of(path, parse_json(path / PUBLICATION, said))

    def take(self) -> None:
        """Watches the lease, and takes it unless another publisher renews it."""
        with self._reached():
            self._files.makedirs(self._root, exist_ok=True)
        if (before := self._owner()) is not None:
            until = time.monotonic() + self._lease
            while time.monotonic() < until:
                time.sleep(self._lease / 10)
                owner = self._owner()
                if owner is None:
                    break
                if owner != before:
                    raise refused(self, owner)
        self._write_owner()
        self._owns = True
        self._beat = Heartbeat(self._lease / 4, self._renewed)

    def remove(self, kind: str, number: int) -> None:
        """Removes a part, and what a publisher that was killed left of it."""
        super().remove(kind, number)
        with self._reached():
            with contextlib.suppress(FileNotFoundError):
                self._files.rm_file(self._path(kind, number))
            for name in self._names(f"{self._root}/data"):
                found = _DATA.fullmatch(name)
                if found and found[1] == kind and int(found[2]) <= number:
                    with contextlib.suppress(FileNotFoundError):
                        self._files.rm(f"{self._root}/data/{name}", recursive=True)

    def close(self) -> None:
        """Lets go of the lease; may be called twice."""
        if self._beat is not None:
            self._beat.stop()
            self._beat, self._owns = None, False
            with contextlib.suppress(ConnectionError, RuntimeError):
                self._compare()
                with self._reached():
                    self._files.rm_file(self._lease_path)
        super().close()

    # ---- parts -------------------------------------------------------------------

    def _path(self, kind: str, number: int) -> str:
        return f"{self._root}/{part_path(Path(), kind, number).name}.json"

    def _names(self, directory: str) -> list[str]:
        with self._reached():
            self._files.invalidate_cache(directory)
            try:
                found = self._files.ls(directory, detail=False)
            except FileNotFoundError:
                return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def _said(self, kind: str, number: int) -> Fields:
        path = self._path(kind, number)
        with self._reached():
            return parse_json(Path(path), self._files.cat_file(path))

    def _download(self, kind: str, number: int, draft: Path) -> None:
        said = self._said(kind, number)
        for name in said.texts("files"):
            target = new_file(draft, name, self)
            with self._reached():
                source = f"{self._root}/data/{said.text('data')}/{name}"
                self._files.get_file(source, str(target))

    def _upload(self, part: Part, before: str | None) -> None:
        kind = "snapshot" if part.is_snapshot else "segment"
        self._compare()
        if self._is_there(kind, part):
            return
        self._check_order(part, before)
        data = f"{part.path.name}.{secrets.token_hex(8)}"
        files = files_of(part)
        with self._reached():
            self._files.makedirs(f"{self._root}/data/{data}", exist_ok=True)
            for name, path in files.items():
                target = f"{self._root}/data/{data}/{name}"
                self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
                self._files.put_file(str(path), target)
            said = (part.path / PUBLICATION).read_text()
            text = json.dumps({"said": said, "data": data, "files": list(files)})
        self._compare()
        try:
            with self._reached():
                path = self._path(kind, part.number)
                self._files.pipe_file(path, text.encode(), mode="create")
        except FileExistsError:
            if not self._is_there(kind, part):
                raise HistoryLostError(f"{self} has another {kind}.") from None

    def _is_there(self, kind: str, part: Part) -> bool:
        try:
            return self.look(kind, part.number).token == part.token
        except FileNotFoundError:
            return False

    def _check_order(self, part: Part, before: str | None) -> None:
        """Raises HistoryLostError unless a part follows what is there."""
        numbers = {kind: self.numbers(kind) for kind in ("snapshot", "segment")}
        last = max([0, *numbers["snapshot"], *numbers["segment"]])
        kind = "segment" if last in numbers["segment"] else "snapshot"
        if before is None:
            fits = last < part.number
        else:
            fits = last > 0 and self.look(kind, last).token == before
        if not fits:
            raise HistoryLostError(f"{self} does not end where it was left.")

    # ---- the lease ---------------------------------------------------------------

    @property
    def _lease_path(self) -> str:
        return f"{self._root}/publisher.json"

    def _owner(self) -> str | None:
        with self._reached():
            try:
                return self._files.cat_file(self._lease_path).decode()
            except FileNotFoundError:
                return None

    def _write_owner(self) -> None:
        self._count += 1
        text = json.dumps([self._count, owner_text(self._token)])
        with self._reached():
            self._files.pipe_file(self._lease_path, text.encode())

    def _compare(self) -> None:
        owner = self._owner()
        if owner is not None and self._token not in owner:
            raise taken(self)

    def _renewed(self) -> bool:
        try:
            self._compare()
        except RuntimeError:
            return False
        self._write_owner()
        return True

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Raises ConnectionError where the bucket is away."""
        try:
            yield
        except (FileNotFoundError, FileExistsError, ConnectionError):
            raise
        except OSError as error:
            raise ConnectionError(f"{self} is away: {error}") from error
