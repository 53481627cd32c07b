"""The record of a job, a ConfigMap on its cluster.

It is also the lock of a submit: only the process that creates the record submits the job.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from transload.schedulers.api import damaged_message
from transload.specs import AppStatus, CfgVal, SpecError
from transload_kubernetes import names, states

SCHEMA: Final = 1
APP: Final = "app"
DELETED: Final = "deleted"
GRAVESTONE: Final = {"metadata": {"labels": {names.LABEL_RECORD: DELETED}}, "data": None}
"""Change after which a record only says that its id was used, and by which job."""
MADE: Final = "made."
"""Prefix of the record's keys for Jobs of later attempts."""
INTERRUPTED: Final = "interrupted"
"""Value of such a key for an attempt that an interruption, and no failure, has begun."""
_OF_ENDS: Final = ("exitCode", "reason", "message")
ENDS: Final = "ends."
"""Prefix of the record's keys for the ends of a replica's programs, which hold their results."""
_MOST_ENDS: Final = 1 << 17
"""Characters of such ends that are kept of a job, as a record may have 1 MiB."""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """How to run a role."""

    name: str
    replicas: int
    needed: int  # how many must succeed
    retries: int = 0  # how often it may be restarted
    policy: str = "REPLICA"  # what is restarted, by the Job for REPLICA
    checkpoints: bool = False  # whether it has a folder for checkpoints


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a job is being ended."""

    kind: str  # ``cancel`` or ``failed``
    msg: str = ""  # for a person
    seen: str = ""  # the status as JSON, where what tells of its replicas is deleted to end it


@dataclass(slots=True)
class Plan:
    """The contents of a job's record.

    Attributes:
        session: the session that submitted it.
        created: when it was submitted, in seconds since the epoch.
        jobs: its Jobs of the first attempt, without secrets, or none for a JobSet.
        id_given: whether the caller gave the id.
        timeout: seconds for the whole job, or None for no limit.
        jobset: whether it is a JobSet.
        checkpoints: the name under which its checkpoints are kept, or None if it has none.
        asked: who asked, in an orchestrator's words, or None if it said nothing.
    """

    app_id: str
    name: str
    digest: str
    session: str
    created: float
    roles: list[RolePlan]
    jobs: list[dict[str, Any]] = field(default_factory=list)
    id_given: bool = False
    cfg: dict[str, CfgVal] = field(default_factory=dict)
    tracker_base: str | None = None
    timeout: float | None = None
    jobset: bool = False
    parent_run_id: str | None = None
    checkpoints: str | None = None
    asked: dict[str, Any] | None = None

    @property
    def queue(self) -> str:
        """The queue that decides when its Jobs are suspended, or ``""``."""
        return str(self.cfg.get("queue") or "")


@dataclass(slots=True)
class Facts:
    """What a cluster says about a job.

    Attributes:
        record: its ConfigMap, or None if there is none.
        jobs: its Jobs.
        pods: its pods.
        notes: why it waits, from events.
        causes: by name of a pod, the error of its program, if a log says more than the pod.
        jobset: its JobSet.
        set_hidden: whether it has a JobSet that this user may not see.
        plan: the contents of the record, or None if there is no such job, or they are not
            understood.
        stop: why it is being ended, or None if it is not.
        ended: its final status, once it was noted.
        unreadable: why its record is not understood, or ``""`` if it is.
        newer: whether a newer version wrote the record, so that it is not understood.
    """

    record: dict[str, Any] | None = None
    jobs: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    causes: dict[str, str] = field(default_factory=dict)
    jobset: dict[str, Any] | None = None
    set_hidden: bool = False
    plan: Plan | None = field(init=False, default=None)
    stop: Stop | None = field(init=False, default=None)
    ended: AppStatus | None = field(init=False, default=None)
    unreadable: str = field(init=False, default="")
    newer: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Read the record."""
        if self.kind != APP:
            return
        try:
            values = json.loads(self.data["plan"])
            schema = values.pop("schema")
            if schema > SCHEMA:
                self.newer = True
                newer = f"was written by a newer version of transload (schema {schema}; this one reads {SCHEMA})"
                self.unreadable = f"its record, {self._where}, {newer}"
                return
            if "stop" in self.data:
                self.stop = Stop(**json.loads(self.data["stop"]))
            if "ended" in self.data:
                self.ended = AppStatus.from_json(self.data["ended"])
            plan = _read_plan(values)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            self.unreadable = damaged_message(f"its record, {self._where},")
            return
        self.plan = plan

    @property
    def _where(self) -> str:
        metadata = (self.record or {}).get("metadata") or {}
        return f"ConfigMap {metadata.get('name')} of namespace {metadata.get('namespace')}"

    @property
    def app_id(self) -> str:
        """The id of the job, which is known even if its record is not understood."""
        if self.plan is not None:
            return self.plan.app_id
        metadata = (self.record or {}).get("metadata") or {}
        place = metadata.get("namespace", ""), metadata.get("name", "")
        noted = str((metadata.get("annotations") or {}).get(names.ANNOTATION_APP_ID, ""))
        with contextlib.suppress(SpecError):
            if noted and names.place(noted) == place:
                return noted
        return ":".join(place)

    def age(self, now: float) -> float:
        """Return how many seconds ago the job was submitted, at a time of the cluster's clock."""
        metadata = (self.record or {}).get("metadata") or {}
        made = states.seconds(metadata.get("creationTimestamp"))
        if made is None and self.plan is not None:
            made = self.plan.created  # by the submitter's clock
        return now - (made or 0.0)

    @property
    def is_queued(self) -> bool:
        """Whether a queue decides when its Jobs are suspended, the default one of a webhook too."""
        if self.plan is not None and self.plan.queue:
            return True
        things = [*self.jobs, self.jobset or {}]
        return any(names.QUEUE in names.labels_of(thing) for thing in things)

    @property
    def is_deleted_on_cancel(self) -> bool:
        """Whether a cancel deletes its Jobs or JobSet, since a suspended one would not stay so or not go."""
        if self.plan is None:
            return False
        return self.is_queued or (self.plan.jobset and self.plan.cfg.get("ttl") is not None)

    @property
    def data(self) -> Mapping[str, str]:
        """The data of the record."""
        return (self.record or {}).get("data") or {}

    @property
    def kind(self) -> str | None:
        """``app`` or ``deleted``, or None if there is no record."""
        if self.record is None:
            return None
        kind: str = (self.record["metadata"].get("labels") or {}).get(names.LABEL_RECORD, APP)
        return kind

    @property
    def is_complete(self) -> bool:
        """Whether a submit has created all objects of the job."""
        return self.kind == APP and bool(self.data.get("submitted"))

    def made(self, role: str) -> set[names.Attempt]:
        """Return the later attempts of a role for which the record notes a Job."""
        start = f"{MADE}{names.role_label(role)}."
        return {
            names.read_attempt(key.removeprefix(start))
            for key in self.data
            if key.startswith(start)
        }

    def ends(self, role: str, k: int) -> list[dict[str, Any]]:
        """Return the noted ends of a replica's programs, oldest first."""
        noted: list[dict[str, Any]] = json.loads(self.data.get(_ends_key(role, k), "[]"))
        return noted


def _read_plan(values: dict[str, Any]) -> Plan:
    """Return the plan in a record, without unknown fields."""
    roles = [RolePlan(**role) for role in values["roles"]]
    known = {each.name for each in fields(Plan)} - {"roles"}
    given = {name: value for name, value in values.items() if name in known}
    plan = Plan(roles=roles, **given)
    _check(plan)
    return plan


def _check(plan: Plan) -> None:
    """Raise ValueError if a field has the wrong type."""
    if plan.checkpoints is not None and not isinstance(plan.checkpoints, str):
        raise ValueError("a text has another type")
    texts = [plan.app_id, plan.name, plan.digest, plan.session, *(role.name for role in plan.roles)]
    counts = [
        number for role in plan.roles for number in (role.replicas, role.needed, role.retries)
    ]
    numbers = [plan.created, plan.timeout or 0.0, *counts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a text has another type")
    if not all(isinstance(number, int | float) for number in numbers):
        raise ValueError("a number has another type")
    if plan.asked is not None and not isinstance(plan.asked, dict):
        raise ValueError("who asked has another type")
    if not isinstance(plan.cfg, dict) or not all(isinstance(job, dict) for job in plan.jobs):
        raise ValueError("the options or the Jobs have another type")


def _ends_key(role: str, k: int) -> str:
    return f"{ENDS}{names.role_label(role)}.{k}"


def ends_to_note(pods: Mapping[tuple[str, int], list[dict[str, Any]]]) -> dict[str, str]:
    """Return keys and values of a record that keep what programs reported through their pods' status.

    Nothing is kept if that is too much, or if no program has reported anything.

    Args:
        pods: those of each replica, given by its role and number, oldest first.
    """
    found: dict[str, str] = {}
    for (role, k), own in pods.items():
        ends = [states.program(pod, "terminated") for pod in own]
        kept = [{name: end[name] for name in _OF_ENDS if name in end} for end in ends if end]
        if kept:
            found[_ends_key(role, k)] = json.dumps(kept)
    if sum(map(len, found.values())) > _MOST_ENDS:
        return {}
    return found


def record(base: str, namespace: str, plan: Plan, app_json: str) -> dict[str, Any]:
    """Return the ConfigMap of a job."""
    labels = {**names.id_labels(plan.app_id), names.LABEL_RECORD: APP}
    annotations = {names.ANNOTATION_APP_ID: plan.app_id, names.ANNOTATION_DIGEST: plan.digest}
    data = {"plan": json.dumps({"schema": SCHEMA, **asdict(plan)}), "app": app_json}
    metadata = {"name": base, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
