"""What an *application* may import: nothing here needs more than the standard library and fsspec."""

from __future__ import annotations

from transload.runtime._report import report

__all__ = ["report"]
