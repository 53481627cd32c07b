"""The runner: submits an app to a scheduler, and answers for it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transload.runner._runner import Runner, get_runner

if TYPE_CHECKING:
    from transload.runner._results import AppResults, NoSuchResult
    from transload.runner.config import Setting, Settings, load_settings

__all__ = ["AppResults", "NoSuchResult", "Runner", "Setting", "Settings", "get_runner", "load_settings"]

_LAZY = {
    "AppResults": "transload.runner._results",
    "NoSuchResult": "transload.runner._results",
    "Setting": "transload.runner.config",
    "Settings": "transload.runner.config",
    "load_settings": "transload.runner.config",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
