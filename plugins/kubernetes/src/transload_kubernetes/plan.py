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
    """How a role is run.

    Args:
        name: its name.
        replicas: how many.
        needed: how many must end well.
        retries: how often it may be started again.
        policy: what is started again; REPLICA is the Job's own doing.
    """

    name: str
    replicas: int
    needed: int
    retries: int = 0
    policy: str = "REPLICA"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an app is being ended.

    Args:
        kind: ``cancel`` or ``failed``.
        msg: for a person.
        seen: the status as JSON, where what tells of its replicas is deleted to end it.
    """

    kind: str
    msg: str = ""
    seen: str = ""


@dataclass(slots=True)
class Plan:
    """The record of an app, read.

    Args:
        app_id: id as submitted.
        name: name of the app.
        digest: digest of the app.
        session: who submitted it.
        created: when, seconds since the epoch.
        roles: how its roles are run.
        jobs: the Job of each role in its first attempt; no secret is in them. Empty for a JobSet.
        jobset: it is run as a JobSet.
        others: kind and name of what was made for it besides Jobs.
        id_given: the id is the caller's.
        cfg: its run options.
        tracker_base: where it reports.
        timeout: seconds for all of it.
        grace: seconds that an ended pod may take.
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
    grace: int = 30
    jobset: bool = False
    others: list[tuple[str, str]] = field(default_factory=list)

    @property
    def queued(self) -> bool:
        """Whether a queue decides when its Jobs are suspended."""
        return bool(self.cfg.get("queue"))


@dataclass(slots=True)
class Facts:
    """What a cluster tells of an app.

    Args:
        record: its ConfigMap, or None.
        jobs: its Jobs.
        pods: its pods.
        notes: why things are stuck, from events.
        jobset: its JobSet, or None.
    """

    record: dict[str, Any] | None = None
    jobs: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
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
