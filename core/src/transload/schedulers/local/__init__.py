"""The local scheduler: apps as processes of this machine that outlive the program which submitted them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transload.schedulers.local.scheduler import LocalScheduler, create_local, create_local_cwd

__all__ = ["LocalScheduler", "create_local", "create_local_cwd"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from transload.schedulers.local import scheduler

        return getattr(scheduler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
