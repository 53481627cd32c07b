"""Two more components for each cell: a job that is to be cancelled, and one that is to be tried
again.
"""

from __future__ import annotations

import sys

from transload.specs import AppDef, Role

SLEEP = "import time; time.sleep(600)"
"""An image of the tests need not have a program `sleep`."""


def endless(lr: float = 0.0) -> AppDef:
    """Sleep for ten minutes.

    Args:
        lr: not used
    """
    return AppDef(
        "endless", [Role("main", image="", entrypoint=sys.executable, args=["-c", SLEEP, str(lr)])]
    )


def failing() -> AppDef:
    """Fail."""
    return AppDef("failing", [Role("main", image="", entrypoint="sh", args=["-c", "exit 3"])])
