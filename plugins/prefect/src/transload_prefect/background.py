"""Two threads for each process that do what must not hold up a task: sending, and looking for reasons to stop.

They are two: a server that does not answer holds up the one, and an app whose end was asked for must end then, too.
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

TICK: Final = 0.25
"""Seconds between two looks at what is watched."""

IDLE: Final = 5.0
"""Seconds without work after which the thread ends."""

_log = logging.getLogger("transload_prefect")


class Background:
    """Runs jobs one after the other, and calls watchers again and again until they say that they are done.

    Args:
        name: of the thread.
        first: what hands jobs to this one; it is stopped before this one is.
    """

    def __init__(self, name: str = "transload-prefect", first: Background | None = None) -> None:
        self._name = name
        self._first = first
        self._lock = threading.Condition()
        self._jobs: deque[tuple[contextvars.Context, Callable[[], object]]] = deque()
        self._watchers: list[tuple[contextvars.Context, Callable[[bool], bool]]] = []
        self._thread: threading.Thread | None = None
        self._busy = False
        self._ending = False

    def post(self, job: Callable[[], object], *, ahead: bool = False) -> None:
        """Run a job soon, in the caller's context, ``ahead`` of others if need be; what it raises is logged."""
        with self._lock:
            (self._jobs.appendleft if ahead else self._jobs.append)((contextvars.copy_context(), job))
            self._ensure()

    def watch(self, look: Callable[[bool], bool]) -> None:
        """Call ``look`` every `TICK` seconds, in the caller's context, as long as it returns True.

        Its argument is True for the last call, when the process ends.
        """
        with self._lock:
            self._watchers.append((contextvars.copy_context(), look))
            self._ensure()

    def drain(self, seconds: float = 10.0) -> None:
        """Wait until all jobs are done."""
        end = time.monotonic() + seconds
        with self._lock:
            self._lock.notify_all()
            while (self._jobs or self._busy) and self._thread is not None and time.monotonic() < end:
                self._lock.wait(0.05)

    def stop(self) -> None:
        """Give each watcher a last look, do all jobs, and end the thread."""
        if self._first is not None:
            self._first.stop()
        with self._lock:
            self._ending = True
            self._lock.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(15.0)

    def _ensure(self) -> None:
        if self._thread is None and not self._ending:
            _before_exit(self.stop)
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._lock.notify_all()

    def _run(self) -> None:
        idle_since = time.monotonic()
        looked = 0.0
        while True:
            with self._lock:
                if not self._jobs and not self._ending:
                    self._lock.wait(max(0.0, looked + TICK - time.monotonic()) if self._watchers else IDLE)
                if self._jobs or self._watchers:  # while the process ends as well: each has its last look
                    idle_since = time.monotonic()
                elif self._ending or time.monotonic() - idle_since >= IDLE:
                    self._thread = None
                    return
                job = self._jobs.popleft() if self._jobs else None
                self._busy = job is not None
                last = self._ending
            if job is not None:
                _call(*job)
            if last or time.monotonic() - looked >= TICK:
                looked = time.monotonic()
                self._look(last)
            with self._lock:
                self._busy = False
                self._lock.notify_all()

    def _look(self, last: bool) -> None:
        with self._lock:
            watchers = list(self._watchers)
        done = [entry for entry in watchers if _call(*entry, last) is not True or last]
        # by identity: equal contexts make a watcher that was added meanwhile equal to the one that it follows
        ended = {id(entry) for entry in done}
        with self._lock:
            self._watchers = [entry for entry in self._watchers if id(entry) not in ended]


def _call(context: contextvars.Context, job: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return context.run(job, *arguments)
    except Exception as exc:
        _log.warning("Prefect's API could not be told: %s: %s", type(exc).__name__, exc)
        return True


_both: tuple[Background, Background] | None = None
_pid = 0
_making = threading.Lock()


def background() -> Background:
    """Return the one of this process that talks to Prefect's API."""
    return _of_this_process()[0]


def lookout() -> Background:
    """Return the one of this process that never waits for anybody."""
    return _of_this_process()[1]


def _of_this_process() -> tuple[Background, Background]:
    global _both, _pid
    with _making:
        if _both is None or _pid != os.getpid():
            looks = Background("transload-prefect-watch")
            _both, _pid = (Background("transload-prefect", looks), looks), os.getpid()
        return _both


def _before_exit(stop: Callable[[], None]) -> None:
    """Have ``stop`` called before Prefect's own senders end: later is too late, no thread can be started then."""
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(stop)
    except RuntimeError:
        _log.debug("the interpreter is ending")
