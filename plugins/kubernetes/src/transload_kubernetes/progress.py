"""The progress of jobs, which their programs report, from the logs of their helpers.

A program writes to a file. A helper repeats its last line in its own log, and readers ask for the
last lines of that log. The last report of a pod that has ended is in its status.
"""

from __future__ import annotations

import contextlib
import math
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
"""The number of pods that are asked for a report at a time. The others keep their last one."""
_MOST_KEPT: Final = 1000
_LINES: Final = 60  # from which the time that is left is estimated
_ALL_LINES: Final = 4000
"""Lines of a helper's log that are read for the history of a job's progress, once."""


class _Known:
    """What is known of the reports of a pod.

    Args:
        is_whole: they were read from their beginning.
    """

    def __init__(self, is_whole: bool) -> None:
        self.is_whole = is_whole
        self.asked_at = -math.inf
        self.meter = ProgressMeter()
        self._read_to = -math.inf  # when the last line was written that was read

    def read(self, log: bytes) -> None:
        """Take over what the last lines of a helper's log say, each with its time stamp."""
        for line in log.splitlines():
            stamp, _, text = line.partition(b" ")
            if not text.startswith(PROGRESS.encode()):
                continue
            with contextlib.suppress(ValueError):
                at = nanoseconds(stamp.decode("ascii", "replace")) / NS
                if at > self._read_to:
                    self._read_to = at
                    self.meter.update(read_report(text.removeprefix(PROGRESS.encode()), at))


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
        self._known: dict[str, _Known] = {}  # uid of a pod → what it has reported

    def add_to(self, facts: Facts, most: int = MOST_ASKED, with_history: bool = True) -> int:
        """Add to the facts of a job what its running pods have reported last.

        Args:
            facts: those of the job.
            most: how many pods may be asked.
            with_history: also what they have reported before.

        Returns:
            How many were asked.
        """
        pods = [pod for pod in facts.pods if _may_report(pod)]
        if facts.ended is not None or not pods:
            self._forget(facts)
            return 0
        asked = 0
        for pod in pods:
            uid = pod["metadata"]["uid"]
            known = self._known.get(uid)
            if known is None or (with_history and not known.is_whole):
                known = _Known(with_history)
            if asked < most and time.monotonic() - known.asked_at > _FRESH_S:
                asked += 1
                self._ask(pod, known)
            if known.meter.latest:
                facts.progress[pod["metadata"]["name"]] = known.meter.latest
        if facts.progress:
            with self._lock:
                self.jobs.add((pods[0]["metadata"]["namespace"], base_of(pods[0])))
        return asked

    def _ask(self, pod: dict[str, Any], known: _Known) -> None:
        """Read what a pod has reported since it was asked last."""
        from urllib3.exceptions import HTTPError

        metadata = pod["metadata"]
        lines = _LINES
        if known.is_whole and not known.meter.latest:
            lines = _ALL_LINES
        log = b""
        with contextlib.suppress(SchedulerUnavailable, HTTPError, OSError):
            answer = self._cluster.log(
                metadata["namespace"], metadata["name"], names.HELPER, timestamps=True, tail=lines
            )
            log = answer.data if answer else b""
        with self._lock:
            known.read(log)
            known.asked_at = time.monotonic()
            self._known.pop(metadata["uid"], None)
            self._known[metadata["uid"]] = known
            while len(self._known) > _MOST_KEPT:
                del self._known[next(iter(self._known))]

    def _forget(self, facts: Facts) -> None:
        if facts.record is None or not self.jobs:
            return
        metadata = facts.record["metadata"]
        with self._lock:
            self.jobs.discard((metadata.get("namespace", ""), metadata["name"]))


def _may_report(pod: dict[str, Any]) -> bool:
    """Tell whether the program and the helper of a pod run."""
    return bool(states.program(pod, "running") and states.program(pod, "running", names.HELPER))
