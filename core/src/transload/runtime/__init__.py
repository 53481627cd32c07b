"""What an *application* may import: nothing here needs more than the standard library and fsspec."""

from __future__ import annotations

from transload._lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.runtime._report import report as report

__getattr__, __dir__, __all__ = lazy_names(__name__, {"_report": "report"})
