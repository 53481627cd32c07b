"""Tell which jobs may have changed: those of this folder by their files, others by the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import Any

from transload.schedulers import Feeder
from transload.schedulers.folder import store
from transload.schedulers.folder.watch import AppWatch
from transload_docker import names
from transload_docker.engine import Engine


class DockerWatch:
    """Reports which of any number of jobs may have changed.

    The engine is heard of only as long as a job of another machine is among them.

    Args:
        engine: the engine.
        home: folder of the scheduler.
        changed: takes the ids of jobs that may have changed.
        doubt: takes the ids of containers of other machines' jobs that have ended.

    Raises:
        OSError: if there is no free descriptor.
    """

    def __init__(
        self,
        engine: Engine,
        home: str,
        changed: Callable[[Collection[str]], object],
        doubt: Callable[[str], object],
    ) -> None:
        self._engine = engine
        self._home = home
        self._changed = changed
        self._doubt = doubt
        self._here = AppWatch(home, changed)
        self._elsewhere: set[str] = set()
        self._feeder: Feeder | None = None

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids."""
        here = {each for each in app_ids if store.read_record(self._home, each) is not None}
        self._here.update(here)
        self._elsewhere = set(app_ids) - here
        if self._elsewhere and self._feeder is None:
            self._feeder = Feeder("transload-docker-watch", self._read)
        elif not self._elsewhere:
            self._stop()

    def close(self) -> None:
        """End the threads and close the connection."""
        self._here.close()
        self._stop()

    def _stop(self) -> None:
        if self._feeder is not None:
            self._feeder.stop()
            self._feeder = None

    def _read(self, feeder: Feeder) -> None:
        stream = self._engine.events()
        try:
            if feeder.opened(stream.close):
                self._changed(list(self._elsewhere))
                for event in stream:
                    self._on_event(event)
        finally:
            _shut(stream)
            self._changed(list(self._elsewhere))

    def _on_event(self, event: dict[str, Any]) -> None:
        actor = event.get("Actor") or {}
        app_id = (actor.get("Attributes") or {}).get(names.LABEL_APP)
        if app_id in self._elsewhere:
            if event.get("Action") == "die":
                self._doubt(actor.get("ID", ""))
            self._changed([app_id])


def _shut(stream: Any) -> None:
    """Close a stream of events and its response, which the client does not close."""
    with contextlib.suppress(Exception):
        stream.close()
    with contextlib.suppress(Exception):
        stream._response.close()
