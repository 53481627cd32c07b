"""The logs of one execution: when to look, how far it came, and where that is kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from transload.following.lines import last_words
from transload.pipelines._logs import LogForwarder, LogSink
from transload.specs import parse_app_handle

if TYPE_CHECKING:
    from transload.pipelines._options import ExecutionOptions
    from transload.pipelines._stores import Store
    from transload.runner import Runner

SCHEMA: Final = 1
FIRST_PAUSE: Final = 0.05


class LogPump:
    """Paces a `LogForwarder`: often while there is news, up to ``logging_interval`` apart while there is none.

    Args:
        runner: of the app.
        options: the host's settings.
        sink: gets the lines; None: nothing is forwarded.
        store: where to keep how far it came, for a restart; None: nowhere.
    """

    def __init__(self, runner: Runner, options: ExecutionOptions, sink: LogSink | None, store: Store | None) -> None:
        self._runner = runner
        self._options = options
        self._sink = sink
        self._store = store
        self._handle: str | None = None
        self._forwarder: LogForwarder | None = None
        self._given: dict[str, Any] | None = None
        self._pause = FIRST_PAUSE
        self._next = 0.0

    @property
    def cursor(self) -> dict[str, Any] | None:
        """How far it came, as JSON values."""
        return self._forwarder.cursor if self._forwarder is not None else self._given

    def resume(self, handle: str | None, cursor: dict[str, Any] | None = None) -> None:
        """Name the app, and where to go on; without a cursor, what the store has kept for this app."""
        if cursor is None and self._store is not None:
            kept = self._store.get() or {}
            cursor = kept.get("cursor") if kept.get("handle") == handle else None
        self._handle, self._given, self._forwarder = handle, cursor, None

    def left(self) -> float:
        """Return the seconds until the next look is due; infinity if none will be."""
        return float("inf") if self._sink is None else max(0.0, self._next - time.monotonic())

    def due(self, changed: bool) -> bool:
        """Tell whether to look now; a change of state is always worth a look."""
        return self._sink is not None and (changed or time.monotonic() >= self._next)

    def pump(self) -> int:
        """Hand on what is there; return how many lines moved."""
        forwarder = self._make()
        moved = forwarder.pump() if forwarder is not None else 0
        self._pause = FIRST_PAUSE if moved else min(self._pause * 1.5, self._options.logging_interval)
        self._next = time.monotonic() + self._pause
        if moved:
            self._save()
        return moved

    def finish(self) -> None:
        """Hand on all that is left of an app that has ended."""
        forwarder = self._make()
        if forwarder is not None and not forwarder.complete:
            forwarder.drain()
            self._save()

    def tail(self, role: str, replica: int) -> list[str]:
        """Return the last lines of a replica."""
        lines = self._forwarder.tail(role, replica) if self._forwarder is not None else []
        if not lines and self._handle is not None:
            parsed = parse_app_handle(self._handle)
            scheduler = self._runner.scheduler(parsed.scheduler_backend)
            lines = list(last_words(scheduler, parsed.app_id, role, replica, self._options.tail_lines))
        return lines

    def _make(self) -> LogForwarder | None:
        if self._forwarder is None and self._sink is not None and self._handle is not None:
            parsed = parse_app_handle(self._handle)
            self._forwarder = LogForwarder(
                self._runner.scheduler(parsed.scheduler_backend),
                parsed.app_id,
                self._sink,
                cursor=self._given,
                max_log_rate=self._options.max_log_rate,
                keep=max(1, self._options.tail_lines),
                pointer=f"all of it: transload log {self._handle}",
            )
        return self._forwarder

    def _save(self) -> None:
        if self._store is not None:
            self._store.put({"schema": SCHEMA, "handle": self._handle, "cursor": self.cursor})
