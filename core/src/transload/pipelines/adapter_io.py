"""Describe the stores, logs and displays around one job in an orchestrator's process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transload.pipelines.end_requests import Asked, interrupted
from transload.pipelines.logs import LogSink

if TYPE_CHECKING:
    from transload.pipelines.attach import AttachStore
    from transload.runner import Runner
    from transload.specs import AppStatus


def log_line(text: str) -> None:
    """Log a line for people, with the logger ``transload.pipelines``."""
    logging.getLogger("transload.pipelines").info("%s", text)


@dataclass(kw_only=True)
class AdapterIO:
    """The surroundings of one job in a process of an orchestrator.

    Args:
        runner: submits and asks (see `host_runner`).
        store: the orchestrator's store for reattaching. None means that it has none.
        log_store: where to keep how far logs were passed on, so that a restart goes on there. None
            means nowhere.
        sink: gets the log lines of the job. None means that they are not forwarded. Where it says
            that nobody reads them any more (a broken pipe), no more are.
        log: takes one line for people. Where it raises an OSError, since nobody reads it any more,
            the line is left out.
        on_change: gets the handle of the job and each new status, in the thread that waits. None
            means that nobody does.
        show_progress: displays how far the job is in the orchestrator's own way (an artifact, a
            value, a curve). It gets the handle and a status with `progress`. It is called at
            another whole percent, at most once a second, and once with the final status, in the
            process that collects the results. It may block, since `Adapter.run_async` calls it in a
            thread. If it raises, the log has a warning, and the job goes on. None means that
            nothing is displayed.
        context_args: arguments that a component may declare (``trial_idx`` …).
        host_retries: how often the orchestrator itself retries, for a note in the log. None means
            that it is not known.
        may_save: if it is False, this process may neither submit nor use the orchestrator's store
            (Airflow's triggerer). Its driver stops there, and ``outcome`` hands the state back.
        asked: tells whether somebody asked the orchestrator for the end of the step, or None if it
            cannot say now. It is asked when something ends the step, and answers within three
            seconds. The default tells whether a person's Ctrl-C did. Inside a job, that job is
            asked as well.
    """

    runner: Runner
    store: AttachStore | None = None
    log_store: AttachStore | None = None
    sink: LogSink | None = None
    log: Callable[[str], None] = log_line
    on_change: Callable[[str, AppStatus], None] | None = None
    show_progress: Callable[[str, AppStatus], None] | None = None
    context_args: Mapping[str, Any] = field(default_factory=dict)
    host_retries: int | None = None
    may_save: bool = True
    asked: Asked = interrupted

    def __post_init__(self) -> None:
        self.log = _without_failure(self.log)


def _without_failure(log: Callable[[str], None]) -> Callable[[str], None]:
    """Return a log that fails nobody: a pipe that breaks ends neither a job nor its watching."""

    def write(text: str) -> None:
        with suppress(OSError):
            log(text)

    return write
