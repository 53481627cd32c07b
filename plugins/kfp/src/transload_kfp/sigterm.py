"""A SIGTERM that comes while the launcher is still being imported: noted, and answered once there is an app to cancel.

Imports nothing but the standard library, so that the time before it counts is short. It matters where the program is
the first process of a container, which ignores a signal that it has no handler for: the app would go on.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Final

_noted: Final[list[int]] = []


def note_from_now_on() -> None:
    """Note a SIGTERM instead of ending. For the main thread."""
    signal.signal(signal.SIGTERM, _note)


def was_noted() -> bool:
    """Tell whether a SIGTERM came since `note_from_now_on`."""
    return bool(_noted)


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(number)
