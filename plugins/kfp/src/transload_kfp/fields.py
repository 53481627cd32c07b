"""Fields of an app by path: what inputs may set."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Final

from transload.errors import SpecError
from transload.specs import AppDef, Role

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


def in_command(path: object) -> bool:
    """Tell whether a path leads to an argument or a variable of the program."""
    match = _PATH.match(path) if isinstance(path, str) else None
    return match is not None and match["where"] is not None


def field_type(path: str) -> type:
    """Return the type of the value that a path takes.

    Raises:
        SpecError: for a path that no input can set.
    """
    match = _PATH.match(path) if isinstance(path, str) else None
    if match is None:
        raise SpecError(
            f"{path!r}: must be [roles[NAME].] and args[2], args[--lr], env[NAME], num_replicas, "
            "min_replicas, image, "
            "entrypoint, max_retries, resource.cpu, resource.gpu or resource.memMB"
        )
    return _TYPES.get((match["field"] or "").rpartition(".")[2], str)


def option_path(app: AppDef, name: str) -> str:
    """Return the path of the text that the program's option of a name has: ``--batch_size``, or
    ``--batch-size``.

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
    """Return what stands at a path of an app; put a value there if one is given.

    Raises:
        SpecError: if there is no such place.
    """
    kind = field_type(path)
    match = _PATH.match(path)
    assert match is not None
    role = _role(app, match["role"], path)
    if match["field"]:
        owner: Any = role
        name = match["field"]
        if name.startswith("resource."):
            role.resource = owner = copy.copy(role.resource)
            name = name.removeprefix("resource.")
        before = getattr(owner, name)
        if value:
            setattr(owner, name, value[0] if isinstance(value[0], kind) else kind(value[0]))
        return before
    text = [value[0] if isinstance(value[0], str) else json.dumps(value[0])] if value else []
    return (
        _env(role, match["key"], path, text)
        if match["where"] == "env"
        else _arg(role, match["key"], path, text)
    )


def _role(app: AppDef, name: str | None, path: str) -> Role:
    if name is None and len(app.roles) == 1:
        return app.roles[0]
    for index, role in enumerate(app.roles):
        if name in (role.name, str(index)):
            return role
    raise SpecError(
        f"{path!r}: say which role: roles[NAME].…, of {', '.join(role.name for role in app.roles)}"
    )


def _env(role: Role, key: str, path: str, value: list[str]) -> str:
    if key not in role.env:
        raise SpecError(
            f"{path!r}: there is no such variable; env has {', '.join(role.env) or 'none'}"
        )
    before = role.env[key]
    if value:
        role.env = {**role.env, key: value[0]}
    return before


def _arg(role: Role, key: str, path: str, value: list[str]) -> str:
    args = list(role.args)
    prefix = ""
    if key.isdecimal():
        at = int(key)
    else:
        at = next(
            (k for k, arg in enumerate(args) if arg == key or arg.startswith(f"{key}=")), len(args)
        )
        if at < len(args) and args[at] == key:
            at += 1
        else:
            prefix = f"{key}="
    if at >= len(args):
        raise SpecError(f"{path!r}: there is no such argument; args are {role.args!r}")
    before = args[at][len(prefix) :]
    if value:
        args[at] = prefix + value[0]
        role.args = args
    return before
