"""What is kept of a job on the engine: the plan of its submit, and facts noted later.

Data only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, Final

SCHEMA: Final = 1

RECORD: Final = "app"
STOP: Final = "stop"
ENDED: Final = "ended"
DELETED: Final = "deleted"

_FIRST_SIGNAL: Final = 129
_WHEN_SET: Final = ("checkpoints",)


class NewerPlan(ValueError):
    """A plan that a newer version wrote: nothing is wrong with it, and it is left alone."""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """How a role is kept; the fields are those of `transload.specs.Role`."""

    name: str
    num_replicas: int
    min_replicas: int
    max_retries: int
    retry_policy: str
    retry_delay: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is needed to keep a job, whoever does it; written once, when the job is complete on
    the engine.

    Besides what `transload.schedulers.Submission` has:

    Args:
        uid: what this one submit is called, unlike any other.
        owner: whose keeper looks after it (host and state folder).
        created: when it was submitted, seconds since the epoch by the submitter's clock.
        timeout: seconds that it may take; None: no limit.
        grace: seconds between asking a replica to end and killing it.
        network: name of the network made for it; ``""`` if none was.
        results: folder of the host that was made for its results, ``""`` if none was.
        app: the job as JSON text, secret-looking values masked.
        checkpoints: the name under which its checkpoints are kept; None: it has none.
    """

    app_id: str
    uid: str
    owner: str
    roles: tuple[RolePlan, ...]
    created: float
    timeout: float | None = None
    grace: float = 10.0
    network: str = ""
    digest: str = ""
    session: str = ""
    name: str = ""
    id_given: bool = False
    tracker_base: str | None = None
    parent_run_id: str | None = None
    results: str = ""
    cfg: Mapping[str, Any] = field(default_factory=dict)
    app: str = ""
    checkpoints: str | None = None

    def to_json(self) -> str:
        """Return the plan as JSON text, without later fields that say nothing."""
        values = {"schema": SCHEMA, **asdict(self)}
        for name in _WHEN_SET:
            if values[name] is None:
                del values[name]
        return json.dumps(values, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what `to_json` wrote; unknown fields are ignored.

        Raises:
            NewerPlan: if a newer version wrote it.
            ValueError: if it is not a plan.
        """
        try:
            data = json.loads(text)
            if not isinstance(data, dict):
                raise ValueError("it is no JSON object")
            schema = data.get("schema", 0)
            if isinstance(schema, int) and schema > SCHEMA:
                raise NewerPlan(
                    f"was written by a newer version of transload (schema {schema}; this one reads "
                    f"{SCHEMA})"
                )
            data["roles"] = tuple(RolePlan(**role) for role in data["roles"])
            plan = Plan(**{key: data[key] for key in Plan.__slots__ if key in data})
        except (KeyError, TypeError, RecursionError) as exc:
            raise ValueError(f"not a plan: {exc!r}") from exc
        plan._check()
        return plan

    def _check(self) -> None:
        """Refuse what is of the wrong type, with ValueError."""
        texts = (
            self.app_id,
            self.uid,
            self.owner,
            self.network,
            self.digest,
            self.session,
            self.name,
            self.app,
            self.checkpoints or "",
        )
        numbers = (self.created, self.grace, self.timeout or 0.0)
        roles = [
            (role.name, role.retry_policy, role.num_replicas, role.min_replicas)
            for role in self.roles
        ]
        if not all(isinstance(text, str) for text in (*texts, self.results)):
            raise ValueError("not a plan: a text is none")
        if not all(isinstance(number, int | float) for number in numbers) or not isinstance(
            self.cfg, Mapping
        ):
            raise ValueError("not a plan: a number is none")
        for name, policy, count, least in roles:
            if not (isinstance(name, str) and isinstance(policy, str) and isinstance(count, int)):
                raise ValueError("not a plan: a role is none")
            if not isinstance(least, int):
                raise ValueError("not a plan: a role is none")

    def role(self, name: str) -> RolePlan:
        """Return a role; KeyError if there is none of that name."""
        return {role.name: role for role in self.roles}[name]


@dataclass(frozen=True, slots=True)
class Restarts:
    """What had been counted when a container was made.

    Args:
        app: how often the job had been started again.
        role: how often its role had been.
        replica: how often its replica had been, for failures of its own.
        row: how many failures in a row came before.
        peak, cpu: bytes of memory and milliseconds of processor time that the attempts before used;
            0: not known.
    """

    app: int = 0
    role: int = 0
    replica: int = 0
    row: int = 0
    peak: int = 0
    cpu: int = 0

    def to_text(self) -> str:
        """Return the form of a label."""
        return ".".join(map(str, astuple(self)))

    @staticmethod
    def from_text(text: str) -> Restarts:
        """Read `to_text`; nothing was started again if it is not of that form."""
        parts = text.split(".")
        if len(parts) == 6 and all(part.isdigit() for part in parts):
            return Restarts(*map(int, parts))
        return Restarts()


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a job, that is one attempt of a replica.

    Args:
        attempt: how often the replica had been started before.
        uid: the submit that it belongs to.
        status: what the engine calls its state.
        exit_code: exit status as the engine gives it; None while it runs.
        error: why the engine could not start it.
        oom: the kernel killed it for its memory limit.
        started, finished: seconds since the epoch, or None.
        said: what the program wrote to its error file, as `transload.retries.read_error` returns
            it.
        used: what it used, in JSON form; None: not known.
    """

    id: str
    name: str
    role: str
    replica: int
    attempt: int
    restarts: Restarts
    uid: str
    status: str
    exit_code: int | None = None
    error: str = ""
    oom: bool = False
    started: float | None = None
    finished: float | None = None
    said: str = ""
    used: dict[str, Any] | None = None


@dataclass(slots=True)
class Facts:
    """All that an engine knows of a job.

    Args:
        plan: its plan; None if there is no record, or it cannot be read.
        containers: all its containers, old attempts included.
        stop: why it is being ended: ``{"reason": …, "msg": …, "time": …, "owner": …}``; None: it is
            not.
        ended: its final status as `AppStatus` JSON text, once it was noted.
        deleted: the record that outlived it: ``{"digest": …}``.
        engine_since: when the engine was started last, seconds since the epoch; None: not looked
            up, or it cannot say.
        unread: what is said of a record that is there and cannot be read; "": there is none.
        newer: it cannot be read since a newer version wrote it.
    """

    plan: Plan | None = None
    containers: list[Container] = field(default_factory=list)
    stop: dict[str, Any] | None = None
    ended: str | None = None
    deleted: dict[str, Any] | None = None
    engine_since: float | None = None
    unread: str = ""
    newer: bool = False

    def killed(self) -> bool:
        """Tell whether a container ended by a signal, and the job's end was not noted yet."""
        return self.ended is None and any(
            (each.exit_code or 0) >= _FIRST_SIGNAL for each in self.containers
        )
