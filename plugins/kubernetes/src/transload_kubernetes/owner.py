"""Look after a job while this process waits for it as its owner, and end jobs.

Every step is safe to repeat. Several processes may do it at the same time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Final

from transload.errors import SchedulerUnavailable, SubmitError
from transload.schedulers.cancelling import request_text
from transload_kubernetes import convert, explain, hold, interruptions, names, plan, states
from transload_kubernetes.cluster import Cluster, ClusterError
from transload_kubernetes.create import create, let_run, owned
from transload_kubernetes.decide import Decision, decide
from transload_kubernetes.lookup import Lookup
from transload_kubernetes.plan import Facts, Plan, Stop
from transload_kubernetes.roles import replica_pods

_ROUNDS: Final = 4


class Owner:
    """Does the steps for a job that the controllers of a cluster cannot do."""

    def __init__(self, cluster: Cluster, lookup: Lookup) -> None:
        self._cluster = cluster
        self._lookup = lookup

    # -- decisions

    def decision(self, app_id: str, facts: Facts, *, explained: bool = False) -> Decision:
        """Return the decision on a job that has a record.

        Args:
            app_id: the job.
            facts: the cluster's facts about it.
            explained: also look for a reason in events and logs, if the job's objects do not say
                why it waits or has failed.
        """
        found = decide(facts, self._cluster.now())
        if not explained or facts.notes or facts.causes:
            return found
        namespace, _ = names.parse_app_id(app_id)
        if explain.is_unexplained(found.status, facts):
            facts.notes = explain.why_it_waits(self._cluster, namespace, facts)
        elif found.note:
            bad = found.status.first_failure()
            if bad is not None:
                facts.causes = explain.error_by_pod(self._cluster, namespace, facts, bad)
        if facts.notes or facts.causes:
            return decide(facts, self._cluster.now())
        return found

    def reconcile(self, app_id: str) -> None:
        """Do the steps that are left to do for a job.

        The process that waits for the job as its owner calls this, and so does the one that has
        just cancelled it.
        """
        namespace, _ = names.parse_app_id(app_id)
        for _ in range(_ROUNDS):
            facts = self._lookup.facts(app_id)
            if facts.kind != plan.APP:
                return
            decision = self.decision(app_id, facts, explained=True)
            if not decision.due:
                return
            self._carry_out(namespace, facts, decision)
            if decision.note:
                return

    def _carry_out(self, namespace: str, facts: Facts, decision: Decision) -> None:
        """Carry out a decision."""
        if decision.stop is not None:
            self._note_stop(namespace, facts, decision.stop)
        for kind, name in decision.end:
            self._end(namespace, facts, decision, kind, name)
        for thing in decision.start:
            let_run(self._cluster, namespace, thing, facts)
        for role, attempt in decision.restart:
            try:
                self._make_job(
                    namespace,
                    facts,
                    role,
                    attempt,
                    after_interruption=decision.after_interruption,
                )
            except SubmitError as exc:  # an object of another owner has the name and keeps it
                why = f"role {role} could not be started again: {exc}"
                self._note_stop(namespace, facts, Stop("failed", why))
                return
            key = f"{plan.MADE}{names.role_label(role)}.{names.attempt_text(attempt)}"
            why = plan.INTERRUPTED if decision.after_interruption else "yes"
            self._note(namespace, facts, key, why)
        if decision.note:
            self._note_end(namespace, facts, decision)

    def _end(self, namespace: str, facts: Facts, decision: Decision, kind: str, name: str) -> None:
        """End the pods of a Job or JobSet that run. Those that have ended stay, with their logs."""
        stop = facts.stop or decision.stop
        is_cancelled = stop is not None and stop.kind == "cancel"
        if facts.is_queued or (is_cancelled and facts.is_deleted_on_cancel):
            self._cluster.delete(kind, namespace, name, "Foreground")
            return
        is_over = stop is not None or facts.ended is not None or decision.note
        job = next((each for each in facts.jobs if each["metadata"]["name"] == name), None)
        change = hold.OFF
        if kind == "Job" and job is not None and is_over and hold.goes_by_itself(job):
            change = hold.FINISH
        self._cluster.patch(kind, namespace, name, change)

    def _make_job(
        self,
        namespace: str,
        facts: Facts,
        role: str,
        attempt: names.Attempt,
        *,
        after_interruption: bool,
    ) -> None:
        """Make the Job of a role for a later attempt."""
        assert facts.plan is not None
        assert facts.record is not None
        jobs = zip(facts.plan.jobs, facts.plan.roles, strict=True)
        first = next(job for job, each in jobs if each.name == role)
        base = facts.record["metadata"]["name"]
        left = _seconds_left(facts.plan, facts, self._cluster.now())
        of_role = next(each for each in facts.plan.roles if each.name == role)
        interrupted = interruptions.of_attempts(facts, of_role) + int(after_interruption)
        job = convert.later_attempt(first, base, role, attempt, left, interrupted)
        create(self._cluster, namespace, owned(job, facts.record))

    # -- notes in the record

    def _note_stop(self, namespace: str, facts: Facts, stop: Stop) -> None:
        """Note in the record why a job is being ended, unless a reason is there already."""
        if facts.is_deleted_on_cancel:
            stop = replace(stop, seen=decide(facts, self._cluster.now()).status.to_json())
        self._note(namespace, facts, "stop", json.dumps(asdict(stop)))

    def _note_end(self, namespace: str, facts: Facts, decision: Decision) -> None:
        """Note the final status of a job in its record."""
        assert facts.plan is not None
        pods = {
            (role.name, k): replica_pods(facts, role.name, k)
            for role in facts.plan.roles
            for k in range(role.replicas)
        }
        # the cluster, or somebody else, may remove the pods at any time
        self._note(namespace, facts, "ended", decision.status.to_json(), plan.ends_to_note(pods))

    def _note(
        self,
        namespace: str,
        facts: Facts,
        key: str,
        value: str,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Add values to the record of a job, unless the record already has that key."""
        record = facts.record or {}
        while not (record.get("data") or {}).get(key):
            name = record["metadata"]["name"]
            version = record["metadata"]["resourceVersion"]
            change = {
                "metadata": {"resourceVersion": version},
                "data": {key: value, **(more or {})},
            }
            try:
                self._cluster.patch("ConfigMap", namespace, name, change)
                return
            except ClusterError as exc:
                if exc.status != 409:
                    raise
                latest = self._cluster.get("ConfigMap", namespace, name)
                if not latest:
                    raise
                record = latest

    # -- ending

    def cancel(self, app_id: str) -> bool:
        """Note that a job is to end, and suspend its Jobs, which ends their pods.

        Returns:
            False if there is no such job.
        """
        facts = self._lookup.facts(app_id)
        if facts.kind != plan.APP:
            return False
        status = self.decision(app_id, facts, explained=True).status
        if status.is_terminal():
            return True
        if facts.unreadable:
            self.end_damaged(app_id, facts, stay=True)
            return True
        namespace, _ = names.parse_app_id(app_id)
        try:
            waited = f"; until then: {why}" if (why := status.why_waiting()) else ""
            self._note_stop(namespace, facts, Stop("cancel", f"{request_text()}{waited}"))
            self.reconcile(app_id)
        except ClusterError as exc:
            raise SchedulerUnavailable(f"job {app_id} could not be cancelled: {exc}") from exc
        return True

    def end_damaged(self, app_id: str, facts: Facts, *, stay: bool = False) -> None:
        """End a job whose record is damaged.

        Args:
            app_id: the job.
            facts: the cluster's facts about it.
            stay: keep its Jobs, suspended. Otherwise they are deleted.

        Raises:
            SchedulerUnavailable: if a newer version wrote the record, or the cluster refuses.
        """
        if facts.newer:
            raise SchedulerUnavailable(f"job {app_id}: {facts.unreadable}")
        namespace, base = names.place(app_id)
        things = [("Job", job["metadata"]["name"]) for job in facts.jobs]
        finishing = {job["metadata"]["name"] for job in facts.jobs if hold.goes_by_itself(job)}
        if self._cluster.has_jobsets(namespace):
            # first the JobSet, which would make its Jobs again
            things = [("JobSet", base), *things]
        try:
            for kind, name in things:
                if not stay:
                    self._cluster.delete(kind, namespace, name, "Foreground")
                elif self._cluster.get(kind, namespace, name) is not None:
                    change = hold.FINISH if kind == "Job" and name in finishing else hold.OFF
                    self._cluster.patch(kind, namespace, name, change)
        except ClusterError as exc:
            raise SchedulerUnavailable(f"job {app_id} could not be ended: {exc}") from exc

    # -- deleting

    def forget_damaged(self, app_id: str) -> None:
        """Remove the rest of a job whose record was damaged.

        Its id cannot be used again, because the record does not say whether the caller gave it.
        """
        namespace, base = names.place(app_id)
        self._delete(app_id, namespace, base, _dependents(base), keep_id=True)

    def forget(self, app_id: str, facts: Facts) -> None:
        """Remove all objects of a job from the cluster.

        If the caller gave the id, an empty record of it stays.
        """
        namespace, base = names.place(app_id)
        assert facts.plan is not None
        # first the JobSet, which would make its Jobs again
        things: list[tuple[str, str]] = [("JobSet", base)] if facts.plan.jobset else []
        if not facts.plan.id_given:
            things.append(("ConfigMap", base))  # it owns the rest, which is deleted with it
        else:
            if not facts.plan.jobset:
                things += [("Job", job["metadata"]["name"]) for job in facts.jobs]
            things += _dependents(base)
        self._delete(app_id, namespace, base, things, keep_id=facts.plan.id_given)

    def _delete(
        self,
        app_id: str,
        namespace: str,
        base: str,
        things: list[tuple[str, str]],
        *,
        keep_id: bool,
    ) -> None:
        """Delete objects, given by kind and name. With ``keep_id`` an empty record stays."""
        try:
            if keep_id:
                self._cluster.patch("ConfigMap", namespace, base, plan.GRAVESTONE)
            for kind, name in things:
                self._cluster.delete(kind, namespace, name)
        except ClusterError as exc:
            raise SchedulerUnavailable(f"job {app_id} could not be deleted: {exc}") from exc


def _dependents(base: str) -> list[tuple[str, str]]:
    """Return the kind and the name of each object of a job that is not a Job."""
    return [
        ("Service", base),
        ("Service", names.rank0_name(base)),
        ("Secret", names.secret_name(base)),
    ]


def _seconds_left(made: Plan, facts: Facts, now: float) -> float | None:
    """Return the seconds that are left of a job's timeout, or None if it has none."""
    if made.timeout is None:
        return None
    starts = []
    for job in facts.jobs:
        start = states.seconds((job.get("status") or {}).get("startTime"))
        if start:
            starts.append(start)
    return made.timeout - (now - min(starts, default=now))
