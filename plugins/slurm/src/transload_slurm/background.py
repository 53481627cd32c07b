"""Work in a thread of its own, for those who cannot wait for a slow Slurm."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

_T = TypeVar("_T")

THREAD: Final = "transload-slurm-question"
"""Name of such a thread."""


def in_background(work: Callable[[], _T]) -> Future[_T]:
    """Do something in a thread that keeps no process from ending; return what tells of its result."""
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as exc:  # whoever reads the result gets it
            answer.set_exception(exc)

    threading.Thread(target=run, daemon=True, name=THREAD).start()
    return answer
