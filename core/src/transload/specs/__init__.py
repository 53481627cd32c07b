"""The spec of a job: `AppDef` and all that it is made of. Pure data; nothing here does I/O.

A name is imported when it is first asked for: whoever only needs one part does not pay for the others.
"""

from __future__ import annotations

from transload._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.components import materialize_appdef as materialize_appdef
    from transload.errors import SpecError as SpecError
    from transload.errors import UnsupportedFeature as UnsupportedFeature
    from transload.specs._app import *
    from transload.specs._check import nearest as nearest
    from transload.specs._dryrun import *
    from transload.specs._handle import *
    from transload.specs._macros import *
    from transload.specs._named_resources import *
    from transload.specs._resource import *
    from transload.specs._runopts import *
    from transload.specs._secrets import *
    from transload.specs._sizes import *
    from transload.specs._state import *
    from transload.specs._status import *
    from transload.specs._text import parse_bool as parse_bool

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        ".errors": "SpecError UnsupportedFeature",
        ".components": "materialize_appdef",  # which stand on specs; TorchX has this name here
        "_app": "ALL AppDef MISSING NONE RetryPolicy Role Workspace",
        "_check": "nearest",
        "_dryrun": "AppDryRunInfo",
        "_handle": "AppHandle MalformedAppHandleException ParsedAppHandle UnknownAppException "
        "make_app_handle parse_app_handle",
        "_macros": "macros",
        "_named_resources": "get_named_resources named_resources resource",
        "_resource": "BindMount DeviceMount JobMount Mount MountType NULL_RESOURCE Resource Resources "
        "VolumeMount parse_mounts",
        "_runopts": "CfgVal InvalidRunConfigException UnknownSchedulerException get_type_name runopt runopts",
        "_secrets": "MASK looks_secret masked_args masked_env masked_url masked_values resolve_secret split_source",
        "_sizes": "GiB",
        "_state": "AppState ReplicaState is_started is_terminal",
        "_status": "AppStatus AppStatusError ReplicaAttempt ReplicaStatus RoleStatus Usage exit_text",
        "_text": "parse_bool",
    },
)
