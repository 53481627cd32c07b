"""Write a job once as an ``AppDef``, and run it unchanged on every scheduler."""

from __future__ import annotations

import os
import sys

from transload.plugins.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.runner.api import attach, run
    from transload.runner.functions import FunctionJob, map, submit  # noqa: A004
    from transload.runner.job import Job

if sys.platform == "win32":
    raise ImportError(
        "transload needs Linux (macOS should work, but was not tried); on Windows, use WSL"
    )

__version__ = "0.1.0"

IMAGE: str = os.environ.get("TRANSLOAD_IMAGE") or "python:3.11-slim"
"""Image of the built-in components unless one is given.

It is ``TRANSLOAD_IMAGE``, else a public Python image.
"""

__all__ = ["IMAGE", "FunctionJob", "Job", "__version__", "attach", "map", "run", "submit"]

# what submits is loaded when it is first asked for, so that the import is cheap
__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "runner.functions": "FunctionJob map submit",
        "runner.job": "Job",
        "runner.api": "attach run",
    },
)
