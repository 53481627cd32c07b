"""Building a component function's app with stand-ins, and seeing what it does with them. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from transload.components import Component, Parameter, build
from transload.specs import AppDef, Role
from transload_kfp.late import Late, NeedsValue, pieces, plain, stand_in

TYPES: Final = (str, int, float, bool)
"""What an argument must be to be known only at run time."""


def build_twice(found: Component, settled: Mapping[str, Any], late: Mapping[str, Parameter]) -> AppDef:
    """Return the app with marks; refuse a function whose app depends on a run-time value in any other way.

    Raises:
        NeedsValue: with the name of the argument.
    """
    first, second = (build_once(found, settled, late, probe) for probe in (0, 1))
    if _canonical(first) == _canonical(second):
        return first
    for name in late:  # whose value is it?
        one, two = (_build_one(found, settled, late, name, probe) for probe in (0, 1))
        if _canonical(one) != _canonical(two):
            raise NeedsValue(name, "the component function changes its app with the value")
    raise NeedsValue(next(iter(late)), "the component function changes its app with the values")


def build_once(found: Component, settled: Mapping[str, Any], late: Mapping[str, Parameter], probe: int) -> AppDef:
    """Return the app with marks, whatever else of it depends on a run-time value.

    Raises:
        NeedsValue: if the function says that it needs one.
    """
    return _call(found, settled, {name: stand_in(name, _kind(item), probe) for name, item in late.items()})


def _build_one(
    found: Component, settled: Mapping[str, Any], late: Mapping[str, Parameter], name: str, probe: int
) -> AppDef:
    values = {each: stand_in(each, _kind(item), probe if each == name else 0) for each, item in late.items()}
    return _call(found, settled, values)


def _kind(item: Parameter) -> type:
    return item.annotation if item.annotation in TYPES else str


def _call(found: Component, settled: Mapping[str, Any], late: Mapping[str, Any]) -> AppDef:
    """Call the function with settled values, decoded as always, and stand-ins in the place of the others."""
    order = [item.name for item in found.parameters if item.kind == "positional"]
    dummies = {name: {str: "x", int: 1, float: 1.0}.get(_base(value), True) for name, value in late.items()}

    def called(*positional: Any, **keywords: Any) -> AppDef:
        swapped = [late.get(name, value) for name, value in zip(order, positional, strict=False)]
        return found.fn(
            *swapped, *positional[len(order) :], **{name: late.get(name, value) for name, value in keywords.items()}
        )

    app = build(replace(found, fn=called), {**settled, **dummies})
    _refuse_structure(app)
    app = copy.copy(app)
    app.roles = [_unmasked(role) for role in app.roles]
    app.check_runnable()
    return app


def _base(value: object) -> type:
    return next((kind for kind in (str, int, float) if isinstance(value, kind)), bool)


def _unmasked(role: Role) -> Role:
    role = copy.copy(role)
    role.entrypoint = str(role.entrypoint)
    role.args = [plain(arg) for arg in role.args]
    role.env = {str(name): plain(value) for name, value in role.env.items()}
    return role


def _refuse_structure(app: AppDef) -> None:
    """Refuse run-time values anywhere but in entrypoint, args and env values: a component fixes the rest."""
    for path, value in _structure(app):
        if isinstance(value, Late):
            raise NeedsValue(value.late_name, f"{path} must be known before")
        if isinstance(value, str):
            for piece in pieces(value):
                if isinstance(piece, tuple):
                    raise NeedsValue(piece[0], f"{path} must be known before")


def _structure(app: AppDef) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []

    def walk(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                walk(f"{path}[{key!r}]", key if isinstance(key, Late) else item)
        elif isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                walk(f"{path}[{index}]", item)
        elif hasattr(value, "__dataclass_fields__"):
            for each in value.__dataclass_fields__:
                walk(f"{path}.{each}", getattr(value, each))
        else:
            found.append((path, value))

    walk("name", app.name)
    walk("metadata", app.metadata)
    walk("timeout", app.timeout)
    for index, role in enumerate(app.roles):
        for each in role.__dataclass_fields__:
            if each not in ("entrypoint", "args", "env"):
                walk(f"roles[{index}].{each}", getattr(role, each))
        for name in role.env:
            walk(f"roles[{index}].env name", name)
    return found


def _canonical(app: AppDef) -> str:
    """Return the app as text, with its marks the same for every probe."""
    data = json.loads(app.to_json())

    def canonical(value: Any) -> Any:
        if isinstance(value, str):
            return [list(piece) if isinstance(piece, tuple) else piece for piece in pieces(value)]
        if isinstance(value, dict):
            return {key: canonical(item) for key, item in value.items()}
        return [canonical(item) for item in value] if isinstance(value, list) else value

    return json.dumps(canonical(data), sort_keys=True)
