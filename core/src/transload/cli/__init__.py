"""The command line ``transload``. Its modules, and click, are imported when `main` is called."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload.cli.exit_codes import ExitCode

__all__ = ["ExitCode", "main"]

__getattr__, __dir__, _ = lazy_names(__name__, {"exit_codes": "ExitCode"})


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code (see `ExitCode`).

    Args:
        args: the arguments. None means those of the process.
    """
    if args is None:
        # this process only runs the command, and most of its objects are modules that live to its
        # end. Searching them for garbage would take a fifth of a short command's time
        gc.set_threshold(50_000, 20, 20)
    from transload.cli.application import run_main

    code = run_main(args)
    if args is None:
        gc.freeze()
    return code
