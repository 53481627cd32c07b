"""Read the results of pods without storage, which a helper container writes to its log.

They are read when somebody asks for results. If a pod is about to be deleted, a thread reads them
before and keeps them in the record of the job.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from transload.errors import AppNotFound, SchedulerUnavailable
from transload.runtime.tracking import ResultsGone
from transload.specs import AppState, AppStatus, ReplicaStatus
from transload_kubernetes import names, plan, results, states
from transload_kubernetes.cluster import Cluster, cut
from transload_kubernetes.decide import decide
from transload_kubernetes.lookup import Lookup, base_of
from transload_kubernetes.plan import Facts
from transload_kubernetes.roles import replica_pods

_log = logging.getLogger("transload.kubernetes")
_END_S: Final = 20.0  # a helper's log is waited for so long after its end
_AGAIN_S: Final = 0.5
_LOOK_S: Final = 0.1


def _notify_nobody(namespace: str, base: str) -> None:
    """Do nothing, because no watch is open."""


class HandOver:
    """Reads the results that the helpers of pods hand over.

    Attributes:
        notify: called with the namespace and base name of a job whose record has changed.
        closing: set once threads are to end.
    """

    def __init__(self, cluster: Cluster, lookup: Lookup) -> None:
        self._cluster = cluster
        self._lookup = lookup
        self._threads: dict[str, threading.Thread] = {}  # by pod's uid, or by what else they do
        self.closing = threading.Event()
        self.notify: Callable[[str, str], None] = _notify_nobody

    # -- results that somebody asks for

    def store(self, app_id: str) -> results.PodStore | None:
        """Return the files that the pods of a job handed over, those of later attempts last.

        Returns:
            The files, or None if the job was given another place for them.

        Raises:
            ResultsGone: if what a replica reported was removed, or the record cannot be read.
            TrackingError: if a replica had more than can be handed over.
            SchedulerUnavailable: if the cluster does not return the whole log of a helper.
        """
        self.wait()
        facts = self._lookup.facts(app_id)
        if facts.unreadable:
            raise ResultsGone(f"the results of {app_id} cannot be read: {facts.unreadable}")
        if facts.plan is None:
            raise AppNotFound(app_id)
        if facts.plan.tracker_base not in (None, results.FOLDER):
            return None
        namespace, _ = names.parse_app_id(app_id)
        store = results.PodStore(f"the pods of {app_id}")
        is_single = len(facts.plan.roles) == 1
        status = decide(facts, self._cluster.now()).status
        for role in status.roles:
            for replica in role.replicas:
                self._check_there(facts, status, replica)
                key = str(replica.id) if is_single else f"{role.role}/{replica.id}"
                self._collect(store, namespace, facts, role.role, replica.id, key)
        return store

    def _check_there(self, facts: Facts, status: AppStatus, replica: ReplicaStatus) -> None:
        """Raise ResultsGone if a replica has ended, and what it may have reported is not there.

        What is not there of a job that was cancelled went with its pods, as was asked.
        """
        assert facts.plan is not None
        role = replica.role
        has_run = replica.state is AppState.SUCCEEDED
        if status.state is AppState.FAILED and facts.is_complete:
            label = names.role_label(role)
            has_job = any(names.labels_of(job).get(names.LABEL_ROLE) == label for job in facts.jobs)
            has_run = has_run or replica.state is AppState.FAILED or not has_job
        if not has_run:
            return
        pods = replica_pods(facts, role, replica.id)
        if facts.files(role, replica.id):
            return
        if any(_has_reported(pod, replica.state) for pod in pods):
            return
        has_helper = facts.plan.tracker_base == results.FOLDER
        if facts.ends(role, replica.id) and not has_helper:
            return
        why = "its pod was deleted, and what it had reported with it"
        seconds = facts.plan.cfg.get("ttl")
        if seconds is not None:
            why += f"; run option ttl={seconds} lets the cluster do that"
        raise ResultsGone(
            f"the results of {role}/{replica.id} of {facts.plan.app_id} cannot be read any more: "
            f"{why}; a tracker_base on a volume or in a store keeps them"
        )

    def _collect(
        self, store: results.PodStore, namespace: str, facts: Facts, role: str, k: int, key: str
    ) -> None:
        """Put the results that a replica's pods handed over into a store, under ``key``."""
        who = f"{role}/{k}"
        pods = replica_pods(facts, role, k)
        if not pods:
            for end in facts.ends(role, k):
                store.take_end(end, key, who)
        present = {pod["metadata"]["name"] for pod in pods}
        noted = dict(facts.files(role, k))
        for name, text in noted.items():
            if name not in present:
                store.take_log(text.encode(), who)
        for pod in pods:
            # the log of a pod whose results were noted may go at any moment
            note = noted.get(pod["metadata"]["name"])
            if note is not None:
                store.take_log(note.encode(), who)
            else:
                store.take_end(states.program(pod, "terminated"), key, who)
                if states.has_begun(pod, names.HELPER):
                    store.take_log(self._helper_log(namespace, pod), who)

    def _helper_log(self, namespace: str, pod: dict[str, Any]) -> bytes:
        """Return the log of a pod's helper. If the helper has ended, wait for the complete log.

        After a restart, a kubelet returns nothing or only a part of a log for a while.
        """
        from urllib3.exceptions import HTTPError

        name = pod["metadata"]["name"]
        must_be_whole = states.program(pod, "terminated", names.HELPER).get("exitCode") == 0
        if pod["metadata"].get("deletionTimestamp"):
            must_be_whole = False  # its log is gone with it
        deadline = time.monotonic() + _END_S
        while True:
            try:
                answer = self._cluster.log(namespace, name, names.HELPER)
                log: bytes = answer.data if answer else b""
                if not must_be_whole or any(map(results.IS_END.match, log.splitlines())):
                    return log
                trouble = "it breaks off"
            except (SchedulerUnavailable, HTTPError, OSError) as exc:
                trouble = str(exc)
            if not must_be_whole or time.monotonic() >= deadline:
                raise SchedulerUnavailable(
                    f"the log of the helper of pod {name} cannot be read: {trouble}"
                )
            time.sleep(_AGAIN_S)

    # -- results of pods that are about to be deleted

    def leaving(self, facts: Facts, *, every: bool = False) -> list[dict[str, Any]]:
        """Return the pods that are being deleted and whose helper this process does not read yet.

        Args:
            facts: those of the job.
            every: return all running pods, because all of them are about to be deleted.
        """
        read = {uid for uid, thread in list(self._threads.items()) if thread.is_alive()}
        found = []
        for pod in facts.pods:
            if not facts.is_active(pod) or not states.has_begun(pod, names.HELPER):
                continue
            is_leaving = every or pod["metadata"].get("deletionTimestamp")
            if is_leaving and pod["metadata"]["uid"] not in read:
                found.append(pod)
        return found

    def begin(self, namespace: str, pod: dict[str, Any]) -> None:
        """Start to read the results of a pod that is about to be deleted.

        A thread keeps them in the record of the job.
        """

        def read() -> None:
            try:
                self._read_and_note(namespace, pod)
            except Exception as exc:
                name = pod["metadata"]["name"]
                _log.warning("the results of pod %s are lost with it: %s", name, exc)

        self.start_thread(pod["metadata"]["uid"], read)

    def _read_and_note(self, namespace: str, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        base = base_of(pod)
        limit = pod["spec"].get("terminationGracePeriodSeconds", 0) + _END_S
        answer = self._cluster.log(namespace, name, names.HELPER, follow=True, seconds=limit)
        lines: list[bytes] = []
        for line in answer or ():
            if line.startswith(results.PROGRESS.encode()):
                continue  # these are many, and a record is small
            lines.append(line)
            if not results.IS_END.match(line):
                continue
            cut(answer)
            if results.BY_ITSELF.encode() in map(bytes.strip, lines):
                lines += self._exit_of(namespace, base, name)
            text = b"".join(lines).decode()
            change = {"data": {plan.files_key(pod): text}}
            self._cluster.patch("ConfigMap", namespace, base, change)
            self.notify(namespace, base)
            return

    def _exit_of(self, namespace: str, base: str, name: str) -> list[bytes]:
        """Return the line with the exit code of a pod's program, or [] if the pod is gone."""
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            with contextlib.suppress(SchedulerUnavailable):
                pods = self._lookup.items("Pod", namespace, f"{names.LABEL_APP}={base}")
                pod = next((each for each in pods if each["metadata"]["name"] == name), None)
                if pod is None:
                    return []
                end = states.program(pod, "terminated")
                if end:
                    return [results.exit_line(end["exitCode"]).encode()]
            time.sleep(_LOOK_S)
        return []

    # -- threads

    def start_thread(self, key: str, target: Callable[[], None]) -> None:
        """Start a thread that `wait` waits for."""
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        self._threads[key] = thread

    def wait(self, seconds: float = _END_S) -> None:
        """Wait until all results are handed over, up to a second after the pods end."""
        deadline = time.monotonic() + seconds
        for thread in list(self._threads.values()):
            thread.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Wait until all results are handed over and all pods have ended, then end the threads."""
        self.wait()
        self.closing.set()
        self.wait(_AGAIN_S)


def _has_reported(pod: dict[str, Any], state: AppState) -> bool:
    """Tell whether a pod has the end of a program that ended as its replica did."""
    code = states.program(pod, "terminated").get("exitCode")
    if state is AppState.SUCCEEDED:
        return code == 0
    return True
