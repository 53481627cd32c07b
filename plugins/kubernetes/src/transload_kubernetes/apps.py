"""Apps on a cluster: looking at them, which changes nothing, and doing what is left to do, which is
safe to repeat.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from typing import Any, Final

from transload.errors import AppExists, AppNotFound, SchedulerUnavailable, SubmitError
from transload.retries import Gang, read_error, traceback_error
from transload.runtime.tracking import TrackingError
from transload.schedulers.api import Submission
from transload.specs import AppState, AppStatus, ReplicaStatus
from transload_kubernetes import convert, hold, names, plan, results, states
from transload_kubernetes.cluster import MANAGED, Cluster, ClusterError, cut
from transload_kubernetes.convert import KubernetesRequest
from transload_kubernetes.decide import Decision, decide, replica_pods
from transload_kubernetes.logs import last_moment
from transload_kubernetes.plan import Facts, Plan, Stop

_log = logging.getLogger("transload.kubernetes")
_ROUNDS: Final = 4
_FEW: Final = 40
_TRIAL_S: Final = 120.0  # for the trial of a helper's image, once for each namespace
_END_S: Final = 20.0
_CANCEL_S: Final = (
    8.0  # a program gets its SIGTERM after two seconds, and its helper stays two more
)
_APART_S: Final = 60.0
_WITHDRAW_S: Final = 30.0
_START_S: Final = 30.0
_NOT_WITHDRAWN: Final = (
    "; what was made could not be removed either: it starts only if this is submitted again"
)
_MAY_BE_ADMITTED: Final = (
    "; what was made could not be removed either: until it is cancelled, its queue may start it"
)
_AGAIN_S: Final = 0.5
_LOOK_S: Final = 0.1
_TAIL: Final = 200
_WORDS: Final = 10
_STRICT: Final = "; run option pod_security=restricted sets what such a namespace asks for"


class Apps:
    """The apps on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._helped: set[tuple[str, str]] = (
            set()
        )  # namespaces and trials of helpers that went well
        self._taken: dict[
            str, threading.Thread
        ] = {}  # pods whose helper is read while they end: uid → who does
        self._closing = threading.Event()
        self._warned: set[str] = set()  # what was warned of
        self._cancelled = -math.inf  # when the first was that was cancelled lately
        self.tell: Callable[[str, str], None] = lambda namespace, base: (
            None
        )  # that the record of an app changed

    # -- looking

    def facts(self, app_id: str) -> Facts:
        """Return what the cluster tells of one app."""
        namespace, base = names.place(app_id)
        return self.many(namespace, {base}).get((namespace, base), Facts())

    def many(
        self, namespace: str | None, bases: Collection[str] | None = None
    ) -> dict[tuple[str, str], Facts]:
        """Return what the cluster tells of many apps, by (namespace, base): three queries, four
        with JobSets.
        """
        selector = MANAGED
        if bases is not None and len(bases) <= _FEW:
            selector = f"{names.LABEL_APP} in ({','.join(sorted(bases))})"
        found = {
            (item["metadata"]["namespace"], item["metadata"]["name"]): Facts(item)
            for item in self._items("ConfigMap", namespace, f"{selector},{names.LABEL_RECORD}")
        }
        # from the outside in: of a JobSet that has ended all Jobs are final, of a Job all pods
        kinds = (
            ["JobSet"] if any(facts.plan and facts.plan.jobset for facts in found.values()) else []
        )
        for kind in (
            [*kinds, "Job", "Pod"]
            if any(facts.kind == plan.APP for facts in found.values())
            else ()
        ):
            items = (
                self._items(kind, namespace, selector)
                if kind != "JobSet"
                else self._sets(namespace, selector)
            )
            if items is None:
                for facts in found.values():
                    facts.set_hidden = facts.plan is not None and facts.plan.jobset
            for item in items or ():
                facts = found.get((item["metadata"]["namespace"], _label(item)), Facts())
                if kind == "JobSet":
                    facts.jobset = item
                else:
                    (facts.jobs if kind == "Job" else facts.pods).append(item)
        return found

    def _sets(self, namespace: str | None, selector: str) -> list[dict[str, Any]] | None:
        """Return JobSets; None if this user may not list them, which is said once."""
        try:
            return self._items("JobSet", namespace, selector)
        except SchedulerUnavailable as refused:
            if not isinstance(refused.__cause__, ClusterError) or refused.__cause__.status != 403:
                raise
        place = f"namespace {namespace}" if namespace else "all namespaces"
        if place not in self._warned:
            self._warned.add(place)
            _log.warning(
                "this user may not list the JobSets of %s: of these apps only the Jobs are seen",
                place,
            )
        return None

    def all(self, named: Collection[str]) -> dict[tuple[str, str], Facts]:
        """Return what the cluster tells of the apps of all namespaces; of those named, if only they
        may be listed.
        """
        try:
            return self.many(None)
        except SchedulerUnavailable as refused:
            if not isinstance(refused.__cause__, ClusterError) or refused.__cause__.status != 403:
                raise
            found, missed = {}, set()
            for namespace in named:
                try:
                    found.update(self.many(namespace))
                except SchedulerUnavailable:
                    missed.add(namespace)
            if missed == {*named}:
                raise
            more = f", nor {', '.join(missed)}" if missed else ""
            seen = ", ".join({*named} - missed)
            _log.warning(
                "this user may not list the apps of all namespaces%s: only those of %s", more, seen
            )
            return found

    def _items(self, kind: str, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        try:
            return list(self._cluster.list(kind, namespace, selector).get("items") or ())
        except ClusterError as exc:
            raise SchedulerUnavailable(f"kubernetes at {self._cluster.url}: {exc}") from exc

    def handed_over(self, app_id: str) -> results.PodStore | None:
        """Return the files that pods handed over, those of later attempts last; None if a place was
        named for them.

        Raises:
            TrackingError: if a replica had more than can be handed over.
            SchedulerUnavailable: if the cluster does not show all that a helper has said.
        """
        self.settle()
        facts = self.facts(app_id)
        made = facts.plan
        if made is None:
            raise AppNotFound(app_id)
        if made.tracker_base not in (None, results.FOLDER):
            return None
        namespace, store = names.parse_app_id(app_id)[0], results.PodStore(f"the pods of {app_id}")
        for role, k in [(each.name, k) for each in made.roles for k in range(each.replicas)]:
            who, key = f"{role}/{k}", str(k) if len(made.roles) == 1 else f"{role}/{k}"
            pods = replica_pods(facts, role, k)
            noted = dict(
                facts.files(role, k)
            )  # the log of one that is still there may go in this moment
            there = {pod["metadata"]["name"] for pod in pods}
            for said in (text for name, text in noted.items() if name not in there):
                store.take_log(said.encode(), who)
            for pod in pods:
                if pod["metadata"]["name"] in noted:
                    store.take_log(noted[pod["metadata"]["name"]].encode(), who)
                elif not results.helper_of(pod["spec"]):
                    store.take_end(states.program(pod, "terminated"), key, who)
                elif states.has_begun(pod, names.HELPER):
                    store.take_log(self._said(namespace, pod), who)
        return store

    def _said(self, namespace: str, pod: dict[str, Any]) -> bytes:
        """Return the log of a pod's helper; of one that came to its end all of it, which is waited
        for.

        A kubelet that is killed, and begins again, shows nothing of a log for a while, or a part.
        """
        from urllib3.exceptions import HTTPError

        name = pod["metadata"]["name"]
        ended = states.program(pod, "terminated", names.HELPER).get("exitCode") == 0
        limit = _END_S
        if states.is_released(
            pod
        ):  # what runs beside the program is being ended, then the helper is
            ended, limit = True, _END_S + pod["spec"].get("terminationGracePeriodSeconds", 0)
        ended = ended and not pod["metadata"].get("deletionTimestamp")  # with which its log goes
        deadline = time.monotonic() + limit
        while True:
            try:
                answer = self._cluster.log(namespace, name, names.HELPER)
                said: bytes = answer.data if answer else b""
                if not ended or any(map(results.IS_END.match, said.splitlines())):
                    return said
                trouble = "it breaks off"
            except (SchedulerUnavailable, HTTPError, OSError) as exc:
                trouble = str(exc)
            if not ended or time.monotonic() >= deadline:
                raise SchedulerUnavailable(
                    f"what the helper of pod {name} said cannot be read: {trouble}"
                )
            time.sleep(_AGAIN_S)

    # -- judging, and doing what a verdict asks for

    def decision(self, app_id: str, facts: Facts, *, explain: bool = False) -> Decision:
        """Return the verdict on an app that has a record; ``explain``: ask for the events of what
        is stuck.
        """
        found = decide(facts, time.time())
        if explain and not facts.notes and not facts.causes:
            namespace, _ = names.parse_app_id(app_id)
            if _unexplained(found.status):
                facts.notes = self._events(namespace, facts)
            elif found.note and (bad := found.status.first_failure()) is not None:
                facts.causes = self._causes(namespace, facts, bad)
            found = decide(facts, time.time()) if facts.notes or facts.causes else found
        return found

    def _causes(self, namespace: str, facts: Facts, bad: ReplicaStatus) -> dict[str, str]:
        """Return the error of the replica that failed first by its pod, where a log tells more than
        the pod.
        """
        with contextlib.suppress(SchedulerUnavailable, TrackingError, IndexError):
            pod, store = replica_pods(facts, bad.role, bad.id)[-1], results.PodStore("")
            other, _ = states.other_failure(pod)
            if other:
                return {pod["metadata"]["name"]: self._last_words(namespace, pod, other)}
            (said, _, more), name = results.said_of(pod), pod["metadata"]["name"]
            if more and (answer := self._cluster.log(namespace, name, names.HELPER)):
                store.take_log(answer.data, name)
                return {name: read_error(store.error)}
            is_exit = not said and bad.exit_code == 1  # what an interpreter exits with
            query = {"tailLines": _TAIL, "timestamps": "true"}
            if is_exit and (answer := self._cluster.log(namespace, name, names.MAIN, **query)):
                return {name: traceback_error(last_moment(answer.data), mixed=True)}
        return {}

    def _last_words(self, namespace: str, pod: dict[str, Any], container: str) -> str:
        """Return the last lines of a container that is not the program, as an error."""
        answer = self._cluster.log(namespace, pod["metadata"]["name"], container, tailLines=_WORDS)
        lines = answer.data.decode("utf-8", "replace").strip().splitlines() if answer else []
        if not lines:
            return ""
        return read_error(
            "\n".join([lines[-1], "", f"last lines of container {container}:", *lines]).encode()
        )

    def reconcile(self, app_id: str) -> None:
        """Do what is left to do for an app: called by who waits for it as its owner, or has just
        cancelled it.
        """
        namespace, _ = names.parse_app_id(app_id)
        for _ in range(_ROUNDS):
            facts = self.facts(app_id)
            if facts.kind != plan.APP:
                return
            decision = self.decision(app_id, facts, explain=True)
            for pod in self.leaving(facts, every=bool(decision.end)):
                self._take(namespace, pod)
            if not decision.due:
                return
            self._conclude(namespace, facts, decision)
            if decision.release and facts.ended is not None:
                self._finish_release(app_id, facts)
                return
            if decision.note and not any(map(states.still_running, facts.pods)):
                return

    def leaving(self, facts: Facts, *, every: bool = False) -> list[dict[str, Any]]:
        """Return the pods that are ended from outside (``every``: or run), and whose helper nobody
        here reads now.
        """
        helped = [
            pod
            for pod in facts.pods
            if facts.is_active(pod) and states.has_begun(pod, names.HELPER)
        ]
        left = [pod for pod in helped if every or pod["metadata"].get("deletionTimestamp")]
        read = {uid for uid, thread in list(self._taken.items()) if thread.is_alive()}
        return [pod for pod in left if pod["metadata"]["uid"] not in read]

    def _take(self, namespace: str, pod: dict[str, Any]) -> None:
        """Begin to read what the helper of a pod hands over that is about to be gone; it is noted
        in the record.
        """
        name, base = pod["metadata"]["name"], _label(pod)
        limit = pod["spec"].get("terminationGracePeriodSeconds", 0) + _END_S

        def read() -> None:
            said: list[bytes] = []
            try:
                answer = self._cluster.log(
                    namespace, name, names.HELPER, follow="true", seconds=limit
                )
                for line in answer or ():
                    said.append(line)
                    if results.IS_END.match(line):
                        cut(answer)
                        if results.BY_ITSELF.encode() in map(bytes.strip, said):
                            said += self._exit_of(namespace, base, name)
                        change = {"data": {plan.files_key(pod): b"".join(said).decode()}}
                        self._cluster.patch("ConfigMap", namespace, base, change)
                        return self.tell(namespace, base)
            except Exception as exc:
                _log.warning("what pod %s had as results is lost with it: %s", name, exc)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self._taken[pod["metadata"]["uid"]] = thread

    def _exit_of(self, namespace: str, base: str, name: str) -> list[bytes]:
        """Return the line that tells how the program of a pod has ended, which is about to go; none
        if it is gone.
        """
        deadline = time.monotonic() + _END_S
        while time.monotonic() < deadline:
            with contextlib.suppress(SchedulerUnavailable):
                there = self._items("Pod", namespace, f"{names.LABEL_APP}={base}")
                pod = next((each for each in there if each["metadata"]["name"] == name), None)
                if pod is None:
                    return []
                if end := states.program(pod, "terminated"):
                    return [results.exit_line(end["exitCode"]).encode()]
            time.sleep(_LOOK_S)
        return []

    def settle(self, seconds: float = _END_S) -> None:
        """Wait a little for what is being handed over: it comes up to a second later than the
        end.
        """
        deadline = time.monotonic() + seconds
        for thread in list(self._taken.values()):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _conclude(self, namespace: str, facts: Facts, decision: Decision) -> None:
        if decision.stop is not None:
            self.note_stop(namespace, facts, decision.stop)
        for name in decision.release:
            self._release(namespace, name)
        for kind, name in decision.end:
            if facts.plan and facts.plan.queued:  # which would let it run again
                self._cluster.delete(kind, namespace, name, "Foreground")
            else:  # that ends what runs, and leaves what has ended, with its log
                self._cluster.patch(kind, namespace, name, hold.OFF)
        for kind, name in decision.start:
            self._let_run(namespace, kind, name, facts)
        for role, attempt in decision.restart:
            try:
                self._make_job(namespace, facts, role, attempt)
            except SubmitError as exc:  # its name is taken by somebody's: it will never be there
                self.note_stop(
                    namespace,
                    facts,
                    Stop("failed", f"role {role} could not be started again: {exc}"),
                )
                return
            self._note(
                namespace,
                facts,
                f"{plan.MADE}{names.role_label(role)}.{names.attempt_text(attempt)}",
                "yes",
            )
        if decision.note:
            self._note(namespace, facts, "ended", (decision.final or decision.status).to_json())
            if decision.final is not None and facts.record is not None:
                self.tell(
                    namespace, facts.record["metadata"]["name"]
                )  # nothing else may change that is watched

    def _release(self, namespace: str, name: str) -> None:
        """End what still runs in a pod whose program has ended; the pod stays, with its log and how
        all of it ended.
        """
        marked = {"annotations": {names.ANNOTATION_RELEASED: "yes"}}
        try:
            self._cluster.patch(
                "Pod", namespace, name, {"metadata": marked, "spec": {"activeDeadlineSeconds": 1}}
            )
        except ClusterError as exc:
            if exc.status not in (403, 404, 422):
                raise
            if name not in self._warned:
                self._warned.add(name)
                _log.warning(
                    "pod %s: its program has ended, and what else runs in it cannot be ended: %s",
                    name,
                    exc,
                )

    def _finish_release(self, app_id: str, facts: Facts) -> None:
        """Have the Jobs of an app that has ended suspended when its pods have ended, which they
        would replace.
        """
        namespace, base = names.place(app_id)
        if facts.plan is None or not any(role.retries for role in facts.plan.roles):
            return
        limit = float(str(facts.plan.cfg.get("grace_period") or 0)) + _END_S

        def finish() -> None:
            deadline, now = time.monotonic() + limit, facts
            with contextlib.suppress(ClusterError, SchedulerUnavailable):
                while any(map(states.still_running, now.pods)):
                    if self._closing.wait(_AGAIN_S) or time.monotonic() > deadline:
                        break
                    now = self.facts(app_id)
                for job in now.jobs:
                    if not states.is_finished(job):
                        self._cluster.patch(
                            "Job", namespace, job["metadata"]["name"], {"spec": {"suspend": True}}
                        )

        self._taken[base] = threading.Thread(target=finish, daemon=True)
        self._taken[base].start()

    def close(self) -> None:
        """Wait a little for what is being handed over, or ended; what is left then is ended with
        its log.
        """
        self.settle()
        self._closing.set()
        self.settle(_AGAIN_S)

    def note_stop(self, namespace: str, facts: Facts, stop: Stop) -> None:
        """Note why an app is ended; the first reason stays. What is about to be deleted is noted
        too.
        """
        if facts.plan and facts.plan.queued:
            stop = replace(stop, seen=decide(facts, time.time()).status.to_json())
        self._note(namespace, facts, "stop", json.dumps(asdict(stop)))

    def _note(self, namespace: str, facts: Facts, key: str, value: str) -> None:
        record = facts.record or {}
        while not (record.get("data") or {}).get(key):
            version = record["metadata"]["resourceVersion"]
            change = {"metadata": {"resourceVersion": version}, "data": {key: value}}
            try:
                self._cluster.patch("ConfigMap", namespace, record["metadata"]["name"], change)
                return
            except ClusterError as exc:
                own = exc.status == 409 and self._cluster.get(
                    "ConfigMap", namespace, record["metadata"]["name"]
                )
                if not own:
                    raise
                record = own

    def _make_job(self, namespace: str, facts: Facts, role: str, attempt: names.Attempt) -> None:
        made = facts.plan
        assert made is not None and facts.record is not None
        first = next(
            job for job, each in zip(made.jobs, made.roles, strict=True) if each.name == role
        )
        base = facts.record["metadata"]["name"]
        left = None
        if made.timeout is not None:
            starts = [
                states.seconds((job.get("status") or {}).get("startTime")) for job in facts.jobs
            ]
            left = made.timeout - (time.time() - min(filter(None, starts), default=time.time()))
        job = convert.later_attempt(first, base, role, attempt, left)
        self._create(owned(job, facts.record), namespace)

    def _create(
        self, item: dict[str, Any], namespace: str, *, only_try: bool = False
    ) -> dict[str, Any]:
        """Make an object, or return the one that another owner of this app has made.

        With ``only_try`` raise what that would raise, as far as the cluster says so beforehand.
        """
        try:
            return self._cluster.create(item, namespace, only_try=only_try)
        except ClusterError as exc:
            if (
                only_try and exc.status == 400 and "support dry run" in str(exc)
            ):  # some webhook of it cannot say
                return item
            found = (
                self._cluster.get(item["kind"], namespace, item["metadata"]["name"])
                if exc.status == 409
                else None
            )
            if found is None:
                raise
            # one of the same record was made by another owner of the same app: names follow from it
            record, owners = (
                item["metadata"]["ownerReferences"],
                found["metadata"].get("ownerReferences") or (),
            )
            if record[0]["uid"] not in [owner.get("uid") for owner in owners]:
                what = f"{item['kind']} {item['metadata']['name']} of namespace {namespace} is"
                left = record[0]["name"] in [
                    owner.get("name") for owner in owners if owner.get("kind") == "ConfigMap"
                ]
                taken = "somebody else's, and this app needs that name: choose another app id or role name"
                passing = "left of an earlier submit of this id, and is about to be removed"
                raise SubmitError(f"{what} {passing if left else taken}", transient=left) from exc
            return found

    def _events(self, namespace: str, facts: Facts) -> list[str]:
        """Return the last warning about what an app waits for, if there is one."""
        things = [
            pod for pod in facts.pods if states.pod_state(pod) is AppState.PENDING
        ] or _current(facts)
        for item in (things or list(filter(None, [facts.jobset])))[:1]:
            name = item["metadata"]["name"]
            uids = {None, item["metadata"]["uid"]}
            field, about = f"involvedObject.name={name}", name
            if facts.plan and facts.plan.queued and states.condition(item, "Suspended"):
                # the queue's word on a Job or JobSet stands with an object of its own, named after
                # it
                field, about = (
                    "involvedObject.kind=Workload",
                    f"{'jobset' if item is facts.jobset else 'job'}-{name}-",
                )
                uids = set()
            with contextlib.suppress(ClusterError):
                events = (
                    self._cluster.list("Event", namespace, fieldSelector=field).get("items") or ()
                )
                warnings = [event for event in events if event.get("type") == "Warning"]
                mine = [each for each in warnings if _is_about(each, about, uids)]
                for event in sorted(mine, key=states.event_time)[
                    -1:
                ]:  # the cluster lists them by name
                    text = f"{event.get('reason', '')}: {event.get('message', '')}"
                    return [f"{text}{_STRICT}" if "PodSecurity" in text else text]
        return []

    # -- submitting

    def helper_fails(self, request: KubernetesRequest) -> str:
        """Return why the helper of an app cannot be started, `""` if it can: a Job of its own has
        tried the image.
        """
        jobs = request.jobs or [
            each["template"] for each in (request.jobset or {})["spec"]["replicatedJobs"]
        ]
        job = next(
            filter(None, (results.trial(each["spec"]["template"]["spec"]) for each in jobs)), None
        )
        name, why, deadline = (
            job["metadata"]["name"] if job else "",
            "",
            time.monotonic() + _TRIAL_S,
        )
        place = request.namespace, name
        while job and place not in self._helped and not why:
            try:
                found = self._cluster.get("Job", *place)
                if found is None:
                    self._cluster.create(job, request.namespace)
                elif states.condition(found, "Complete"):
                    self._helped.add(place)
                elif states.condition(found, "Failed"):
                    self._cluster.delete("Job", *place)  # the next submit tries again
                    why = f"{states.FROM_HELPER}it ended with an error"
                else:
                    pods = self._items("Pod", request.namespace, f"{names.JOB}={name}")
                    why = next(
                        (text for text in map(states.stuck, pods) if states.FROM_HELPER in text), ""
                    )
            except ClusterError as exc:
                why = (
                    f"{states.FROM_HELPER}{exc}" if exc.status != 409 else ""
                )  # then another submit makes it
            if not why and time.monotonic() > deadline:
                why = f"{states.FROM_HELPER}it was not tried within {_TRIAL_S:g} s"
            elif place not in self._helped:
                time.sleep(0.2)
        return why

    def submit(self, request: KubernetesRequest, app_id: str, submission: Submission) -> bool:
        """Start an app, or adopt it. The record is made first, which only one can; the rest belongs
        to it.
        """
        namespace, base = request.namespace, request.base
        made = Plan(
            app_id, submission.app.name, submission.digest, submission.session, time.time(), request.roles,
            request.jobs, submission.id_given, dict(submission.cfg), submission.tracker_base,
            request.timeout, request.jobset is not None, submission.parent_run_id,
        )  # fmt: skip
        try:
            app = submission.app.masked().to_json()
            record = self._cluster.create(plan.record(base, namespace, made, app), namespace)
        except ClusterError as exc:
            if exc.status == 409 and exc.reason != "Conflict":
                return self._adopt(request, app_id, submission)
            raise _refused(app_id, exc) from exc
        not_withdrawn = _MAY_BE_ADMITTED if made.queued else _NOT_WITHDRAWN
        try:
            facts = self._make_all(request, record, submission)
        except BaseException as exc:  # a Ctrl-C too: nobody would know of the app
            left = self._withdraw(namespace, base, insist=isinstance(exc, Exception))
            if not isinstance(exc, (ClusterError, SchedulerUnavailable, SubmitError)):
                raise
            if left is None or not left.is_complete:
                raise _refused(app_id, exc, not_withdrawn if left is None else "") from exc
            facts = self.facts(
                app_id
            )  # the answer alone was lost, or another process has completed it
        try:
            self._start(app_id, facts)
        except BaseException as exc:
            left = self._withdraw(namespace, base, insist=isinstance(exc, Exception), complete=True)
            if isinstance(exc, ClusterError):
                raise _refused(app_id, exc, not_withdrawn if left is None else "") from exc
            raise
        return True

    def _start(self, app_id: str, facts: Facts) -> None:
        """Let an app run that is wholly on its cluster, unless its end was asked for meanwhile.

        It is submitted by now: where the cluster goes away, whoever waits for it as its owner
            starts it.

        Raises:
            ClusterError: if the cluster refuses to start it.
        """
        namespace, _ = names.parse_app_id(app_id)
        try:
            if facts.stop is not None or facts.ended is not None:
                return self.reconcile(app_id)
            for kind, name in hold.held(facts):
                self._let_run(namespace, kind, name, facts, patience=_START_S)
        except SchedulerUnavailable as exc:
            _log.warning(
                "app %s is submitted; it may start only when somebody waits for it: %s", app_id, exc
            )

    def _let_run(
        self, namespace: str, kind: str, name: str, facts: Facts, patience: float = 0.0
    ) -> None:
        """Let a Job or JobSet run that is held for its submit.

        Args:
            namespace: the app's.
            kind: ``Job`` or ``JobSet``.
            name: of the object.
            facts: the app's.
            patience: seconds for which a cluster that is away is tried again.
        """
        assert facts.record is not None
        steps = hold.off(facts.record["metadata"]["uid"])
        deadline = time.monotonic() + patience
        while True:
            try:
                self._cluster.change_if(kind, namespace, name, steps)
                return
            except (ClusterError, SchedulerUnavailable) as exc:
                if isinstance(exc, ClusterError) and exc.status in (404, 422):
                    found = self._cluster.get(kind, namespace, name)
                    if found is None or not hold.is_held(found):
                        return  # another process has started it, or it was cancelled
                    raise
                if not _may_pass(exc) or time.monotonic() >= deadline:
                    raise
            time.sleep(_AGAIN_S)

    def _withdraw(
        self, namespace: str, base: str, *, insist: bool, complete: bool = False
    ) -> Facts | None:
        """Remove the record of a submit that failed, and with it all that was made, also what is
        made late.

        Args:
            namespace: the app's.
            base: name of the record.
            insist: try for a while to reach a cluster that is away.
            complete: also that of a submit that is complete; otherwise it stays.

        Returns:
            The record as it was, empty if there was none; None if it could not be removed.
        """
        deadline = time.monotonic() + (_WITHDRAW_S if insist else 0.0)
        pause = 0.2
        while True:
            try:
                there = Facts(self._cluster.get("ConfigMap", namespace, base))
                if there.kind == plan.APP and (complete or not there.is_complete):
                    self._cluster.delete("ConfigMap", namespace, base)
                return there
            except (ClusterError, SchedulerUnavailable) as exc:
                if not _may_pass(exc) or time.monotonic() >= deadline:
                    return None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _adopt(self, request: KubernetesRequest, app_id: str, submission: Submission) -> bool:
        facts = self.facts(app_id)
        if facts.record is None:
            what = (
                f"namespace {request.namespace} has a ConfigMap {request.base} of somebody else's"
            )
            raise SubmitError(f"app {app_id}: {what}")
        if facts.unreadable:
            raise AppExists(app_id, f"app {app_id} is there: {facts.unreadable}")
        digest = (facts.record["metadata"].get("annotations") or {}).get(names.ANNOTATION_DIGEST)
        if facts.kind == plan.DELETED or digest != submission.digest:
            why = (
                "was used by an app that has been deleted"
                if facts.kind == plan.DELETED
                else "is another app"
            )
            raise AppExists(app_id, f"app {app_id}: this id {why}; choose another")
        if facts.stop is not None or facts.ended is not None:
            return False
        try:  # its submitter may have died in the middle
            if not facts.is_complete:
                facts = self._make_all(request, facts.record, submission)
            self._start(app_id, facts)
        except (ClusterError, SubmitError) as exc:
            raise _refused(app_id, exc) from exc
        return False

    def _make_all(
        self, request: KubernetesRequest, record: dict[str, Any], submission: Submission
    ) -> Facts:
        """Make all of an app, Jobs and JobSet on hold, and note that it is complete; return what
        was made.
        """
        namespace = request.namespace
        for job in request.jobs[
            1:
        ]:  # the first is not made for a submit that another Job would end
            self._create(owned(job, record), namespace, only_try=True)
        values = dict(request.hidden)
        for (role, variable), key in request.references.items():
            values[key] = submission.secrets.get(role, {}).get(variable, "")
        if values:
            self._create(owned(convert.secret(request, values), record), namespace)
        made: list[dict[str, Any]] = []
        for item in request.objects():
            made.append(
                self._create(
                    hold.on_hold(owned(item, record), record["metadata"]["uid"]), namespace
                )
            )
        facts = Facts(
            self._cluster.patch(
                "ConfigMap", namespace, request.base, {"data": {"submitted": "yes"}}
            )
        )
        if (
            facts.kind != plan.APP
        ):  # its record stays, and so would what was made: nothing of it runs
            self._cluster.patch("ConfigMap", namespace, request.base, plan.GRAVESTONE)
            for item in made:
                self._cluster.delete(item["kind"], namespace, item["metadata"]["name"])
            raise SubmitError("it was deleted while it was being submitted")
        facts.jobs = [each for each in made if each["kind"] == "Job"]
        facts.jobset = next((each for each in made if each["kind"] == "JobSet"), None)
        return facts

    # -- ending

    def cancel(self, app_id: str) -> bool:
        """Note that an app is to end, and suspend its Jobs, which ends their pods; False if there
        is none.

        Who asks for it may be about to end itself, and nobody else sees how a program ends that
        ends in this moment: so it is waited for, once for all that are asked to end one after the
            other.
        """
        facts = self.facts(app_id)
        if facts.kind != plan.APP or self.decision(app_id, facts).status.is_terminal():
            return facts.kind == plan.APP
        if facts.unreadable:
            self.end_damaged(app_id, facts, stay=True)
            return True
        namespace, _ = names.parse_app_id(app_id)
        try:
            self.note_stop(namespace, facts, Stop("cancel", Gang.ON_REQUEST))
            self.reconcile(app_id)
        except ClusterError as exc:
            raise SchedulerUnavailable(f"app {app_id} could not be cancelled: {exc}") from exc
        now = time.monotonic()
        if now > self._cancelled + _APART_S:
            self._cancelled = now
        self.settle(self._cancelled + _CANCEL_S - now)
        return True

    def end_damaged(self, app_id: str, facts: Facts, *, stay: bool = False) -> None:
        """End what runs of an app whose record is damaged; ``stay``: Jobs stay, suspended, else
        they are deleted.

        Raises:
            SchedulerUnavailable: if a newer version wrote the record, or the cluster refuses.
        """
        if facts.newer:
            raise SchedulerUnavailable(f"app {app_id}: {facts.unreadable}")
        namespace, base = names.place(app_id)
        # first the set, which would make its Jobs again
        sets = [("JobSet", base)] if self._cluster.has_jobsets(namespace) else []
        try:
            for kind, name in [*sets, *(("Job", job["metadata"]["name"]) for job in facts.jobs)]:
                if not stay:
                    self._cluster.delete(kind, namespace, name, "Foreground")
                elif self._cluster.get(kind, namespace, name) is not None:
                    self._cluster.patch(kind, namespace, name, hold.OFF)
        except ClusterError as exc:
            raise SchedulerUnavailable(f"app {app_id} could not be ended: {exc}") from exc

    def forget_damaged(self, app_id: str) -> None:
        """Remove what is left of an app whose record was damaged; whose id it was is not known: it
        stays taken.
        """
        namespace, base = names.place(app_id)
        rest = [
            ("Service", base),
            ("Service", names.rank0_name(base)),
            ("Secret", names.secret_name(base)),
        ]
        try:
            self._cluster.patch("ConfigMap", namespace, base, plan.GRAVESTONE)
            for kind, name in rest:
                self._cluster.delete(kind, namespace, name)
        except ClusterError as exc:
            raise SchedulerUnavailable(f"app {app_id} could not be deleted: {exc}") from exc

    def forget(self, app_id: str, facts: Facts) -> None:
        """Remove all that an app has on the cluster; the record of a caller-given id stays, without
        its contents.
        """
        namespace, base = names.place(app_id)
        assert facts.plan is not None and facts.record is not None
        # first the set, which would make its Jobs again; the rest is the record's, and goes with it
        gone = [("JobSet", base)] if facts.plan.jobset else []
        try:
            if facts.plan.id_given:
                self._cluster.patch("ConfigMap", namespace, base, plan.GRAVESTONE)
                gone += [
                    ("Job", job["metadata"]["name"]) for job in facts.jobs if not facts.plan.jobset
                ]
                gone += [
                    ("Service", base),
                    ("Service", names.rank0_name(base)),
                    ("Secret", names.secret_name(base)),
                ]
            else:
                gone.append(("ConfigMap", base))
            for kind, name in gone:
                self._cluster.delete(kind, namespace, name)
        except ClusterError as exc:
            raise SchedulerUnavailable(f"app {app_id} could not be deleted: {exc}") from exc


def owned(item: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """Return an object that goes when the record of its app goes."""
    own = record["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": own["name"], "uid": own["uid"]}
    return {
        **item,
        "metadata": {**item["metadata"], "ownerReferences": [owner], "namespace": own["namespace"]},
    }


def _label(item: dict[str, Any]) -> str:
    """Return the app that an object says it is of."""
    return str((item["metadata"].get("labels") or {}).get(names.LABEL_APP, ""))


def _current(facts: Facts) -> list[dict[str, Any]]:
    """Return the Jobs of an app; of a JobSet, those of its present attempt: earlier ones are being
    removed.
    """
    if facts.jobset is None:
        return facts.jobs
    attempt = (int((facts.jobset.get("status") or {}).get("restarts") or 0), 0)
    return [job for job in facts.jobs if names.attempt_of(job) == attempt]


def _is_about(event: dict[str, Any], start: str, uids: Collection[str | None]) -> bool:
    """Tell whether an event is about an object whose name begins so, and that has one of these
    uids, if any are given.

    The Job of a later attempt of a JobSet has the name of the one before.
    """
    about = event.get("involvedObject") or {}
    return str(about.get("name")).startswith(start) and (not uids or about.get("uid") in uids)


def _unexplained(status: AppStatus) -> bool:
    """Tell whether an app waits, or failed before it ever ran, and nobody has said why."""
    if status.state is AppState.FAILED:
        replicas = [replica for role in status.roles for replica in role.replicas]
        return all(each.start_time is None and each.exit_code is None for each in replicas)
    return status.state in (AppState.PENDING, AppState.SUBMITTED) and (
        not status.msg or "suspended" in status.msg
    )


def _may_pass(exc: ClusterError | SchedulerUnavailable) -> bool:
    """Tell whether a request that failed may succeed a little later."""
    return not isinstance(exc, ClusterError) or exc.status in (0, 429) or exc.status >= 500


def _refused(app_id: str, exc: Exception, more: str = "") -> SubmitError | SchedulerUnavailable:
    if isinstance(exc, SchedulerUnavailable):
        return SchedulerUnavailable(f"{exc}{more}") if more else exc
    status = exc.status if isinstance(exc, ClusterError) else 0
    text = str(exc)
    hint = "; ask for the rights that the docs list" if status == 403 and " cannot " in text else ""
    if status == 404 and "requested resource" in text:
        hint = (
            "; run option jobset needs JobSet installed on the cluster (jobset.x-k8s.io/v1alpha2)"
        )
    if "PodSecurity" in text:
        hint = _STRICT
    # a conflict that is not about the name, such as that of a quota's count, passes
    transient = (
        status == 429
        or status >= 500
        or (isinstance(exc, ClusterError) and exc.reason == "Conflict")
    )
    transient = transient or (isinstance(exc, SubmitError) and exc.transient)
    return SubmitError(f"app {app_id} was not started: {text}{hint}{more}", transient=transient)
