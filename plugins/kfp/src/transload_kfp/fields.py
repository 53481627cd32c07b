"""Find fields of an app definition by path, which inputs may set."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Final

from transload.errors import SpecError
from transload.specs import AppDef, Role
from transload_kfp.ports import input_type

_PATH: Final = re.compile(
    r"(?:roles\[(?P<role>[^\]]+)\]\.)?(?:(?P<field>num_replicas|min_replicas|image|entrypoint|max_retries"
    r"|resource\.(?:cpu|gpu|memMB))|(?P<where>args|env)\[(?P<key>.+)\])\Z",
    re.DOTALL,
)
_TYPES: Final = {
    "num_replicas": int,
    "min_replicas": int,
    "max_retries": int,
    "cpu": float,
    "gpu": int,
    "memMB": int,
}


def place_and_type(given: Any) -> tuple[str | None, Any]:
    """Return the path and the type of an input, of which a user gives either, both or none."""
    if isinstance(given, tuple):
        path, kind = given
        return path, kind
    if isinstance(given, str) and input_type(given) is None:
        return given, None
    return None, given


def in_command(path: str) -> bool:
    """Tell whether a path leads to an argument or a variable of the program."""
    match = _PATH.match(path)
    return match is not None and match["where"] is not None


def field_type(path: str) -> type:
    """Return the type of the value that a path takes.

    Raises:
        SpecError: for a path that no input can set.
    """
    match = None
    if isinstance(path, str):
        match = _PATH.match(path)
    if match is None:
        raise SpecError(
            f"{path!r}: must be [roles[NAME].] and args[2], args[--lr], env[NAME], num_replicas, "
            "min_replicas, image, "
            "entrypoint, max_retries, resource.cpu, resource.gpu or resource.memMB"
        )
    return _TYPES.get((match["field"] or "").rpartition(".")[2], str)


def option_path(app: AppDef, name: str) -> str:
    """Return the path of the value of the program's option ``--batch_size`` or ``--batch-size``.

    Raises:
        SpecError: if there is no such option.
    """
    for each in (name, name.replace("_", "-")):
        path = f"args[--{each}]"
        try:
            field_at(app, path)
        except SpecError:
            continue
        return path
    shown = ", ".join(repr(role.args) for role in app.roles)
    raise SpecError(
        f"the program has no argument --{name}; say which text it is, such as ('args[0]', float), "
        f"of {shown}"
    )


def field_at(app: AppDef, path: str, *value: Any) -> Any:
    """Return the value at a path of an app definition, after setting it if one is given.

    Raises:
        SpecError: if there is no such place.
    """
    kind = field_type(path)
    match = _PATH.match(path)
    assert match is not None
    role = _role(app, match["role"], path)
    if match["field"]:
        return _field(role, match["field"], *(_converted(path, kind, each) for each in value))
    text = None
    if value:
        text = value[0] if isinstance(value[0], str) else json.dumps(value[0])
    if match["where"] == "env":
        return _env(role, match["key"], path, text)
    return _arg(role, match["key"], path, text)


def _converted(path: str, kind: type, value: Any) -> Any:
    """Return a value as its field has it.

    Raises:
        SpecError: if it is none of that kind.
    """
    if isinstance(value, kind):
        return value
    try:
        made = kind(value)
    except (TypeError, ValueError, OverflowError):
        made = None
    if made is None or (isinstance(value, float) and made != value):
        raise SpecError(f"{path!r}: {value!r}: must be of type {kind.__name__}")
    return made


def _field(role: Role, name: str, *value: Any) -> Any:
    """Return a field of a role or of its resource, and set it if a value is given."""
    owner: Any = role
    if name.startswith("resource."):
        role.resource = copy.copy(role.resource)
        owner = role.resource
        name = name.removeprefix("resource.")
    before = getattr(owner, name)
    if value:
        setattr(owner, name, value[0])
    return before


def _role(app: AppDef, name: str | None, path: str) -> Role:
    if name is None and len(app.roles) == 1:
        return app.roles[0]
    for index, role in enumerate(app.roles):
        if name in (role.name, str(index)):
            return role
    raise SpecError(
        f"{path!r}: say which role: roles[NAME].…, of {', '.join(role.name for role in app.roles)}"
    )


def _env(role: Role, key: str, path: str, text: str | None) -> str:
    """Return the value of a variable, and replace it if a text is given."""
    if key not in role.env:
        raise SpecError(
            f"{path!r}: there is no such variable; env has {', '.join(role.env) or 'none'}"
        )
    before = role.env[key]
    if text is not None:
        role.env = {**role.env, key: text}
    return before


def _arg(role: Role, key: str, path: str, text: str | None) -> str:
    """Return an argument, by number or by its option, and replace it if a text is given."""
    args = list(role.args)
    at, prefix = _place_of_arg(args, key)
    if at >= len(args):
        raise SpecError(f"{path!r}: there is no such argument; args are {role.args!r}")
    before = args[at][len(prefix) :]
    if text is not None:
        args[at] = prefix + text
        role.args = args
    return before


def _place_of_arg(args: list[str], key: str) -> tuple[int, str]:
    """Return the index of an argument, and what stands before its value in the same text.

    The index is beyond the last one if there is no such argument.
    """
    if key.isdecimal():
        return int(key), ""
    prefix = f"{key}="
    for index, arg in enumerate(args):
        if arg == key:
            return index + 1, ""
        if arg.startswith(prefix):
            return index, prefix
    return len(args), ""
