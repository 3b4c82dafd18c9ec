# SPDX-FileCopyrightText: 2026 The jax_dynemb authors
# SPDX-License-Identifier: Apache-2.0
"""A table's config as dicts, lists, strings and numbers, for JSON and YAML files.

What a function of ``jde`` makes is a dict with the name of the function as "kind" and
its arguments beside it: ``{"kind": "adam", "learning_rate": 0.001}``.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import enum
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jax_dynemb._src import admission, initializers, optim
from jax_dynemb._src.host_tier import HostTier
from jax_dynemb._src.optim.interface import Functor, Fused, NoUpdate

_ADMISSION = {
    c.__name__.lower(): c
    for c in (
        admission.Probability,
        admission.Frequency,
        admission.Sketch,
        admission.Exact,
    )
}
_FUNCTIONS = {n: f for n, f in vars(optim).items() if inspect.isfunction(f)}
_OPTIMIZERS = {
    n: f
    for n, f in _FUNCTIONS.items()
    if "learning_rate" in inspect.signature(f).parameters or f is optim.none
}
_INITIALIZERS = {
    name: getattr(initializers, name)
    for name in ("uniform", "normal", "truncated_normal", "constant", "debug")
}
# What makes the objects of a field, by kind.
_MAKERS: dict[str, Mapping[str, Callable[..., Any]]] = {
    "initializer": _INITIALIZERS,
    "eval_initializer": _INITIALIZERS,
    "optimizer": _OPTIMIZERS | {"functor": Functor},
    "admission": _ADMISSION,
    "counter": _ADMISSION,
    "tier": {"host": HostTier},
    "keep_for": {"timedelta": datetime.timedelta},
}


def to_dict(config: Any, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the fields of a config that are not the defaults; ``from_dict`` reads it.

    Raises:
      ValueError: a field holds what no file can, such as a schedule or an optax
        transformation.
    """
    result: dict[str, Any] = {}
    plain = type(config)(*(getattr(config, n) for n in ("name", "dim", "capacity")))
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        if name in leave_out:
            continue
        if name in ("name", "dim", "capacity") or value != getattr(plain, name):
            result[name] = _written(config.name, name, value)
    return result


def from_dict(kind: type, given: Mapping[str, Any], others: Mapping[str, Any]) -> Any:
    """Makes a config of what ``to_dict`` returned; ``others`` are objects.

    Raises:
      TypeError: it is no dict.
      ValueError: a key is no field of a config, or a kind no function of ``jde``.
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{kind.__name__}.from_dict takes the dict of one table, not a "
            f"{type(given).__name__}: of a list of tables write "
            f"[jde.{kind.__name__}.from_dict(t) for t in tables]."
        )
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for name in [*given, *others]:
        if name not in fields:
            near = difflib.get_close_matches(str(name), fields, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ValueError(f"{kind.__name__} has no field '{name}'.{hint}")
    return kind(
        **{n: _read(n, x) for n, x in given.items() if n not in others}, **others
    )


def _written(table: str, field: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, datetime.timedelta):
        return {"kind": "timedelta", "seconds": value.total_seconds()}
    if isinstance(value, tuple):
        return [_written(table, field, x) for x in value]
    if isinstance(value, NoUpdate):
        return {"kind": "none"}
    if isinstance(value, (Fused, Functor)) and not callable(value.learning_rate):
        return _optimizer(value)
    made_by = _MAKERS.get(field, {})
    for kind, make in made_by.items():
        if type(value) is make or getattr(value, "kind", None) == kind:
            known = dataclasses.fields(value)
            fields = {f.name: getattr(value, f.name) for f in known}
            kept = {
                f.name: _written(table, f.name, fields[f.name])
                for f in known
                if fields[f.name] is not f.default and fields[f.name] != f.default
            }
            return {"kind": kind, **kept}
    raise ValueError(
        f"Table '{table}': {field} is {value!r}, which no file can hold. Leave it out, "
        f"to_dict(leave_out=('{field}',)), and give it to the reader: "
        f"from_dict(fields, {field}=...)."
    )


def _optimizer(optimizer: Fused | Functor) -> dict[str, Any]:
    """The call that makes the optimizer, or its numbers where options made more."""
    make = _OPTIMIZERS[optimizer.name]
    known = inspect.signature(make).parameters
    numbers = {n: getattr(optimizer, n, None) for n in known}
    call = {
        n: x
        for n, x in numbers.items()
        if isinstance(x, float) and x != known[n].default
    }
    try:
        if make(**call) == optimizer:
            return {"kind": optimizer.name, **call}
    except (TypeError, ValueError):
        pass
    assert isinstance(optimizer, Functor)  # functions of jde.optim say all of a Fused
    fields = dataclasses.asdict(optimizer)
    for name in ("numbers", "initial"):  # lists, because YAML sorts the keys of dicts
        fields[name] = [list(pair) for pair in fields[name]]
    return fields | {"kind": "functor", "formula": optimizer.kind}


def _read(field: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(field, x) for x in value)
    if not isinstance(value, Mapping) or field not in _MAKERS:
        return value
    fields = dict(value)
    kind = fields.pop("kind", None)
    make = _MAKERS[field].get(str(kind))
    if make is None:
        raise ValueError(
            f"{field}: 'kind' must be one of {sorted(_MAKERS[field])}, not {kind!r}."
        )
    if make is Functor:
        fields["kind"] = fields.pop("formula")
    return make(**{n: _number(_read(n, x)) for n, x in fields.items()})


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as a string."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
