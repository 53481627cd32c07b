"""Names that are here only for those who come from TorchX.

They are found where TorchX has them, in `transload.specs`, `transload.components` and
`transload.tracker`, which import this module when one of the names is asked for.
"""

from __future__ import annotations

from typing import Final

from transload.components.call import materialize_appdef
from transload.components.errors import ComponentInvalid, ComponentNotFound
from transload.errors import AppFailed, AppNotFound
from transload.specs import Resource
from transload.tracker.api import AppRun

__all__ = [
    "ALL",
    "AppStatusError",
    "ComponentNotFoundException",
    "ComponentValidationException",
    "Resources",
    "UnknownAppException",
    "app_run_from_env",
    "materialize_appdef",
]

# -- of torchx.specs

ALL: Final = "all"
"""Stands for every scheduler."""

AppStatusError = AppFailed
"""TorchX's name of `AppFailed`."""

Resources = Resource
"""TorchX's older name of `Resource`."""

UnknownAppException = AppNotFound
"""TorchX's name of `AppNotFound`."""

# -- of torchx.components

ComponentNotFoundException = ComponentNotFound
"""TorchX's name of `ComponentNotFound`."""

ComponentValidationException = ComponentInvalid
"""TorchX's name of `ComponentInvalid`."""

# -- of torchx.tracker


def app_run_from_env() -> AppRun:
    """Return the run that this process is, by ``AppRun.run_from_env()``."""
    return AppRun.run_from_env()
