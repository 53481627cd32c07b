"""Tell which jobs may have changed, by the engine's events, with one connection for each watch."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload.schedulers import Feeder
from transload_docker import names
from transload_docker.engine import Engine, EngineError

_BESIDE_S: Final = 1.0
_EVENTS: Final = ("create", "start", "die", "destroy", "pause", "unpause")


class EngineWatch:
    """Reports which jobs may have changed: those that are watched, and others of the engine.

    While the engine cannot be reached all watched jobs count as changed once, and once more when it
    is back.

    Args:
        engine: the engine.
        changed: takes the ids of jobs that may have changed.
        beside: is given the watched ids each second, and returns those that have changed in a way
            that the engine does not tell of.
    """

    def __init__(
        self,
        engine: Engine,
        changed: Callable[[Collection[str]], object],
        beside: Callable[[Collection[str]], Collection[str]] | None = None,
    ) -> None:
        self._engine = engine
        self._changed = changed
        self._ids: dict[str, str] = {}  # base name → job id, since volumes tell no more of it
        self._closed = threading.Event()
        engine.measure()
        self._first: Any = None
        with contextlib.suppress(
            SchedulerUnavailable
        ):  # opened before anybody looks: nothing falls in between
            self._first = self._open()
        self._feeder = Feeder("transload-docker-watch", self._read)
        self._looking: threading.Thread | None = None
        if beside is not None:
            self._looking = threading.Thread(
                target=self._look, args=(beside,), daemon=True, name="transload-docker-signs"
            )
            self._looking.start()

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids."""
        self._ids = {names.base_name(app_id): app_id for app_id in app_ids}

    def close(self) -> None:
        """End the threads and close the connection."""
        self._closed.set()
        self._feeder.stop()
        if self._looking is not None:
            self._looking.join()
        stream = self._first
        self._first = None
        _shut(stream)  # if the thread never came to read it

    def _look(self, beside: Callable[[Collection[str]], Collection[str]]) -> None:
        while not self._closed.wait(_BESIDE_S):
            with contextlib.suppress(Exception):  # asked again a second later
                found = beside(list(self._ids.values()))
                if found:
                    self._changed(found)

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
                    self._changed(list(self._ids.values()))
                for event in stream:
                    self._on_event(event)
        finally:
            _shut(stream)
            self._changed(list(self._ids.values()))

    def _on_event(self, event: dict[str, Any]) -> None:
        actor = event.get("Actor") or {}
        if event.get("Type") == "volume":
            app_id = self._ids.get(names.app_base_of_volume(actor.get("ID", "")) or "")
            if app_id is not None:
                self._changed([app_id])
            return
        self._engine.doubt(actor.get("ID", ""))
        app_id = (actor.get("Attributes") or {}).get(names.LABEL_APP)
        if app_id is not None:
            self._changed([app_id])


def _shut(stream: Any) -> None:
    """Close a stream of events and its response, which the client does not close."""
    if stream is not None:
        with contextlib.suppress(Exception):
            stream.close()
        with contextlib.suppress(Exception):
            stream._response.close()
