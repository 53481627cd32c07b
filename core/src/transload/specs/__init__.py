"""The spec of a job: `AppDef` and all that it is made of. Pure data; nothing here does I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transload.errors import AppFailed as AppStatusError
from transload.errors import SpecError, UnsupportedFeature
from transload.specs._app import ALL, MISSING, NONE, AppDef, RetryPolicy, Role
from transload.specs._check import nearest
from transload.specs._dryrun import AppDryRunInfo
from transload.specs._handle import (
    AppHandle,
    MalformedAppHandleException,
    ParsedAppHandle,
    UnknownAppException,
    make_app_handle,
    parse_app_handle,
)
from transload.specs._macros import macros
from transload.specs._mounts import parse_mounts
from transload.specs._named_resources import GiB, get_named_resources, named_resources, resource
from transload.specs._resource import (
    NULL_RESOURCE,
    BindMount,
    DeviceMount,
    Mount,
    MountType,
    Resource,
    Resources,
    VolumeMount,
)
from transload.specs._runopts import (
    CfgVal,
    InvalidRunConfigException,
    UnknownSchedulerException,
    get_type_name,
    runopt,
    runopts,
)
from transload.specs._secrets import MASK, looks_secret, masked_env, masked_url, resolve_secret, split_source
from transload.specs._status import (
    AppState,
    AppStatus,
    ReplicaAttempt,
    ReplicaState,
    ReplicaStatus,
    RoleStatus,
    exit_text,
    is_started,
    is_terminal,
)
from transload.specs._text import parse_bool
from transload.specs._workspace import Workspace

if TYPE_CHECKING:
    from transload.components import materialize_appdef

__all__ = [
    "ALL",
    "MASK",
    "MISSING",
    "NONE",
    "NULL_RESOURCE",
    "AppDef",
    "AppDryRunInfo",
    "AppHandle",
    "AppState",
    "AppStatus",
    "AppStatusError",
    "BindMount",
    "CfgVal",
    "DeviceMount",
    "GiB",
    "InvalidRunConfigException",
    "MalformedAppHandleException",
    "Mount",
    "MountType",
    "ParsedAppHandle",
    "ReplicaAttempt",
    "ReplicaState",
    "ReplicaStatus",
    "Resource",
    "Resources",
    "RetryPolicy",
    "Role",
    "RoleStatus",
    "SpecError",
    "UnknownAppException",
    "UnknownSchedulerException",
    "UnsupportedFeature",
    "VolumeMount",
    "Workspace",
    "exit_text",
    "get_named_resources",
    "get_type_name",
    "is_started",
    "is_terminal",
    "looks_secret",
    "macros",
    "make_app_handle",
    "masked_env",
    "masked_url",
    "materialize_appdef",
    "named_resources",
    "nearest",
    "parse_app_handle",
    "parse_bool",
    "parse_mounts",
    "resolve_secret",
    "resource",
    "runopt",
    "runopts",
    "split_source",
]


def __getattr__(name: str) -> Any:
    # components stand on specs; the name is here for those who come from TorchX
    if name == "materialize_appdef":
        from transload.components import materialize_appdef

        return materialize_appdef
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
