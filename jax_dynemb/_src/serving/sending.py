# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""Shows parts in a channel that may be away for a while."""

from __future__ import annotations

import shutil
import threading
import time

from jax_dynemb._src.files.integrity import Channel, Part
from jax_dynemb._src.serving.parts import remove_old


class Sender:
    """Puts parts into a channel, and counts how often it was found away."""

    def __init__(self, channel: Channel, patience: float):
        """Will try for ``patience`` seconds, unless ``stop_waiting`` is called."""
        self._channel, self._patience = channel, patience
        self._stops = threading.Event()
        self.outages = 0

    def stop_waiting(self) -> None:
        """Lets a call of ``put`` that waits for the channel raise, and later ones."""
        self._stops.set()

    def put(self, part: Part, before: str | None) -> None:
        """Shows a part behind the one of the token ``before``, or removes its files."""
        until, pause = time.monotonic() + self._patience, 0.01
        while True:
            try:
                self._channel.put(part, before)
                return
            except ConnectionError:
                self.outages += 1
                if self._stops.wait(pause) or time.monotonic() > until:
                    shutil.rmtree(part.path, ignore_errors=True)
                    raise
                pause = min(1.0, 2 * pause)
            except BaseException:
                shutil.rmtree(part.path, ignore_errors=True)
                raise

    def remove_old(self, keep: int) -> None:
        """Removes what no reader needs; if the channel is away, a later call will."""
        try:
            remove_old(self._channel, keep)
        except ConnectionError:
            self.outages += 1
