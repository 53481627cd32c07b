"""The command line ``transload``. Nothing of it, click included, is imported before `main` is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transload.cli._exit import ExitCode

__all__ = ["ExitCode", "main"]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (see `ExitCode`).

    Args:
        args: the arguments; None: those of the process.
    """
    from transload.cli._main import run_main

    return run_main(args)


def __getattr__(name: str) -> Any:
    if name == "ExitCode":
        from transload.cli._exit import ExitCode

        return ExitCode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
