"""Which apps may have changed, from the engine's stream of events: one thread and one connection per watch."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Collection
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload_docker import names
from transload_docker.engine import Engine, EngineError

_EVENTS: Final = ("create", "start", "die", "destroy", "pause", "unpause")
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_END_S: Final = 5.0


class EngineWatch:
    """Tells which apps may have changed.

    While the engine cannot be reached all watched apps count as changed once, and once more when it is back.

    Args:
        engine: the engine.
        everything: report every app of the engine, watched or not (for a keeper).
    """

    def __init__(self, engine: Engine, everything: bool = False) -> None:
        self._engine = engine
        self._everything = everything
        self._ids: dict[str, str] = {}  # base name → app id: volumes tell the former only
        self._changed: set[str] = set()
        self._woken = self._closed = False
        self._condition = threading.Condition()
        self._pipe: tuple[int, int] | None = None
        self._stream: Any = None
        with contextlib.suppress(SchedulerUnavailable):
            self._stream = self._open()
        self._thread = threading.Thread(target=self._run, name="transload-docker-watch", daemon=True)
        self._thread.start()

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids; those just added count as changed."""
        with self._condition:
            known = set(self._ids.values())
            self._ids = {names.base_name(app_id): app_id for app_id in app_ids}
            self._changed |= set(app_ids) - known
            if not self._everything:
                self._changed &= set(app_ids)
            if self._changed:
                self._notify()

    def wait(self, timeout: float | None) -> set[str]:
        """Return ids that may have changed; block up to ``timeout`` seconds (None: no limit)."""
        with self._condition:
            self._condition.wait_for(lambda: self._changed or self._woken or self._closed, timeout)
            return self._take()

    def drain(self) -> set[str]:
        """Return ids that may have changed, without waiting."""
        with self._condition:
            return self._take()

    def fileno(self) -> int:
        """Return a descriptor that is readable while there is something to `drain`."""
        with self._condition:
            if self._pipe is None:
                self._pipe = os.pipe()
                for descriptor in self._pipe:
                    os.set_blocking(descriptor, False)
                if self._changed or self._woken:
                    self._notify()
            return self._pipe[0]

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""
        with self._condition:
            self._woken = True
            self._notify()

    def close(self) -> None:
        """End the thread and close the connection. May be called more than once."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            stream, self._stream = self._stream, None
            self._notify()
        _close(stream)
        self._thread.join(_END_S)
        with self._condition:
            for descriptor in self._pipe or ():
                os.close(descriptor)
            self._pipe = None

    # -- inside

    def _take(self) -> set[str]:
        changed, self._changed, self._woken = self._changed, set(), False
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._pipe[0], 4096):
                    pass
        return changed

    def _notify(self) -> None:
        self._condition.notify_all()
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], b"x")

    def _open(self) -> Any:
        filters = {"type": ["container", "volume"], "event": list(_EVENTS)}
        try:
            return self._engine.call(lambda api: api.events(filters=filters, decode=True), again=True)
        except EngineError as exc:
            raise SchedulerUnavailable(f"docker engine {self._engine.url}: {exc}") from exc

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._closed:
            stream = self._stream or self._reopen()
            if stream is None:
                with self._condition:
                    self._condition.wait_for(lambda: self._closed, pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                continue
            pause = _FIRST_PAUSE_S
            try:
                for event in stream:
                    self._on_event(event)
            except Exception:  # noqa: S110 - however the stream breaks, it is opened again
                pass
            with self._condition:
                self._stream = None
            _close(stream)
            self._all_changed()

    def _reopen(self) -> Any:
        try:
            stream = self._open()
        except SchedulerUnavailable:
            return None
        with self._condition:
            if not self._closed:
                self._stream = stream
                self._changed |= set(self._ids.values())
                self._notify()
                return stream
        _close(stream)
        return None

    def _all_changed(self) -> None:
        with self._condition:
            if not self._closed:
                self._changed |= set(self._ids.values())
                self._notify()

    def _on_event(self, event: dict[str, Any]) -> None:
        actor = event.get("Actor") or {}
        with self._condition:
            if event.get("Type") == "volume":
                app_id = self._ids.get(names.app_base_of_volume(actor.get("ID", "")) or "")
            else:
                app_id = (actor.get("Attributes") or {}).get(names.LABEL_APP)
                self._engine.doubt(actor.get("ID", ""))
                if not self._everything and app_id is not None and names.base_name(app_id) not in self._ids:
                    app_id = None
            if app_id is not None and app_id not in self._changed:
                self._changed.add(app_id)
                self._notify()


def _close(stream: Any) -> None:
    if stream is not None:
        with contextlib.suppress(Exception):
            stream.close()


def wait_until_ended(watch: EngineWatch, is_over: Any, deadline: float) -> bool:
    """Wait for changes until ``is_over()`` is true; False if that did not happen before ``deadline`` (monotonic)."""
    while not is_over():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        watch.wait(min(left, 1.0))
    return True
