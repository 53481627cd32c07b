"""The spec of a job: `AppDef` and all that it is made of. Pure data; nothing here does I/O."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from transload.errors import SpecError, UnsupportedFeature
from transload.specs.app import ALL, MISSING, NONE, AppDef, RetryPolicy, Role, Workspace
from transload.specs.checks import nearest
from transload.specs.dryrun import AppDryRunInfo
from transload.specs.handles import (
    AppHandle,
    MalformedAppHandleException,
    ParsedAppHandle,
    UnknownAppException,
    make_app_handle,
    parse_app_handle,
)
from transload.specs.macro_values import macros
from transload.specs.options import (
    CfgVal,
    InvalidRunConfigException,
    UnknownSchedulerException,
    get_type_name,
    runopt,
    runopts,
)
from transload.specs.resource_names import get_named_resources, named_resources, resource
from transload.specs.resources import (
    NULL_RESOURCE,
    BindMount,
    DeviceMount,
    JobMount,
    Mount,
    MountType,
    Resource,
    Resources,
    VolumeMount,
    parse_mounts,
)
from transload.specs.secrets import (
    MASK,
    looks_secret,
    masked_args,
    masked_env,
    masked_url,
    masked_values,
    resolve_secret,
    split_source,
)
from transload.specs.sizes import GiB
from transload.specs.states import AppState, ReplicaState, is_started, is_terminal
from transload.specs.status import (
    AppStatus,
    AppStatusError,
    ReplicaAttempt,
    ReplicaStatus,
    RoleStatus,
    Usage,
    exit_text,
)
from transload.specs.text import parse_bool

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
    "JobMount",
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
    "Usage",
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
    "masked_args",
    "masked_env",
    "masked_url",
    "masked_values",
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
    """Return the one name that TorchX's users look for here and that stands on this package."""
    if name != "materialize_appdef":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("transload.components").materialize_appdef
