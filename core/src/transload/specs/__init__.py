"""The spec of a job: `AppDef` and all that it is made of. Pure data; nothing here does I/O.

A name is imported when it is first asked for: whoever only needs one part does not pay for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload.components import materialize_appdef
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
    from transload.specs._named_resources import get_named_resources, named_resources, resource
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
    from transload.specs._sizes import GiB
    from transload.specs._status import (
        AppState,
        AppStatus,
        AppStatusError,
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".errors": ("SpecError", "UnsupportedFeature"),
        ".components": ("materialize_appdef",),  # which stand on specs; TorchX has this name here
        "_app": ("ALL", "MISSING", "NONE", "AppDef", "RetryPolicy", "Role"),
        "_check": ("nearest",),
        "_dryrun": ("AppDryRunInfo",),
        "_handle": (
            "AppHandle",
            "MalformedAppHandleException",
            "ParsedAppHandle",
            "UnknownAppException",
            "make_app_handle",
            "parse_app_handle",
        ),
        "_macros": ("macros",),
        "_mounts": ("parse_mounts",),
        "_named_resources": ("get_named_resources", "named_resources", "resource"),
        "_resource": (
            "NULL_RESOURCE",
            "BindMount",
            "DeviceMount",
            "Mount",
            "MountType",
            "Resource",
            "Resources",
            "VolumeMount",
        ),
        "_runopts": (
            "CfgVal",
            "InvalidRunConfigException",
            "UnknownSchedulerException",
            "get_type_name",
            "runopt",
            "runopts",
        ),
        "_sizes": ("GiB",),
        "_secrets": ("MASK", "looks_secret", "masked_env", "masked_url", "resolve_secret", "split_source"),
        "_status": (
            "AppState",
            "AppStatus",
            "AppStatusError",
            "ReplicaAttempt",
            "ReplicaState",
            "ReplicaStatus",
            "RoleStatus",
            "exit_text",
            "is_started",
            "is_terminal",
        ),
        "_text": ("parse_bool",),
        "_workspace": ("Workspace",),
    },
)
