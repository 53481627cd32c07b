"""The logs of one execution: who hands them on, how far it came, and where that is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transload.following.follower import read_logs
from transload.following.lines import last_words
from transload.pipelines._logs import LogForwarder, LogSink
from transload.specs import parse_app_handle
from transload.specs._json import SCHEMA

if TYPE_CHECKING:
    from transload.following.subscription import Subscription
    from transload.pipelines._attach import AttachStore
    from transload.pipelines._options import ExecutionOptions
    from transload.runner import Runner
    from transload.schedulers.api import SchedulerBase


class LogPump:
    """Hands on the lines of an app, and keeps how far it came.

    Args:
        runner: returns the runner that knows the app's cluster.
        options: the host's settings.
        sink: gets the lines; None: nothing is forwarded.
        store: where to keep how far it came, for a restart; None: nowhere.
    """

    def __init__(
        self, runner: Callable[[], Runner], options: ExecutionOptions, sink: LogSink | None, store: AttachStore | None
    ) -> None:
        self._runner = runner
        self._options = options
        self._sink = sink
        self._store = store
        self._handle: str | None = None
        self._forwarder: LogForwarder | None = None
        self._given: dict[str, Any] | None = None
        self._subscription: Subscription | None = None
        self._moved = False
        self._failed: Exception | None = None
        self.due = False

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

    def follow(self, wake: Callable[[], object], *, here: bool) -> None:
        """Hand on lines as they come, until `finish`.

        Args:
            wake: called when `due` has become true.
            here: lines are handed on by `pump`, in the caller's thread; else in the thread of the scheduler's logs, and
                `due` only tells of an error.
        """

        def read() -> bool:
            if here:
                if not self.due:
                    self.due = True
                    wake()
                return self._moved
            try:
                return self.pump() > 0
            except Exception as exc:
                self.due, self._failed = True, exc
                wake()
                raise

        if self._sink is not None and self._handle is not None:
            scheduler, app_id = self._place()
            longest = self._options.logging_interval
            self._subscription = read_logs(scheduler, app_id, read, longest=longest)

    def stop(self) -> None:
        """End what `follow` began."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close(-1)

    def pump(self) -> int:
        """Hand on what is there; return how many lines moved. An error of the sink is the caller's."""
        self.due = False
        if self._failed is not None:
            raise self._failed
        forwarder = self._make()
        moved = forwarder.pump() if forwarder is not None else 0
        self._moved = moved > 0
        if moved:
            self._save()
        return moved

    def finish(self) -> None:
        """Hand on all that is left of an app that has ended."""
        self.stop()
        if self._failed is not None:
            raise self._failed
        forwarder = self._make()
        if forwarder is not None and not forwarder.complete:
            forwarder.drain()
            self._save()

    def tail(self, role: str, replica: int) -> list[str]:
        """Return the last lines of a replica."""
        lines = self._forwarder.tail(role, replica) if self._forwarder is not None else []
        if not lines and self._handle is not None:
            lines = list(last_words(*self._place(), role, replica, self._options.tail_lines))
        return lines

    def _make(self) -> LogForwarder | None:
        if self._forwarder is None and self._sink is not None and self._handle is not None:
            self._forwarder = LogForwarder(
                *self._place(),
                self._sink,
                cursor=self._given,
                max_log_rate=self._options.max_log_rate,
                keep=max(1, self._options.tail_lines),
                pointer=f"all of it: transload log {self._handle}",
            )
        return self._forwarder

    def _place(self) -> tuple[SchedulerBase, str]:
        parsed = parse_app_handle(self._handle or "")
        return self._runner().scheduler(parsed.scheduler_backend), parsed.app_id

    def _save(self) -> None:
        if self._store is not None:
            self._store.put({"schema": SCHEMA, "handle": self._handle, "cursor": self.cursor})
