"""Two more components for each cell: a job that is to be cancelled, and one that is to be tried again."""

from __future__ import annotations

from transload.specs import AppDef, Role


def endless(lr: float = 0.0) -> AppDef:
    """Sleep for ten minutes.

    Args:
        lr: not used
    """
    return AppDef("endless", [Role("main", image="", entrypoint="sh", args=["-c", f"exec sleep 600 # {lr}"])])


def failing() -> AppDef:
    """Fail."""
    return AppDef("failing", [Role("main", image="", entrypoint="sh", args=["-c", "exit 3"])])
