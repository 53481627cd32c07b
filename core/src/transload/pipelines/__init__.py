"""What every host adapter shares: one policy for states, identity, attaching, waiting, logs and results.

An adapter translates; it decides nothing that is decided here. ``docs/writing-an-adapter.md`` walks through one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transload.pipelines._adapter import (
        Adapter,
        AdapterCapabilities,
        AdapterInfo,
        adapters,
        describe_adapters,
        get_adapter,
    )
    from transload.pipelines._attach import Action, AttachPolicy, AttachRecord
    from transload.pipelines._attacher import Attached
    from transload.pipelines._deadlines import Deadlines
    from transload.pipelines._errors import AppCancelled, AppLost, Detached, Ending
    from transload.pipelines._execution import Execution, dry_run, execution_from_state
    from transload.pipelines._failure import LogTail, failed_replica, failure_message
    from transload.pipelines._host_runner import host_runner
    from transload.pipelines._identity import Identity, app_id_for, qualified_app_id
    from transload.pipelines._launch import Launch
    from transload.pipelines._logs import LogForwarder, LogRate, LogSink
    from transload.pipelines._options import ExecutionOptions, OnKill
    from transload.pipelines._reach import is_here, may_wait_elsewhere, where
    from transload.pipelines._retry import RetryRule
    from transload.pipelines._states import StateMap
    from transload.pipelines._stores import JsonFileStore, MemoryStore, Store

_HOMES: Final = {
    "_adapter": ("Adapter", "AdapterCapabilities", "AdapterInfo", "adapters", "describe_adapters", "get_adapter"),
    "_attach": ("Action", "AttachPolicy", "AttachRecord"),
    "_deadlines": ("Deadlines",),
    "_errors": ("AppCancelled", "AppLost", "Detached", "Ending"),
    "_attacher": ("Attached",),
    "_execution": ("Execution", "dry_run", "execution_from_state"),
    "_host_runner": ("host_runner",),
    "_failure": ("LogTail", "failed_replica", "failure_message"),
    "_identity": ("Identity", "app_id_for", "qualified_app_id"),
    "_launch": ("Launch",),
    "_logs": ("LogForwarder", "LogRate", "LogSink"),
    "_options": ("ExecutionOptions", "OnKill"),
    "_reach": ("is_here", "may_wait_elsewhere", "where"),
    "_retry": ("RetryRule",),
    "_states": ("StateMap",),
    "_stores": ("JsonFileStore", "MemoryStore", "Store"),
}
_MODULE_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Action",
    "Adapter",
    "AdapterCapabilities",
    "AdapterInfo",
    "AppCancelled",
    "AppLost",
    "AttachPolicy",
    "AttachRecord",
    "Attached",
    "Deadlines",
    "Detached",
    "Ending",
    "Execution",
    "ExecutionOptions",
    "Identity",
    "JsonFileStore",
    "Launch",
    "LogForwarder",
    "LogRate",
    "LogSink",
    "LogTail",
    "MemoryStore",
    "OnKill",
    "RetryRule",
    "StateMap",
    "Store",
    "adapters",
    "app_id_for",
    "describe_adapters",
    "dry_run",
    "execution_from_state",
    "failed_replica",
    "failure_message",
    "get_adapter",
    "host_runner",
    "is_here",
    "may_wait_elsewhere",
    "qualified_app_id",
    "where",
]


def __getattr__(name: str) -> Any:
    # lazy: a host reads its adapter's state table without paying for runner, threads and asyncio
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
