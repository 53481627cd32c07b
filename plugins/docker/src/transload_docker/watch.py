"""Tell which jobs may have changed, by the engine's events, with one connection for each watch."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload.schedulers import Change, FedWatch, Feeder
from transload_docker import names
from transload_docker.engine import Engine, EngineError

_BESIDE_S: Final = 1.0
_EVENTS: Final = ("create", "start", "die", "destroy", "pause", "unpause")


class EngineWatch(FedWatch):
    """Tells which jobs may have changed.

    While the engine cannot be reached all watched jobs count as changed once, and once more when it
    is back.

    Args:
        engine: the engine.
        everything: report every job of the engine, watched or not (for a supervisor).
        beside: is given the watched ids each second while somebody waits, and returns those that
            have changed in a way that the engine does not tell of.
    """

    def __init__(
        self,
        engine: Engine,
        everything: bool = False,
        beside: Callable[[Collection[str]], Collection[str]] | None = None,
    ) -> None:
        super().__init__(
            names.base_name, everything=everything
        )  # volumes tell no more of a job's id
        self._engine = engine
        self._beside = beside
        engine.measure()
        self._first: Any = None
        with contextlib.suppress(
            SchedulerUnavailable
        ):  # opened before anybody looks: nothing falls in between
            self._first = self._open()
        self._feeder = Feeder("transload-docker-watch", self._read)

    def wait(self, timeout: float | None) -> set[Change]:
        """Return what may have changed.

        Args:
            timeout: seconds to wait for a change, or None for no limit.
        """
        if self._beside is None:
            return super().wait(timeout)
        end = math.inf
        if timeout is not None:
            end = time.monotonic() + timeout
        while True:
            began = time.monotonic()
            pause = min(_BESIDE_S, end - began)
            changed = super().wait(max(0.0, pause))
            is_woken = time.monotonic() - began < pause
            if changed or is_woken or pause < _BESIDE_S:
                return changed
            with self._condition:
                watched = list(self._ids.values())
            self.feed_ids(self._beside(watched))

    def end(self) -> None:
        """End the thread and close the connection."""
        self._feeder.stop()
        stream = self._first
        self._first = None
        _shut(stream)  # if the thread never came to read it

    def _open(self) -> Any:
        filters = {"type": ["container", "volume"], "event": list(_EVENTS)}
        try:
            return self._engine.call(
                lambda api: api.events(filters=filters, decode=True), again=True
            )
        except EngineError as exc:
            raise SchedulerUnavailable(f"docker engine {self._engine.url}: {exc}") from exc

    def _read(self, feeder: Feeder) -> None:
        stream = self._first
        self._first = None
        again = stream is None
        if again:
            stream = self._open()
        try:
            if feeder.opened(stream.close):
                if again:
                    self.feed_all()
                for event in stream:
                    self._on_event(event)
        finally:
            _shut(stream)
            self.feed_all()

    def _on_event(self, event: dict[str, Any]) -> None:
        actor = event.get("Actor") or {}
        if event.get("Type") == "volume":
            base = names.app_base_of_volume(actor.get("ID", ""))
            if base:
                self.feed(base)
            return
        self._engine.doubt(actor.get("ID", ""))
        app_id = (actor.get("Attributes") or {}).get(names.LABEL_APP)
        if app_id is not None:
            self.feed_ids([app_id])


def _shut(stream: Any) -> None:
    """Close a stream of events and its response, which the client does not close."""
    if stream is not None:
        with contextlib.suppress(Exception):
            stream.close()
        with contextlib.suppress(Exception):
            stream._response.close()


def wait_until_ended(watch: EngineWatch, is_over: Any, deadline: float) -> bool:
    """Wait until ``is_over()`` is true, and tell whether it is by ``deadline``.

    Args:
        watch: what wakes the wait.
        is_over: tells whether the end has come.
        deadline: when to give up, by the monotonic clock.
    """
    while not is_over():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        watch.wait(min(left, 1.0))
    return True
