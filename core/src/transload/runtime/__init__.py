"""What an *application* may import: nothing here needs more than the standard library and
fsspec.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.runtime.reporting import report as report

__all__ = ["report"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: whatever runs beside a job pays for no
    other.
    """
    if name != "report":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from transload.runtime.reporting import report

    return report
