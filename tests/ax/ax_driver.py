"""Ax's part in the conformance suite: what a runner does around one trial, in a child process that imports no Ax."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from transload.errors import TransloadError
from transload.pipelines import AppLost, JsonFileStore
from transload.testing.adapter_driver import ChildJob
from transload_ax.run import TrialApps
from transload_ax.states import STATES
from transload_ax.units import LOGS, RECORD, MetadataStore, TrialLaunch, Unit, execution_options


class _Lines(logging.Handler):
    """Hands log lines to the suite."""

    def __init__(self, child: ChildJob) -> None:
        super().__init__()
        self._child = child

    def emit(self, record: logging.LogRecord) -> None:
        self._child.log(record.getMessage())


def run(child: ChildJob) -> None:
    """Run one trial: its metadata is kept in the suite's file, as an experiment's snapshot would keep it."""
    job = child.job
    log = logging.getLogger("transload_ax")
    log.setLevel(logging.INFO)
    log.addHandler(_Lines(child))
    kept = JsonFileStore(child.store)
    metadata: dict[str, Any] = kept.get() or {}
    options = execution_options(job.options)
    apps = TrialApps(f"{job.namespace}/{job.generation}", options)
    unit = Unit(job.name, 0)
    if metadata.get("of") != job.generation:
        metadata = {"of": job.generation}

    def keep() -> None:
        kept.put(metadata)

    record, logs = MetadataStore(metadata, RECORD, keep), MetadataStore(metadata, LOGS, keep)
    killed: list[bool] = []
    child.on_kill(lambda: killed.append(True))
    launch = TrialLaunch(app=child.app, scheduler="scripted", cfg=job.cfg)
    known = record.get() or {}
    try:
        # a trial that was saved as RUNNING is looked at, one that is still a CANDIDATE, or is run again, is run
        if known.get("handle") and not metadata.get("ended"):
            apps.attach(unit, known["handle"], store=record, log_store=logs)
        else:
            metadata["ended"] = False
            apps.start(unit, launch, {}, store=record, log_store=logs)
    except TransloadError as exc:
        child.finish("CANDIDATE", error=exc, retryable=options.rule.host_may_retry(exc))
        return
    while True:
        if killed:
            apps.close()
            sys.exit(0)
        live = apps._live[unit].execution
        seen = apps.poll([unit])[unit]
        if seen.state is None or not (seen.reason or STATES[seen.state] in ("COMPLETED", "FAILED", "ABANDONED")):
            time.sleep(0.02)
            continue
        state = STATES[seen.state]
        if not seen.left and state != "COMPLETED":
            metadata["ended"] = True
            keep()
        if state == "COMPLETED":
            child.finish(state, results=live.collect().to_dict())
        else:
            retryable = state == "FAILED" and (seen.left or options.rule.host_may_retry(AppLost(seen.handle)))
            child.finish(state, error=seen.reason, retryable=retryable)
        return
