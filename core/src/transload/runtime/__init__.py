"""The part that an *application* may import. It needs the standard library and fsspec only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.runtime.advance import progress as progress
    from transload.runtime.reporting import report as report

__all__ = ["checkpoint", "progress", "report"]

_MODULES = {"progress": "advance", "report": "reporting"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for.

    So a program that runs beside a job loads only what it uses.
    """
    from importlib import import_module

    if name == "checkpoint":
        return import_module("transload.runtime.checkpoint")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"transload.runtime.{_MODULES[name]}"), name)
