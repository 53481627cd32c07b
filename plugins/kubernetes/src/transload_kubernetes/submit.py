"""Submit a job by creating all its objects on a cluster, or none.

The record comes first, and only one process can create it. All other objects belong to the record
and are deleted with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from transload.errors import AppExists, SchedulerUnavailable, SubmitError
from transload.schedulers.api import Submission
from transload_kubernetes import advice, checkpoints, convert, hold, names, plan
from transload_kubernetes.asked import with_asked
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.convert import KubernetesRequest
from transload_kubernetes.create import create, let_run, may_pass, owned
from transload_kubernetes.lookup import Lookup
from transload_kubernetes.owner import Owner
from transload_kubernetes.plan import Facts, Plan

_log = logging.getLogger("transload.kubernetes")
_WITHDRAW_S: Final = 30.0
_START_S: Final = 30.0
_NOT_WITHDRAWN: Final = (
    "; its objects could not be removed either, but they start only if it is submitted again"
)


class Submitter:
    """Submits jobs to a cluster."""

    def __init__(self, cluster: Cluster, lookup: Lookup, owner: Owner) -> None:
        self._cluster = cluster
        self._lookup = lookup
        self._owner = owner

    def submit(self, request: KubernetesRequest, app_id: str, submission: Submission) -> bool:
        """Start a job, or reattach to the one that has its id.

        Returns:
            Whether this call has started it.

        Raises:
            AppExists: if another job has the id.
            SchedulerUnavailable: if the cluster cannot be reached.
            SubmitError: if the cluster refuses the job.
        """
        request = with_asked(request, submission.asked)
        namespace = request.namespace
        base = request.base
        made = _plan_of(request, app_id, submission)
        try:
            app = submission.app.masked().to_json()
            record = self._cluster.create(plan.record(base, namespace, made, app), namespace)
        except ClusterError as exc:
            if exc.status == 409 and exc.reason != "Conflict":
                return self._reattach(request, app_id, submission)
            raise _refused(app_id, exc) from exc
        try:
            facts = self._make_all(request, record, submission)
        except BaseException as exc:  # also Ctrl-C, else no process would know about the job
            left = self._withdraw(namespace, base, insist=isinstance(exc, Exception))
            if not isinstance(exc, (ClusterError, SchedulerUnavailable, SubmitError)):
                raise
            if left is None:
                raise _refused(app_id, exc, _NOT_WITHDRAWN) from exc
            if not left.is_complete:
                raise _refused(app_id, exc) from exc
            # only the answer was lost, or another process has completed the submit
            facts = self._lookup.facts(app_id)
        try:
            self._start(app_id, facts)
        except BaseException as exc:
            left = self._withdraw(namespace, base, insist=isinstance(exc, Exception), complete=True)
            if not isinstance(exc, ClusterError):
                raise
            more = _NOT_WITHDRAWN if left is None else ""
            raise _refused(app_id, exc, more) from exc
        return True

    def _reattach(self, request: KubernetesRequest, app_id: str, submission: Submission) -> bool:
        """Reattach to the job that has this id, or refuse if it is another job.

        Returns:
            False, because the job was started before.
        """
        facts = self._lookup.facts(app_id)
        if facts.record is None:
            taken = f"ConfigMap {request.base} of namespace {request.namespace}"
            why = f"{taken} belongs to another owner, and this job needs that name"
            raise SubmitError(f"job {app_id}: {why}; choose another job id")
        if facts.unreadable:
            raise AppExists(app_id, f"job {app_id} exists: {facts.unreadable}")
        if facts.kind == plan.DELETED:
            why = "a job that has been deleted used this id"
            raise AppExists(app_id, f"job {app_id}: {why}; choose another")
        digest = names.annotations_of(facts.record).get(names.ANNOTATION_DIGEST)
        if digest != submission.digest:
            raise AppExists(app_id, f"job {app_id}: another job has this id; choose another")
        if facts.stop is not None or facts.ended is not None:
            return False
        try:
            if not facts.is_complete:  # the process that submitted it may have died
                facts = self._make_all(request, facts.record, submission)
            self._start(app_id, facts)
        except (ClusterError, SubmitError) as exc:
            raise _refused(app_id, exc) from exc
        return False

    def _make_all(
        self, request: KubernetesRequest, record: dict[str, Any], submission: Submission
    ) -> Facts:
        """Create all objects of a job, with its Jobs or JobSet on hold, and note it in the record.

        Returns:
            The facts of the job.
        """
        namespace = request.namespace
        checkpoints.check_claim(self._cluster, namespace, submission.app, submission.cfg)
        # the first Job is not created if the cluster would refuse a later one
        for job in request.jobs[1:]:
            create(self._cluster, namespace, owned(job, record), only_try=True)
        values = dict(request.hidden)
        for (role, variable), key in request.references.items():
            values[key] = submission.secrets.get(role, {}).get(variable, "")
        if values:
            self._create_secret(request, record, values)
        made: list[dict[str, Any]] = []
        for item in request.objects():
            held = hold.on_hold(owned(item, record), record["metadata"]["uid"])
            made.append(create(self._cluster, namespace, held))
        facts = Facts(self._note_complete(request))
        if facts.kind != plan.APP:
            # the record that the job was deleted stays. The objects, which do not run, must go.
            self._cluster.patch("ConfigMap", namespace, request.base, plan.GRAVESTONE)
            for item in made:
                self._cluster.delete(item["kind"], namespace, item["metadata"]["name"])
            raise SubmitError("it was deleted while it was being submitted")
        facts.jobs = [each for each in made if each["kind"] == "Job"]
        facts.jobset = next((each for each in made if each["kind"] == "JobSet"), None)
        return facts

    def _create_secret(
        self, request: KubernetesRequest, record: dict[str, Any], values: Mapping[str, str]
    ) -> None:
        secret = owned(convert.secret(request, values), record)
        try:
            create(self._cluster, request.namespace, secret)
        except ClusterError as exc:
            exc.of_secret = True
            raise

    def _note_complete(self, request: KubernetesRequest) -> dict[str, Any]:
        """Note in the record that all objects of a job exist, and return the record."""
        change = {"data": {"submitted": "yes"}}
        return self._cluster.patch("ConfigMap", request.namespace, request.base, change)

    def _start(self, app_id: str, facts: Facts) -> None:
        """Start a job whose objects all exist, unless it was asked to end in the meantime.

        The job counts as submitted. If the cluster cannot be reached, the process that waits for
        the job as its owner starts it.

        Raises:
            ClusterError: if the cluster refuses to start it.
        """
        namespace, _ = names.parse_app_id(app_id)
        try:
            if facts.stop is not None or facts.ended is not None:
                self._owner.reconcile(app_id)
                return
            for thing in hold.held(facts):
                let_run(self._cluster, namespace, thing, facts, patience=_START_S)
        except SchedulerUnavailable as exc:
            _log.warning(
                "job %s is submitted, but it may not start before a process waits for it: %s",
                app_id,
                exc,
            )

    def _withdraw(
        self, namespace: str, base: str, *, insist: bool, complete: bool = False
    ) -> Facts | None:
        """Remove the record of a failed submit, and with it all objects of the job.

        Args:
            namespace: that of the job.
            base: the name of the record.
            insist: try again for a while if the cluster cannot be reached.
            complete: also remove the record of a complete submit. Otherwise that stays.

        Returns:
            The record before its removal, empty if there was none, or None if it could not be
            removed.
        """
        deadline = time.monotonic()
        if insist:
            deadline += _WITHDRAW_S
        pause = 0.2
        while True:
            try:
                found = Facts(self._cluster.get("ConfigMap", namespace, base))
                if found.kind == plan.APP and (complete or not found.is_complete):
                    self._cluster.delete("ConfigMap", namespace, base)
                return found
            except (ClusterError, SchedulerUnavailable) as exc:
                if not may_pass(exc) or time.monotonic() >= deadline:
                    return None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


def _plan_of(request: KubernetesRequest, app_id: str, submission: Submission) -> Plan:
    """Return the contents of a job's record."""
    return Plan(
        app_id=app_id,
        name=submission.app.name,
        digest=submission.digest,
        session=submission.session,
        created=time.time(),
        roles=request.roles,
        jobs=request.jobs,
        id_given=submission.id_given,
        cfg=dict(submission.cfg),
        tracker_base=submission.tracker_base,
        timeout=request.timeout,
        jobset=request.jobset is not None,
        parent_run_id=submission.parent_run_id,
        checkpoints=submission.checkpoints,
        asked=dict(submission.asked) or None,
    )


def _refused(app_id: str, exc: Exception, more: str = "") -> SubmitError | SchedulerUnavailable:
    """Return the error of a submit that has failed, with ``more`` added to its message."""
    if isinstance(exc, SchedulerUnavailable):
        return SchedulerUnavailable(f"{exc}{more}") if more else exc
    text = f"job {app_id} was not started: {exc}{advice.on_error(exc)}{more}"
    transient = _is_transient(exc)
    of_secret = isinstance(exc, ClusterError) and exc.of_secret
    return SubmitError(text, transient=transient, secrets=of_secret and not transient)


def _is_transient(exc: Exception) -> bool:
    """Tell whether the same submit may succeed later."""
    if isinstance(exc, SubmitError):
        return exc.transient
    if not isinstance(exc, ClusterError):
        return False
    # a conflict that is not about the name is temporary, for example one about a quota's count
    return exc.status == 429 or exc.status >= 500 or exc.reason == "Conflict"
