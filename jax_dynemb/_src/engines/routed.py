# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A batch whose ids are with their owners already."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Routed:
    """Holds a batch that ``Tables.route`` has sent ahead of its lookup; a pytree.

    Attributes:
      given: ids by feature, in order; None for those that ``packed`` holds.
      packed: the ids of the other features; None if there are none.
      weights: by feature, as given.
      sent: what the owners have received; None or empty where nothing travels ahead.
      engine: of the tables that it was routed for; static.
    """

    given: Mapping[str, Any]
    packed: Any
    weights: Mapping[str, Any]
    sent: Any
    engine: Any = dataclasses.field(metadata={"static": True})

    @property
    def ids(self) -> Mapping[str, Any]:
        """Returns the ids by feature, as given."""
        if self.packed is None:
            return self.given
        packed = self.packed.by_feature()
        return OrderedDict((f, packed.get(f, x)) for f, x in self.given.items())
