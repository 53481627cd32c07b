"""What is kept of an app on its cluster: one ConfigMap, the record. It is also the lock: who makes it, submits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from transload.specs import AppStatus, CfgVal
from transload_kubernetes import names

SCHEMA: Final = 1
APP: Final = "app"
DELETED: Final = "deleted"
MADE: Final = "made."
"""How keys of the record begin that tell of Jobs of later attempts."""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """How a role is run."""

    name: str
    replicas: int
    needed: int  # how many must end well
    retries: int = 0  # how often it may be started again
    policy: str = "REPLICA"  # what is started again; REPLICA is the Job's own doing


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an app is being ended."""

    kind: str  # ``cancel`` or ``failed``
    msg: str = ""  # for a person
    seen: str = ""  # the status as JSON, where what tells of its replicas is deleted to end it


@dataclass(slots=True)
class Plan:
    """The record of an app, read."""

    app_id: str
    name: str
    digest: str
    session: str  # who submitted it
    created: float  # when, seconds since the epoch
    roles: list[RolePlan]
    jobs: list[dict[str, Any]] = field(default_factory=list)  # first attempt, without secrets; none for a JobSet
    id_given: bool = False  # the id is the caller's
    cfg: dict[str, CfgVal] = field(default_factory=dict)
    tracker_base: str | None = None
    timeout: float | None = None  # seconds for all of it
    grace: int = 30  # seconds that an ended pod may take
    jobset: bool = False
    others: list[tuple[str, str]] = field(default_factory=list)  # kind and name of what was made for it besides Jobs

    @property
    def queued(self) -> bool:
        """Whether a queue decides when its Jobs are suspended."""
        return bool(self.cfg.get("queue"))


@dataclass(slots=True)
class Facts:
    """What a cluster tells of an app."""

    record: dict[str, Any] | None = None  # its ConfigMap
    jobs: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # why things are stuck, from events
    jobset: dict[str, Any] | None = None

    @property
    def _data(self) -> Mapping[str, str]:
        return (self.record or {}).get("data") or {}

    @property
    def kind(self) -> str | None:
        """``app``, ``deleted``, or None where there is no record."""
        if self.record is None:
            return None
        kind: str = (self.record["metadata"].get("labels") or {}).get(names.LABEL_RECORD, APP)
        return kind

    def plan(self) -> Plan | None:
        """Return the plan; None if there is no such app.

        Raises:
            ValueError: if it was written by a version that this one does not understand.
        """
        if self.kind != APP:
            return None
        try:
            values = json.loads(self._data["plan"])
            if values.pop("schema") > SCHEMA:
                raise ValueError("it is of a newer version")
            roles = [RolePlan(**role) for role in values.pop("roles")]
            return Plan(roles=roles, **values)
        except (KeyError, TypeError) as exc:
            raise ValueError(f"it is not one of this version ({exc})") from exc

    def made(self, role: str) -> set[names.Attempt]:
        """Return the later attempts of a role whose Job was made, as far as that was noted."""
        start = f"{MADE}{names.role_label(role)}."
        return {names.read_attempt(key.removeprefix(start)) for key in self._data if key.startswith(start)}

    def as_jobset(self) -> bool:
        """Tell whether the app is run as a JobSet; False where its record cannot be read."""
        try:
            found = self.plan()
        except ValueError:
            return False
        return found is not None and found.jobset

    def app(self) -> str:
        """Return the app as JSON, ``""`` if it is not kept."""
        return self._data.get("app", "")

    def stop(self) -> Stop | None:
        """Return why it is being ended, or None."""
        text = self._data.get("stop")
        return Stop(**json.loads(text)) if text else None

    def ended(self) -> AppStatus | None:
        """Return its final status, once somebody has seen it."""
        text = self._data.get("ended")
        return AppStatus.from_json(text) if text else None

    def submitted(self) -> bool:
        """Tell whether all Jobs of the first attempt were made at some time."""
        return self._data.get("submitted") == "yes"


def record(base: str, namespace: str, plan: Plan, app_json: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the ConfigMap of an app."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": base,
            "namespace": namespace,
            "labels": {
                **labels,
                names.LABEL_MANAGED: names.MANAGED,
                names.LABEL_APP: base,
                names.LABEL_RECORD: APP,
            },
            "annotations": {names.ANNOTATION_APP_ID: plan.app_id, names.ANNOTATION_DIGEST: plan.digest},
        },
        "data": {"plan": json.dumps({"schema": SCHEMA, **asdict(plan)}), "app": app_json},
    }


def gravestone(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a deleted app: that its id was used, and for what."""
    metadata = old["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {**metadata["labels"], names.LABEL_RECORD: DELETED},
            "annotations": dict(metadata.get("annotations") or {}),
        },
    }
