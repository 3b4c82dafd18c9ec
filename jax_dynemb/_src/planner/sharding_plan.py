# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A plan with the reasons for it, and its form in JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from jax_dynemb._src.config import TableConfig
from jax_dynemb._src.engines.hash import Plan, TablePlan
from jax_dynemb._src.planner.demand import core_config
from jax_dynemb._src.planner.report import (
    MB,
    DeviceLoad,
    Imbalance,
    TableChoice,
    text_of,
)

FORMAT = 1


@dataclasses.dataclass(frozen=True, repr=False)
class ShardingPlan(Plan):
    """Holds a plan with its reasons; ``EmbeddingShardingPlanner.plan`` makes it.

    ``Tables(plan=...)`` takes it; ``print`` shows a report.

    Attributes:
      choices: one a table, in the order of ``tables``.
      devices: one a device.
      imbalance: of the devices' ms.
      room: bytes of a device that tables and batches may take.
      inputs: a hash of each input that the plan depends on, by name.
      at_once: part of the devices that compute at the same time.
    """

    choices: tuple[TableChoice, ...] = ()
    devices: tuple[DeviceLoad, ...] = ()
    imbalance: Imbalance = dataclasses.field(default_factory=Imbalance)
    room: int = 0
    inputs: dict[str, str] = dataclasses.field(default_factory=dict, hash=False)
    at_once: float = 1.0

    @property
    def ms(self) -> float:
        """Returns the predicted time of a step, that of the slowest device.

        Devices that share cores are faster where others have less to do.
        """
        loads = [device.ms for device in self.devices]
        return max(max(loads) * self.at_once, sum(loads) / len(loads))

    def apply(self, configs: Sequence[Any]) -> tuple[TableConfig, ...]:
        """Returns the tables with the shardings of the plan.

        Args:
          configs: one a table; those of ``jde.torchrec`` too. Tables that the plan does
            not name stay as they are.

        Raises:
          TypeError: something else than a config.
          ValueError: the plan names a table that is not there.
        """
        return super().apply([core_config(config) for config in configs])

    def __str__(self) -> str:
        """A report for people."""
        largest = max((d.table_bytes + d.batch_bytes for d in self.devices), default=0)
        used = f"{largest / MB:,.1f} of {self.room / MB:,.1f} MB"
        first = f"step {self.ms:.3f} ms predicted; fullest device {used}"
        parts = text_of(self.tables, self.choices, self.devices, self.imbalance)
        return f"{first}\n\n{parts}"

    def to_json(self) -> str:
        """Writes the plan and its report as JSON."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str, inputs: Mapping[str, str] | None = None) -> Self:
        """Reads what ``to_json`` wrote.

        Args:
          text: the JSON.
          inputs: what ``EmbeddingShardingPlanner.inputs`` returns for the tables and
            devices at hand; None: the plan is not compared with them.

        Raises:
          ValueError: it is no such JSON, or the plan was made from other inputs.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
        except (json.JSONDecodeError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(
                f"from_json: this is no JSON ({error}); read the text that "
                "ShardingPlan.to_json wrote."
            ) from error
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ValueError(
                "from_json: this is no plan of this version; make one with "
                "EmbeddingShardingPlanner.plan and write it with to_json."
            )
        try:
            plan = cls._from_fields(fields)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"from_json: the plan is damaged ({error}); plan again."
            ) from error
        if inputs is not None:
            plan.check_inputs(inputs)
        return plan

    @classmethod
    def _from_fields(cls, fields: dict[str, Any]) -> Self:
        tables = tuple(
            TablePlan(**{**one, "shards": tuple(one["shards"])})
            for one in fields.pop("tables")
        )
        choices = tuple(TableChoice(**one) for one in fields.pop("choices"))
        devices = tuple(DeviceLoad(**one) for one in fields.pop("devices"))
        imbalance = Imbalance(**fields.pop("imbalance"))
        by_shard = tuple(fields.pop("bytes_by_shard"))
        return cls(tables, by_shard, choices, devices, imbalance, **fields)

    def check_inputs(self, inputs: Mapping[str, str]) -> None:
        """Refuses a plan that was made from other inputs.

        Args:
          inputs: what ``EmbeddingShardingPlanner.inputs`` returns.

        Raises:
          ValueError: some are others; the message names them.
        """
        names = sorted(self.inputs.keys() | inputs.keys())
        if other := [n for n in names if self.inputs.get(n) != inputs.get(n)]:
            raise ValueError(
                f"this plan was made from other inputs: {', '.join(other)} changed. "
                "Plan again with EmbeddingShardingPlanner(...).plan(tables)."
            )
