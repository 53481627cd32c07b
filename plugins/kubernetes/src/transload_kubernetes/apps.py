"""Apps on a cluster: looking at them, and doing what a verdict asks for. Every step is safe to repeat by anybody."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections.abc import Collection
from dataclasses import asdict
from typing import Any, Final

from transload.errors import AppExists, SchedulerUnavailable, SubmitError
from transload.schedulers.api import Submission
from transload.specs import AppDef, AppState, AppStatus, masked_env
from transload_kubernetes import convert, jobset, names, plan, states
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.convert import KubernetesRequest
from transload_kubernetes.judge import Verdict, judge
from transload_kubernetes.ownership import is_of, owned, owned_by_same, taken
from transload_kubernetes.plan import Facts, Plan, Stop

_ROUNDS: Final = 4
_FEW: Final = 40
_MANAGED: Final = f"{names.LABEL_MANAGED}={names.MANAGED}"
_FORBIDDEN: Final = (401, 403)


class Apps:
    """The apps on a cluster.

    Args:
        cluster: the cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # -- looking

    def facts(self, app_id: str) -> Facts:
        """Return what the cluster tells of one app."""
        namespace, _ = names.parse_app_id(app_id)
        base = names.base_name(app_id)
        record = self._ask(lambda: self._cluster.get("ConfigMap", namespace, base))
        facts = Facts(record if record and names.LABEL_RECORD in (record["metadata"].get("labels") or {}) else None)
        if facts.kind == plan.APP:
            selector = f"{names.LABEL_APP}={base}"
            # from the outside in: of a JobSet that has ended all Jobs are final, of a Job all pods
            if facts.as_jobset():
                found = self._ask(lambda: self._cluster.get("JobSet", namespace, base))
                facts.jobset = found if found and is_of(found, base) else None
            facts.jobs = self._items("Job", namespace, selector)
            facts.pods = self._items("Pod", namespace, selector)
        return facts

    def many(self, namespace: str | None, bases: Collection[str] | None = None) -> dict[tuple[str, str], Facts]:
        """Return what the cluster tells of many apps of a namespace, by (namespace, base).

        That takes three queries; four if there are JobSets among them.
        """
        selector = _MANAGED
        if bases is not None and len(bases) <= _FEW:
            selector = f"{names.LABEL_APP} in ({','.join(sorted(bases))})"
        found = {
            (item["metadata"]["namespace"], item["metadata"]["name"]): Facts(item)
            for item in self._items("ConfigMap", namespace, f"{selector},{names.LABEL_RECORD}")
        }
        kinds = ["Job", "Pod"]
        if any(facts.as_jobset() for facts in found.values()):
            kinds = ["JobSet", *kinds]
        for kind in kinds:
            for item in self._items(kind, namespace, selector):
                metadata = item["metadata"]
                facts = found.get((metadata["namespace"], metadata["labels"].get(names.LABEL_APP, "")))
                if facts is not None and kind == "JobSet":
                    facts.jobset = item
                elif facts is not None:
                    (facts.jobs if kind == "Job" else facts.pods).append(item)
        return found

    def _items(self, kind: str, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        found = self._ask(lambda: self._cluster.list(kind, namespace, label_selector=selector))
        return list(found.get("items") or ())

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except ClusterError as exc:
            raise SchedulerUnavailable(f"kubernetes at {self._cluster.url}: {exc}") from exc

    # -- concluding

    def status(self, app_id: str, facts: Facts, *, explain: bool = False) -> AppStatus:
        """Return the status of an app that has a record, after doing what it asks for.

        Args:
            app_id: the app.
            facts: what is known of it.
            explain: ask for the events of what is stuck.
        """
        namespace, _ = names.parse_app_id(app_id)
        for round_ in range(_ROUNDS):
            try:
                verdict = judge(facts, time.time())
            except (KeyError, ValueError, TypeError) as exc:
                return AppStatus(AppState.UNKNOWN, msg=f"its record on the cluster cannot be read: {exc}")
            if verdict.to_do():
                with contextlib.suppress(ClusterError, SchedulerUnavailable):  # may only look; somebody else will act
                    self._conclude(namespace, facts, verdict)
            if verdict.status.is_terminal() or not verdict.to_do() or round_ == _ROUNDS - 1:
                if explain and not facts.notes and _unexplained(verdict.status):
                    facts.notes = self._events(namespace, facts)
                    if facts.notes:
                        continue
                return verdict.status
            facts = self.facts(app_id)
            if facts.kind != plan.APP:
                return verdict.status
        raise AssertionError("the last round returns")

    def _conclude(self, namespace: str, facts: Facts, verdict: Verdict) -> None:
        if verdict.stop is not None:
            self.note_stop(namespace, facts, verdict.stop)
        for name in verdict.end:
            self._cluster.delete("Job", namespace, name, "Foreground")
        if verdict.end_set and facts.jobset is not None:
            self._cluster.delete("JobSet", namespace, facts.jobset["metadata"]["name"], "Foreground")
        for role, attempt in verdict.restart:
            try:
                self._make_job(namespace, facts, role, attempt)
            except SubmitError as exc:  # its name is another app's: it will never be there
                self.note_stop(namespace, facts, Stop("failed", f"role {role} could not be started again: {exc}"))
                return
            self._note(namespace, facts, f"{plan.MADE}{names.role_label(role)}.{names.attempt_text(attempt)}", "yes")
        if verdict.note:
            self._note(namespace, facts, "ended", verdict.status.to_json())

    def note_stop(self, namespace: str, facts: Facts, stop: Stop) -> None:
        """Note why an app is ended; the first reason stays."""
        self._note(namespace, facts, "stop", json.dumps(asdict(stop)))

    def _note(self, namespace: str, facts: Facts, key: str, value: str) -> None:
        record = facts.record
        assert record is not None
        while not (record.get("data") or {}).get(key):
            version = record["metadata"]["resourceVersion"]
            change = {"metadata": {"resourceVersion": version}, "data": {key: value}}
            try:
                self._cluster.patch("ConfigMap", namespace, record["metadata"]["name"], change)
            except ClusterError as exc:
                found = self._cluster.get("ConfigMap", namespace, record["metadata"]["name"])
                if exc.status != 409 or found is None:
                    raise
                record = found
                continue
            return

    def _make_job(self, namespace: str, facts: Facts, role: str, attempt: names.Attempt) -> None:
        made = facts.plan()
        assert made is not None and facts.record is not None
        first = next(job for job, each in zip(made.jobs, made.roles, strict=True) if each.name == role)
        base = facts.record["metadata"]["name"]
        left = None
        if made.timeout is not None:
            starts = [states.seconds((job.get("status") or {}).get("startTime")) for job in facts.jobs]
            began = min((start for start in starts if start is not None), default=time.time())
            left = made.timeout - (time.time() - began)
        job = convert.later_attempt(first, base, role, attempt, left)
        self._create(owned(job, facts.record), namespace)

    def _create(self, item: dict[str, Any], namespace: str, *, only_try: bool = False) -> None:
        try:
            self._cluster.create(item, namespace, only_try=only_try)
        except ClusterError as exc:
            found = self._cluster.get(item["kind"], namespace, item["metadata"]["name"]) if exc.status == 409 else None
            if found is None:
                raise
            if not owned_by_same(found, item):  # else made by another observer of the same app: names follow from it
                raise taken(found, item["kind"]) from exc

    def _try(self, item: dict[str, Any], namespace: str) -> None:
        """Raise what making an object would raise, as far as the cluster says so beforehand; nothing is made."""
        try:
            self._create(item, namespace, only_try=True)
        except ClusterError as exc:
            if exc.status != 400 or "support dry run" not in str(exc):  # some webhook of the cluster cannot say
                raise

    def _check_free(self, request: KubernetesRequest) -> None:
        """Refuse a JobSet whose controller could not make its Jobs or Service: it would wait without a word."""
        if request.jobset is None:
            return
        for kind, name in jobset.children(request.jobset):
            found = self._cluster.get(kind, request.namespace, name)
            if found is not None and not jobset.made_by(found, request.base):
                raise taken(found, kind)

    def _events(self, namespace: str, facts: Facts) -> list[str]:
        """Return the last warning about what an app waits for, if there is one."""
        stuck = [pod for pod in facts.pods if states.pod_state(pod) is AppState.PENDING] or facts.jobs
        for item in stuck[:1]:
            field = f"involvedObject.name={item['metadata']['name']}"
            with contextlib.suppress(ClusterError, SchedulerUnavailable):
                events = self._cluster.list("Event", namespace, field_selector=field).get("items") or ()
                warnings = [event for event in events if event.get("type") == "Warning"]
                warnings.sort(key=states.event_time)  # the cluster lists them by name
                return [f"{event.get('reason', '')}: {event.get('message', '')}" for event in warnings[-1:]]
        return []

    # -- submitting

    def submit(self, request: KubernetesRequest, app_id: str, submission: Submission) -> bool:
        """Start an app, or adopt it. The record is made first, which only one can; the rest belongs to it."""
        namespace, base = request.namespace, request.base
        made = Plan(
            app_id, submission.app.name, submission.digest, submission.session, time.time(), request.roles,
            request.jobs, submission.id_given, dict(submission.cfg), submission.tracker_base,
            request.timeout, request.startup_timeout, request.grace, request.jobset is not None,
        )  # fmt: skip
        record = plan.record(base, namespace, made, _shown(submission.app).to_json(), {})
        try:
            record = self._cluster.create(record, namespace)
        except ClusterError as exc:
            if exc.status == 409 and exc.reason != "Conflict":
                return self._adopt(request, app_id, submission)
            raise _refused(app_id, exc) from exc
        try:
            self._make_all(request, record, submission)
        except BaseException as exc:  # a Ctrl-C too: nobody would know of the app
            with contextlib.suppress(ClusterError, SchedulerUnavailable):
                self._remove(namespace, base, request.jobset is not None)
            if isinstance(exc, (ClusterError, SchedulerUnavailable, SubmitError)):
                raise _refused(app_id, exc) from exc
            raise
        return True

    def _adopt(self, request: KubernetesRequest, app_id: str, submission: Submission) -> bool:
        facts = self.facts(app_id)
        if facts.record is None:
            raise SubmitError(
                f"app {app_id}: namespace {request.namespace} has a ConfigMap {request.base} of somebody else's"
            )
        digest = (facts.record["metadata"].get("annotations") or {}).get(names.ANNOTATION_DIGEST)
        if facts.kind == plan.DELETED or digest != submission.digest:
            why = "was used by an app that has been deleted" if facts.kind == plan.DELETED else "is another app"
            raise AppExists(f"app {app_id}: this id {why}; choose another")
        if not facts.submitted() and facts.stop() is None and facts.ended() is None:
            try:  # its submitter may have died in the middle
                self._make_all(request, facts.record, submission)
            except (ClusterError, SubmitError) as exc:
                raise _refused(app_id, exc) from exc
        return False

    def _make_all(self, request: KubernetesRequest, record: dict[str, Any], submission: Submission) -> None:
        namespace = request.namespace
        self._check_free(request)
        for job in request.jobs[1:]:  # the first runs at once: it is not made for a submit that another Job would end
            self._try(owned(job, record), namespace)
        values = dict(request.hidden)
        for (role, variable), key in request.references.items():
            values[key] = submission.secrets.get(role, {}).get(variable, "")
        if values:
            self._create(owned(convert.secret(request, values), record), namespace)
        for item in request.objects():
            self._create(owned(item, record), namespace)
        self._cluster.patch("ConfigMap", namespace, request.base, {"data": {"submitted": "yes"}})
        facts = self.facts(request.app_id)
        if facts.stop() is not None or facts.ended() is not None:  # cancelled while it was being made
            self.status(request.app_id, facts)

    # -- ending

    def cancel(self, app_id: str) -> bool:
        """Note that an app is to end, and delete its Jobs; False if there is none."""
        facts = self.facts(app_id)
        if facts.kind != plan.APP or self.status(app_id, facts).is_terminal():
            return facts.kind == plan.APP
        namespace, _ = names.parse_app_id(app_id)
        try:
            self.note_stop(namespace, facts, Stop("cancel", "cancelled on request"))
            self.status(app_id, self.facts(app_id))
        except ClusterError as exc:
            raise SchedulerUnavailable(f"app {app_id} could not be cancelled: {exc}") from exc
        return True

    def forget(self, app_id: str, facts: Facts) -> None:
        """Remove all that an app has on the cluster; the record of a caller-given id stays, without its contents."""
        namespace, _ = names.parse_app_id(app_id)
        record, made = facts.record, facts.plan()
        assert record is not None
        try:
            if made is not None and made.id_given:
                self._cluster.replace(plan.gravestone(record))
            keep = made is not None and made.id_given
            self._remove(namespace, record["metadata"]["name"], made is not None and made.jobset, keep_record=keep)
        except ClusterError as exc:
            raise SchedulerUnavailable(f"app {app_id} could not be deleted: {exc}") from exc

    def _remove(self, namespace: str, base: str, as_jobset: bool, *, keep_record: bool = False) -> None:
        if as_jobset:  # before its Jobs, which it would make again; one of that name may be somebody else's
            found = self._cluster.get("JobSet", namespace, base)
            if found is not None and is_of(found, base):
                self._cluster.delete("JobSet", namespace, base)
        for job in self._items("Job", namespace, f"{names.LABEL_APP}={base}"):
            self._cluster.delete("Job", namespace, job["metadata"]["name"])
        for kind in ("Secret", "Service"):
            for item in self._items(kind, namespace, f"{names.LABEL_APP}={base}"):
                self._cluster.delete(kind, namespace, item["metadata"]["name"])
        if not keep_record:
            self._cluster.delete("ConfigMap", namespace, base)


def _unexplained(status: AppStatus) -> bool:
    return status.state in (AppState.PENDING, AppState.SUBMITTED) and not status.msg


def _shown(app: AppDef) -> AppDef:
    app = copy.deepcopy(app)
    for role in app.roles:
        role.env = masked_env(role.env)
    return app


def _refused(app_id: str, exc: Exception) -> SubmitError | SchedulerUnavailable:
    if isinstance(exc, SchedulerUnavailable):
        return exc
    status = exc.status if isinstance(exc, ClusterError) else 0
    hint = "; the user may not do it" if status in _FORBIDDEN else ""
    if status == 404 and "requested resource" in str(exc):
        hint = "; run option jobset needs JobSet installed on the cluster (jobset.x-k8s.io/v1alpha2)"
    # a conflict that is not about the name, such as that of a quota's count, passes
    transient = status == 429 or status >= 500 or (isinstance(exc, ClusterError) and exc.reason == "Conflict")
    return SubmitError(f"app {app_id} was not started: {exc}{hint}", transient=transient)
