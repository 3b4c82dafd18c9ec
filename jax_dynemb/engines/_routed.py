# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A batch whose ids are with their owners already."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Routed:
    """Holds a batch that ``Tables.route`` has sent ahead of its lookup; a pytree.

    Attributes:
      ids: by feature, as given.
      weights: by feature, as given.
      sent: what the owners have received; None or empty where nothing travels ahead.
      engine: of the tables that it was routed for; static.
    """

    ids: dict[str, Any]
    weights: dict[str, Any]
    sent: Any
    engine: Any = dataclasses.field(metadata={"static": True})
