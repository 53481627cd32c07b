"""What jobs need installed: `header` reads a script's inline metadata, `packages` leads uv to it."""

from __future__ import annotations

from transload.plugins.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from transload.schedulers.environments.header import Header, read_header
    from transload.schedulers.environments.packages import (
        Packages,
        packages_of,
        read_environment,
        run_by_uv,
        travelling_uv,
        uv_here,
        uv_version,
        write_requirements,
    )

__all__ = [
    "Header",
    "Packages",
    "packages_of",
    "read_environment",
    "read_header",
    "run_by_uv",
    "travelling_uv",
    "uv_here",
    "uv_version",
    "write_requirements",
]

# a job without packages of its own pays for none of this
__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "header": "Header read_header",
        "packages": (
            "Packages packages_of read_environment run_by_uv travelling_uv uv_here "
            "uv_version write_requirements"
        ),
    },
)
