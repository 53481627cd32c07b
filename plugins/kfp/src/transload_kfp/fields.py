"""Find fields of an app definition by path, which inputs may set."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

from transload.errors import SpecError
from transload.specs import AppDef, Role
from transload.specs.values import read
from transload_kfp.ports import KFP_TYPES, InputPort, default_text, input_type, need_input_type

_PATH: Final = re.compile(
    r"(?:roles\[(?P<role>[^\]]+)\]\.)?(?:(?P<field>num_replicas|min_replicas|image|entrypoint|max_retries"
    r"|resource\.(?:cpu|gpu|memMB))|(?P<where>args|env)\[(?P<key>.+)\])\Z",
    re.DOTALL,
)
_TYPES: Final = {
    "num_replicas": int,
    "min_replicas": int,
    "max_retries": int,
    "resource.cpu": float,
    "resource.gpu": int,
    "resource.memMB": int,
}


@dataclass
class Field:
    """A field of a role.

    Args:
        role: the role.
        name: the field, or ``args`` or ``env``.
        key: the index of an argument, or the name of a variable.
        before: what stands before the value of an argument in the same text.
    """

    role: Role
    name: str
    key: Any = None
    before: str = ""

    @property
    def place(self) -> tuple[str, str, Any]:
        """What is equal for two paths to one field."""
        return self.role.name, self.name, self.key

    @property
    def type(self) -> type:
        """The type of its value."""
        return _TYPES.get(self.name, str)

    def value(self) -> Any:
        """Return its value."""
        if self.name == "args":
            return self.role.args[self.key].removeprefix(self.before)
        if self.name == "env":
            return self.role.env[self.key]
        return attrgetter(self.name)(self.role)

    def set(self, value: Any, path: str) -> None:
        """Set its value.

        Args:
            value: what it becomes. In a text of the program, other values are written as JSON.
            path: its path, for the message.

        Raises:
            SpecError: if it is of another type.
        """
        if self.key is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            self._set_text(text)
            return
        value = read(value, self.type, repr(path), typed=isinstance(value, str))
        if self.name.startswith("resource."):
            field = self.name.removeprefix("resource.")
            self.role.resource = replace(self.role.resource, **{field: value})
        else:
            setattr(self.role, self.name, value)

    def _set_text(self, text: str) -> None:
        if self.name == "env":
            self.role.env = {**self.role.env, self.key: text}
        else:
            args = list(self.role.args)
            args[self.key] = self.before + text
            self.role.args = args


def field_of(app: AppDef, path: str) -> Field:
    """Return the field at a path of an app definition.

    Raises:
        SpecError: if there is none that an input can set.
    """
    match = _PATH.match(path) if isinstance(path, str) else None
    if match is None:
        raise SpecError(
            f"{path!r}: must be [roles[NAME].] and args[2], args[--lr], env[NAME], num_replicas, "
            "min_replicas, image, entrypoint, max_retries, resource.cpu, resource.gpu or "
            "resource.memMB"
        )
    role = _role(app, match["role"], path)
    key = match["key"]
    if match["field"]:
        return Field(role, match["field"])
    if match["where"] == "env":
        if key not in role.env:
            raise SpecError(
                f"{path!r}: there is no such variable; env has {', '.join(role.env) or 'none'}"
            )
        return Field(role, "env", key)
    index, before = _place_of_arg(role.args, key)
    if index >= len(role.args):
        raise SpecError(f"{path!r}: there is no such argument; args are {role.args!r}")
    return Field(role, "args", index, before)


def field_input(app: AppDef, name: str, given: Any, port: str, like: Any = None) -> InputPort:
    """Return an input that sets a field of an app definition. What stands there is its default.

    Args:
        app: the app definition.
        name: the input, as the user calls it.
        given: a path, a type, a pair of both, or None. Without a path, it is the program's option
            of the input's name.
        port: its name in KFP.
        like: the type of the argument of a component function that has the input's name.

    Raises:
        SpecError: if there is no such field, or what stands there is of another type.
    """
    path, kind = None, given
    if isinstance(given, tuple):
        path, kind = given
    elif isinstance(given, str) and input_type(given) is None:
        path, kind = given, None
    if path is None:
        path = _option_path(app, name)
        kind = kind or like
    field = field_of(app, path)
    kind = kind or field.type
    made = InputPort(source=name, name=port, type=need_input_type(kind), path=path)
    if kind not in KFP_TYPES:
        return made
    found = field.value()
    if found is None:
        return replace(made, optional=True)
    default = default_text(_read_default(found, kind, path), path)
    return replace(made, default=default, optional=True)


def _read_default(found: Any, kind: type, path: str) -> Any:
    """Return what stands in a field, read as another type.

    Raises:
        SpecError: if it is none of that type.
    """
    if kind is str:
        return str(found)
    if kind not in (list, dict):
        return read(found, kind, path, typed=isinstance(found, str))
    try:
        value = json.loads(found)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, kind):
        raise SpecError(f"{path}={found!r}: must be a {kind.__name__}, as JSON")
    return value


def _option_path(app: AppDef, name: str) -> str:
    """Return the path of the value of the program's option ``--batch_size`` or ``--batch-size``.

    Raises:
        SpecError: if there is no such option.
    """
    for each in (name, name.replace("_", "-")):
        path = f"args[--{each}]"
        try:
            field_of(app, path)
        except SpecError:
            continue
        return path
    shown = ", ".join(repr(role.args) for role in app.roles)
    raise SpecError(
        f"the program has no argument --{name}; say which text it is, such as ('args[0]', float), "
        f"of {shown}"
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
