"""Call plugins about jobs without holding up the thread that follows them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_MOST_THREADS: Final = 4


class EventThreads:
    """A few threads that make calls: of one job in their order, of several jobs side by side.

    A plugin that is slow holds up the news of its own job, and those of others only where it is
    slow for as many jobs as there are threads. A thread without work ends at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, deque[Callable[[], object]]] = {}
        self._ready: deque[str] = deque()
        self._threads = 0

    def is_busy(self, app_id: str) -> bool:
        """Tell whether calls of a job are still to be made."""
        return app_id in self._calls

    def post(self, app_id: str, call: Callable[[], object]) -> None:
        """Have a call made after all earlier ones of that job."""
        with self._lock:
            before = self._calls.get(app_id)
            if before is not None:
                before.append(call)
                return
            self._calls[app_id] = deque([call])
            self._ready.append(app_id)
            if self._threads == _MOST_THREADS:
                return
            self._threads += 1
        threading.Thread(target=self._run, daemon=True, name="transload-events").start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._ready:
                    self._threads -= 1
                    return
                app_id = self._ready.popleft()
                call = self._calls[app_id][0]
            try:
                call()
            except Exception:
                logging.getLogger("transload.schedulers").exception("news of job %s", app_id)
            with self._lock:
                calls = self._calls[app_id]
                calls.popleft()
                if calls:
                    self._ready.append(app_id)
                else:
                    del self._calls[app_id]
