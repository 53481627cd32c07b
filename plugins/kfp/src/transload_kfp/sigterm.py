"""A SIGTERM that comes while the launcher is still being imported: noted, and answered once there
is a job to cancel.

Imports nothing but the standard library, so that the time before it counts is short. It matters
where the program is the first process of a container, which ignores a signal that it has no handler
for: the job would go on.
"""

from __future__ import annotations

import signal
from typing import Final

noted: Final[list[int]] = []
"""SIGTERM, once for each time that it came since `note_from_now_on`."""


def note_from_now_on() -> None:
    """Note a SIGTERM instead of ending. For the main thread."""
    signal.signal(signal.SIGTERM, lambda number, frame: noted.append(number))
