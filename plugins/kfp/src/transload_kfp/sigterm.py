"""Note a SIGTERM that comes while the launcher is still being imported.

It is answered once there is a job to cancel. This imports nothing but the standard library, so that
the time before it counts is short. It matters where the program is the first process of a
container. Such a process ignores a signal that it has no handler for, and the job would go on.
"""

from __future__ import annotations

import signal
from typing import Final

noted: Final[list[int]] = []
"""SIGTERM, once for each time that it came since `note_from_now_on`."""


def note_from_now_on() -> None:
    """Note a SIGTERM instead of ending. For the main thread."""
    signal.signal(signal.SIGTERM, lambda number, frame: noted.append(number))
