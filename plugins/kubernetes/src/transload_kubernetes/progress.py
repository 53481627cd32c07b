"""How far jobs are: what their programs report, from the logs of their helpers.

A program writes to a file, a helper repeats its last line in its own log, and readers ask for the
last lines of that log. The last report of a pod that has ended is in its status.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Final

from transload.errors import SchedulerUnavailable
from transload.runtime.liveness import ProgressMeter, read_report
from transload_kubernetes import names, states
from transload_kubernetes.cluster import Cluster
from transload_kubernetes.log_reading import NS, nanoseconds
from transload_kubernetes.lookup import base_of
from transload_kubernetes.plan import Facts
from transload_kubernetes.results import PROGRESS

_FRESH_S: Final = 2.0  # a report of this age is not asked for again
MOST_ASKED: Final = 16
"""So many pods are asked for a report at once; the others keep their last one."""
_MOST_KEPT: Final = 1000
_LINES: Final = 60  # from which the time that is left is estimated


class Reports:
    """Reads what running pods report.

    Attributes:
        jobs: namespace and base name of each job that has reported anything. Its reports are asked
            for now and then, because no event of a cluster announces them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.jobs: set[tuple[str, str]] = set()
        self._cluster = cluster
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}  # uid of a pod → when, and what

    def add_to(self, facts: Facts, most: int = MOST_ASKED) -> int:
        """Add to the facts of a job what its running pods have reported last.

        Args:
            facts: those of the job.
            most: how many pods may be asked.

        Returns:
            How many were asked.
        """
        pods = [pod for pod in facts.pods if _may_report(pod)]
        if facts.ended is not None or not pods:
            self._forget(facts)
            return 0
        asked = 0
        for pod in pods:
            moment, report = self._known.get(pod["metadata"]["uid"], (0.0, {}))
            if asked < most and time.monotonic() - moment > _FRESH_S:
                asked += 1
                report = self._ask(pod) or report
            if report:
                facts.progress[pod["metadata"]["name"]] = report
        if facts.progress:
            with self._lock:
                self.jobs.add((pods[0]["metadata"]["namespace"], base_of(pods[0])))
        return asked

    def _ask(self, pod: dict[str, Any]) -> dict[str, Any]:
        from urllib3.exceptions import HTTPError

        metadata = pod["metadata"]
        log = b""
        with contextlib.suppress(SchedulerUnavailable, HTTPError, OSError):
            answer = self._cluster.log(
                metadata["namespace"], metadata["name"], names.HELPER, timestamps=True, tail=_LINES
            )
            log = answer.data if answer else b""
        report = last_report(log)
        with self._lock:
            self._known.pop(metadata["uid"], None)
            self._known[metadata["uid"]] = (time.monotonic(), report)
            while len(self._known) > _MOST_KEPT:
                del self._known[next(iter(self._known))]
        return report

    def _forget(self, facts: Facts) -> None:
        if facts.record is None or not self.jobs:
            return
        metadata = facts.record["metadata"]
        with self._lock:
            self.jobs.discard((metadata.get("namespace", ""), metadata["name"]))


def _may_report(pod: dict[str, Any]) -> bool:
    """Tell whether the program and the helper of a pod run."""
    return bool(states.program(pod, "running") and states.program(pod, "running", names.HELPER))


def last_report(log: bytes) -> dict[str, Any]:
    """Return what the last lines of a helper's log say of the program's progress.

    Args:
        log: the lines, each with its time stamp.

    Returns:
        Fields of `Progress`; empty if it says nothing.
    """
    meter = ProgressMeter()
    for line in log.splitlines():
        stamp, _, text = line.partition(b" ")
        if not text.startswith(PROGRESS.encode()):
            continue
        with contextlib.suppress(ValueError):
            at = nanoseconds(stamp.decode("ascii", "replace")) / NS
            meter.update(read_report(text.removeprefix(PROGRESS.encode()), at))
    return meter.latest
