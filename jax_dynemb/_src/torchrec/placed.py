# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""TorchRec's calls about devices: what JAX places is placed, torch's names do nothing.

A mesh, or JAX's default device, decides where a program runs. So ``.to("cuda:0")`` of a
ported program is taken and ignored.
"""

from __future__ import annotations

from typing import Any, Self

import jax
from jax.core import Tracer
from jax.sharding import Sharding


class Placed:
    """Takes the calls that TorchRec's tensors have for devices; for pytrees."""

    def to(
        self, device: Any = None, non_blocking: bool = False, dtype: Any = None
    ) -> Self:
        """Returns the same on a device or sharding of JAX; itself for torch's names.

        Args:
          device: a ``jax.Device`` or a ``Sharding``; anything else is ignored.
          non_blocking: ignored: copies of JAX never block.
          dtype: refused unless None.

        Raises:
          TypeError: a dtype is given.
        """
        if dtype is not None:
            raise TypeError(
                f"to(dtype={dtype}) is refused: write with_weights(kjt.weights()"
                ".astype(...)); ids keep their 64 bits."
            )
        if isinstance(device, (jax.Device, Sharding)):
            return jax.device_put(self, device)
        return self

    def device(self) -> Any:
        """Returns the device or the sharding of the arrays.

        None stands for arrays on the host, and for those of a program that is traced;
        JAX's functions take it as ``device=None``.
        """
        leaves = [x for x in jax.tree.leaves(self) if isinstance(x, jax.Array)]
        known = [x for x in leaves if not isinstance(x, Tracer)]
        return known[0].device if known else None

    def pin_memory(self) -> Self:
        """Returns itself: copies to a device pin what they need."""
        return self

    def record_stream(self, stream: Any = None) -> None:
        """Does nothing: XLA orders its own streams.

        Args:
          stream: ignored.
        """
