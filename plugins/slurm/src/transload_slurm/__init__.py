"""Run transload jobs on a Slurm cluster, with the scheduler ``slurm``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transload_slurm.scheduler import SlurmScheduler, create_slurm
    from transload_slurm.states import STATES

__all__ = ["STATES", "SlurmScheduler", "__version__", "create_slurm"]

__version__: Final = "0.1.0"

_LAZY: Final = {"SlurmScheduler": "scheduler", "create_slurm": "scheduler", "STATES": "states"}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for."""
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"transload_slurm.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
