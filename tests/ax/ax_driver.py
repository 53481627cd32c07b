"""Do for the conformance suite what an optimiser with one trial does, without Ax.

What Ax itself does is played here: it runs a trial that is a CANDIDATE, looks at one that is
RUNNING, and keeps status and run metadata. All that is decided about the trial's app is decided by
`transload_ax.trials`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from transload.errors import SchedulerUnavailable, TransloadError
from transload.pipelines import AppLost, host_runner
from transload_ax.jobs import TrialJobs
from transload_ax.trials import ENDED, Trials, TrialView
from transload_ax.units import HANDLE, TrialLaunch, execution_options
from transload_testing.adapter_driver import ChildJob
from transload_testing.stores import JsonFileStore


class _Lines(logging.Handler):
    """Hands log lines to the suite."""

    def __init__(self, child: ChildJob) -> None:
        super().__init__()
        self._child = child

    def emit(self, record: logging.LogRecord) -> None:
        self._child.log(record.getMessage())


class Optimiser:
    """An experiment with one trial, kept in the suite's file after each step, as Ax does."""

    def __init__(self, child: ChildJob) -> None:
        self.child = child
        job = child.job
        self.options = execution_options(job.options)
        namespace = f"{job.namespace}/{job.generation}"
        self.trials = Trials(TrialJobs(namespace, job.scheduler, job.cfg, self.options))
        self._file = JsonFileStore(child.store)
        kept = self._file.get() or {}
        if kept.get("of") != job.generation:
            kept = {"of": job.generation, "status": "CANDIDATE", "metadata": {}}
        self.kept: dict[str, Any] = kept

    @property
    def view(self) -> TrialView:
        """The trial as it is now."""
        return TrialView(
            self.child.job.name, 0, self.kept["status"], self.kept["metadata"], {"": {}}
        )

    def become(self, status: str) -> None:
        """Give the trial another status, and store the experiment."""
        if status != self.kept["status"]:
            self.kept["status"] = status
            self._file.put(self.kept)

    def launch(self, arm: str, parameters: Mapping[str, Any]) -> TrialLaunch:
        """Return what the trial submits."""
        return TrialLaunch(**self.child.launch)

    def step(self) -> None:
        """Do once what Ax's loop does."""
        if self.kept["status"] == "CANDIDATE":
            self.kept["metadata"][HANDLE] = self.trials.run(self.view, self.launch)
            self.become("RUNNING")
        names = self.trials.poll([self.view])
        self.become(names[0])

    def report(self) -> None:
        """Tell the suite how the trial ended."""
        status, child = self.kept["status"], self.child
        if status == "COMPLETED":
            child.finish(status, results=self._results())
            return
        left = 0 in self.trials.left
        retryable = status == "FAILED" and (left or self.options.host_may_retry(AppLost("")))
        child.finish(status, error=self.trials.reason(self.view), retryable=retryable)

    def _results(self) -> dict[str, Any]:
        """Return the results, asking again as Ax does when a metric could not be fetched."""
        while True:
            try:
                return host_runner("ax").results(self.kept["metadata"][HANDLE]).to_dict()
            except SchedulerUnavailable:
                time.sleep(0.05)


def run(child: ChildJob) -> None:
    """Run one trial to its end."""
    log = logging.getLogger("transload_ax")
    log.setLevel(logging.INFO)
    log.addHandler(_Lines(child))
    killed: list[bool] = []
    child.on_kill(lambda: killed.append(True))
    optimiser = Optimiser(child)
    if optimiser.kept["status"] in ENDED:
        optimiser.become("CANDIDATE")  # somebody has it run again
    while optimiser.kept["status"] not in ENDED:
        if killed:
            optimiser.trials.jobs.close(cancel=None if child.asked() else False)
            sys.exit(0)
        try:
            optimiser.step()
        except TransloadError as exc:
            child.finish("CANDIDATE", error=exc, retryable=optimiser.options.host_may_retry(exc))
            return
        time.sleep(0.02)
    optimiser.report()
