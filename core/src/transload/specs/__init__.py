"""Define the spec of a job, which is `AppDef` and all that it is made of.

It is pure data. Nothing here does I/O.
"""

from __future__ import annotations

from transload.errors import SpecError, UnsupportedFeature
from transload.specs.app import MISSING, NONE, AppDef, RetryPolicy, Role, Workspace
from transload.specs.checks import nearest
from transload.specs.dryrun import AppDryRunInfo
from transload.specs.environment import NO_ENVIRONMENT, Environment
from transload.specs.handles import (
    AppHandle,
    MalformedAppHandleException,
    ParsedAppHandle,
    make_app_handle,
    parse_app_handle,
)
from transload.specs.interruptions import Notice
from transload.specs.macro_values import macros
from transload.specs.options import (
    CfgVal,
    Connection,
    InvalidRunConfigException,
    LocalPath,
    Option,
    Options,
    UnknownSchedulerException,
    option,
)
from transload.specs.progress import Progress
from transload.specs.resource_names import get_named_resources, named_resources, resource
from transload.specs.resources import (
    NULL_RESOURCE,
    BindMount,
    DeviceMount,
    JobMount,
    Mount,
    MountType,
    Resource,
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
    ReplicaAttempt,
    ReplicaStatus,
    RoleStatus,
    Usage,
    exit_text,
)
from transload.specs.text import parse_bool

__all__ = [
    "MASK",
    "MISSING",
    "NONE",
    "NO_ENVIRONMENT",
    "NULL_RESOURCE",
    "AppDef",
    "AppDryRunInfo",
    "AppHandle",
    "AppState",
    "AppStatus",
    "BindMount",
    "CfgVal",
    "Connection",
    "DeviceMount",
    "Environment",
    "GiB",
    "InvalidRunConfigException",
    "JobMount",
    "LocalPath",
    "MalformedAppHandleException",
    "Mount",
    "MountType",
    "Notice",
    "Option",
    "Options",
    "ParsedAppHandle",
    "Progress",
    "ReplicaAttempt",
    "ReplicaState",
    "ReplicaStatus",
    "Resource",
    "RetryPolicy",
    "Role",
    "RoleStatus",
    "SpecError",
    "UnknownSchedulerException",
    "UnsupportedFeature",
    "Usage",
    "VolumeMount",
    "Workspace",
    "exit_text",
    "get_named_resources",
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
    "option",
    "parse_app_handle",
    "parse_bool",
    "parse_mounts",
    "resolve_secret",
    "resource",
    "split_source",
]
