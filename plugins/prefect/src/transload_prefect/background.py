"""Threads of each process for work that must not delay a task.

They send, ask, and look for reasons to stop. They are three, so that a server that does not answer
blocks only one. A job whose end was asked for must end then, too.
"""

from __future__ import annotations

import atexit
import contextvars
import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, get_args

Errand = Literal["watch", "ask", "send"]
"""The uses of the threads, in the order in which they end. Each may hand work to those after it."""

_log = logging.getLogger("transload_prefect")


class Background:
    """A thread that does its jobs one after the other, each when it is due.

    It does all of them when the process ends.
    """

    def __init__(self, name: str) -> None:
        self.ending = False
        self._name = name
        self._lock = threading.Condition()
        self._jobs: list[tuple[float, int, contextvars.Context, Callable[[], object]]] = []
        self._count = itertools.count()
        self._thread: threading.Thread | None = None

    def post(self, job: Callable[[], object], after: float = 0.0) -> None:
        """Do a job in ``after`` seconds, in the caller's context. What it raises is logged."""
        with self._lock:
            due = time.monotonic() + after
            heapq.heappush(self._jobs, (due, next(self._count), contextvars.copy_context(), job))
            if self._thread is None and not self.ending:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def stop(self) -> None:
        """Have all jobs done now, and end the thread."""
        with self._lock:
            self.ending = True
            self._lock.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(15.0)

    def _run(self) -> None:
        while True:
            with self._lock:
                while (pause := self._pause()) != 0:
                    if self.ending:
                        return
                    self._lock.wait(pause)
                _, _, context, job = heapq.heappop(self._jobs)
            try:
                context.run(job)
            except Exception as exc:
                _log.warning("Prefect's API did not take this: %s: %s", type(exc).__name__, exc)

    def _pause(self) -> float | None:
        """Return the seconds until a job is due, or None if there is no job."""
        if not self._jobs:
            return None
        return 0 if self.ending else max(0, self._jobs[0][0] - time.monotonic())


_all: dict[Errand, Background] = {}
_pid = 0
_making = threading.Lock()


def background(errand: Errand = "send") -> Background:
    """Return the one of this process for an errand. The errand ``watch`` never waits for others."""
    global _all, _pid
    with _making:
        if _pid != os.getpid():
            _all, _pid = (
                {each: Background(f"transload-prefect-{each}") for each in get_args(Errand)},
                os.getpid(),
            )
            with suppress(RuntimeError):  # the interpreter is ending
                # before Prefect's own senders end. Later no thread can be started.
                getattr(threading, "_register_atexit", atexit.register)(_stop)
        return _all[errand]


def _stop() -> None:
    if _pid == os.getpid():
        for each in get_args(Errand):
            _all[each].stop()
