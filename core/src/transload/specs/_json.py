"""AppDef and AppStatus as JSON: versioned, strict about what it does not know, tolerant of what is older."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields
from typing import Any, Final, TypeVar

from transload.errors import SpecError
from transload.specs._app import AppDef, Role
from transload.specs._check import nearest, refuse
from transload.specs._resource import BindMount, DeviceMount, Mount, Resource, VolumeMount
from transload.specs._status import AppState, AppStatus, ReplicaAttempt, ReplicaStatus, RoleStatus
from transload.specs._workspace import Workspace

SCHEMA: Final = 1
"""Number of the JSON form that this version writes; it reads this one and all older ones."""

_MOUNTS: Final[dict[str, type[Mount]]] = {"bind": BindMount, "volume": VolumeMount, "device": DeviceMount}
_T = TypeVar("_T")


def dump(data: dict[str, Any], indent: int | None = None) -> str:
    """Return ``data`` as JSON text (NaN and Infinity as Python's json writes them)."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    # bytes of a file name that are not UTF-8 are lone surrogates in a str, and could not be written as they are
    return (
        text if text.isascii() or text.encode("utf-8", "replace").decode() == text else json.dumps(data, indent=indent)
    )


def load(text: str | bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in ``text``, checked for its schema number (``schema`` is taken out).

    Raises:
        SpecError: if it is not a JSON object, or of a newer schema.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise SpecError(f"{what}: not valid JSON: {exc}") from exc
    return check_schema(data, what)


def check_schema(data: object, what: str) -> dict[str, Any]:
    """Return ``data`` without its ``schema``, which must be 1 to `SCHEMA`."""
    if not isinstance(data, Mapping):
        refuse(what, data, "must be a JSON object")
    data = dict(data)
    schema = data.pop("schema", SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        refuse(f"{what}.schema", schema, "must be a positive int")
    if schema > SCHEMA:
        refuse(f"{what}.schema", schema, f"is newer than this version of transload reads ({SCHEMA}): upgrade transload")
    return data


def app_to_dict(app: AppDef) -> dict[str, Any]:
    """Return ``app`` as JSON values, all fields spelled out."""
    app.check()
    return {"schema": SCHEMA, **_to_value(app)}


def app_from_dict(values: Mapping[str, Any]) -> AppDef:
    """Build an AppDef from JSON values; its paths start at the app."""
    data = check_schema(values, "AppDef")
    roles = data.get("roles", [])
    if isinstance(roles, list):
        data["roles"] = [_role(role, f"roles[{index}]") for index, role in enumerate(roles)]
    return _build(AppDef, data, "AppDef")


def app_digest(app: AppDef) -> str:
    """Return the digest of an app (see `AppDef.digest`).

    Fields that hold their default are left out, so that a field added by a later version does not change the digest.
    """
    import hashlib

    app.check()
    canonical = json.dumps(_to_value(app, compact=True), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def status_to_dict(status: AppStatus) -> dict[str, Any]:
    """Return ``status`` as JSON values, states by name."""
    return {"schema": SCHEMA, **_to_value(status)}


def status_from_dict(values: Mapping[str, Any]) -> AppStatus:
    """Build an AppStatus from JSON values; fields that a later version added are ignored."""
    data = check_schema(values, "AppStatus")
    roles = data.get("roles", [])
    if not isinstance(roles, list):
        refuse("AppStatus.roles", roles, "must be a list")
    data["roles"] = [_role_status(role, f"AppStatus.roles[{index}]") for index, role in enumerate(roles)]
    return _status_part(AppStatus, data, "AppStatus")


def _role_status(data: Any, path: str) -> RoleStatus:
    replicas = data.get("replicas", []) if isinstance(data, dict) else None
    if not isinstance(replicas, list) or not isinstance(data.get("role"), str):
        refuse(path, data, "must be an object with the name of a role and a list of replicas")
    return RoleStatus(
        data["role"], [_replica(part, data["role"], f"{path}.replicas[{i}]") for i, part in enumerate(replicas)]
    )


def _replica(data: Any, role: str, path: str) -> ReplicaStatus:
    if isinstance(data, Mapping):
        data = {"role": role, "hostname": "", **data}
    replica = _status_part(ReplicaStatus, data, path)
    if not isinstance(replica.earlier, list):
        refuse(f"{path}.earlier", replica.earlier, "must be a list")
    replica.earlier = [
        _status_part(ReplicaAttempt, attempt, f"{path}.earlier[{index}]")
        for index, attempt in enumerate(replica.earlier)
    ]
    return replica


def _status_part(cls: type[_T], data: Any, path: str) -> _T:
    if not isinstance(data, dict):
        refuse(path, data, "must be a JSON object")
    known = {item.name for item in fields(cls)}  # type: ignore[arg-type]
    values = {key: value for key, value in data.items() if key in known}
    state = values.get("state")
    # a later version may know more states
    values["state"] = AppState.__members__.get(state, AppState.UNKNOWN) if isinstance(state, str) else AppState.UNKNOWN
    try:
        return cls(**values)
    except TypeError as exc:
        raise SpecError(f"{path}: {exc}") from exc


def _to_value(value: Any, compact: bool = False) -> Any:
    if isinstance(value, AppState):
        return value.name
    if isinstance(value, (BindMount, VolumeMount, DeviceMount)):
        kind = next(name for name, cls in _MOUNTS.items() if isinstance(value, cls))
        return {"type": kind, **_fields(value, compact)}
    if hasattr(value, "__dataclass_fields__"):
        return _fields(value, compact)
    if isinstance(value, dict):
        return {key: _to_value(item, compact) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_value(item, compact) for item in value]
    if compact and isinstance(value, float) and value.is_integer():
        # 1 and 1.0 make equal apps, and other tools write the one for the other
        return int(value)
    if isinstance(value, str):
        return str.__str__(value) if type(value) is str else value.value if hasattr(value, "value") else str(value)
    return value


def _fields(value: Any, compact: bool) -> dict[str, Any]:
    result = {}
    for item in fields(value):
        content = getattr(value, item.name)
        if compact:
            default = item.default_factory() if item.default_factory is not NO_DEFAULT else item.default
            if default is not NO_DEFAULT and content == default:
                continue
        result[item.name] = _to_value(content, compact)
    return result


def _role(data: Any, path: str) -> Role:
    if not isinstance(data, dict):
        refuse(path, data, "must be a JSON object")
    data = dict(data)
    if isinstance(data.get("resource"), dict):
        data["resource"] = _build(Resource, data["resource"], f"{path}.resource")
    if isinstance(data.get("workspace"), dict):
        data["workspace"] = _build(Workspace, data["workspace"], f"{path}.workspace")
    if isinstance(data.get("mounts"), list):
        data["mounts"] = [_mount(mount, f"{path}.mounts[{index}]") for index, mount in enumerate(data["mounts"])]
    return _build(Role, data, path)


def _mount(data: Any, path: str) -> Mount:
    if not isinstance(data, dict):
        refuse(path, data, "must be a JSON object")
    data = dict(data)
    kind = data.pop("type", None)
    cls = _MOUNTS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        refuse(f"{path}.type", kind, "must be one of bind, volume, device")
    return _build(cls, data, path)


def _build(cls: type[_T], data: dict[str, Any], path: str) -> _T:
    known = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]
    for key in data:
        if key not in known:
            raise SpecError(f"{path}: unknown field {key!r}: {nearest(str(key), list(known))}")
    for name, item in known.items():
        if name not in data and item.default is NO_DEFAULT and item.default_factory is NO_DEFAULT:
            raise SpecError(f"{path}: the field {name!r} is missing")
    try:
        return cls(**data)
    except SpecError as exc:
        # the constructor speaks of the class; the reader of JSON wants to know which of them it was
        raise SpecError(str(exc).replace(f"{cls.__name__}.", f"{path}.", 1)) from exc
