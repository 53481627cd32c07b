"""transload: write a job once as an ``AppDef``, run it on every engine."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    raise ImportError("transload runs on Linux and macOS; Windows is not supported (WSL is)")

__version__ = "0.1.0"

IMAGE: str = os.environ.get("TRANSLOAD_IMAGE") or "python:3.11-slim"
"""Image of the built-in components unless one is given: ``TRANSLOAD_IMAGE``, else a public Python image."""

__all__ = ["IMAGE", "__version__"]
