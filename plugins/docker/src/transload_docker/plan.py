"""The facts of a job on the engine, which are the plan of its submit, and later notes.

This is data only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from typing import Any, ClassVar, Final

SCHEMA: Final = 1

RECORD: Final = "app"
STOP: Final = "stop"
ENDED: Final = "ended"
DELETED: Final = "deleted"
NOTICE: Final = "notice-"
"""What the kinds begin with that note a notice to containers."""
DELIVERED: Final = "delivered-"
"""What the kinds begin with that note that those of a notice were all sent their signal."""

GRACE_S: Final = 5.0
"""Seconds between asking a replica without a notice to end, and killing it."""

_FIRST_SIGNAL: Final = 129
_NUMBERS: Final = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "USR1": 10,
    "USR2": 12,
    "ALRM": 14,
    "TERM": 15,
    "CONT": 18,
    "URG": 23,
    "XCPU": 24,
    "WINCH": 28,
}
"""Numbers of signals on Linux, which containers run on, whatever this machine is."""
_WHEN_SET: Final = ("checkpoints", "progress", "asked")
_LATER: Final = (
    "max_interruptions",
    "notice",
    "notice_signal",
    "checkpoints",
    "stall_after",
    "on_stall",
    "stall_signal",
)


def signal_number(name: str) -> int:
    """Return the number of a signal, named without ``SIG``, on the engine's machine."""
    return _NUMBERS[name]


class NewerPlan(ValueError):
    """A plan that a newer version wrote. Nothing is wrong with it, and it is left alone."""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """How a role is kept. The fields are those of `transload.specs.Role`.

    Args:
        notice: seconds that it may go on after its notice, or None if it has none.
    """

    name: str
    num_replicas: int
    min_replicas: int
    max_retries: int
    retry_policy: str
    retry_delay: float = 1.0
    max_interruptions: int = 0
    notice: float | None = None
    notice_signal: str = "TERM"
    checkpoints: bool = False
    stall_after: float | None = None
    on_stall: str = "note"
    stall_signal: str = "USR1"

    def check(self) -> None:
        """Refuse what is of the wrong type among the later fields, with ValueError."""
        numbers = (self.max_interruptions, self.notice or 0, self.stall_after or 0)
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError("not a plan: a number of a role is none")
        if self.notice_signal not in _NUMBERS or self.stall_signal not in _NUMBERS:
            raise ValueError("not a plan: a signal of a role is none")

    def as_dict(self) -> dict[str, Any]:
        """Return its JSON form, without later fields that say nothing."""
        values = asdict(self)
        for each in fields(self):
            if each.name in _LATER and values[each.name] == each.default:
                del values[each.name]
        return values

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> RolePlan:
        """Read what `as_dict` returned, and ignore unknown fields."""
        known = {each.name for each in fields(RolePlan)}
        return RolePlan(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is needed to keep a job, whoever does it.

    It is written once, when the job is complete on the engine. Besides what
    `transload.schedulers.Submission` has:

    Args:
        uid: what this one submit is called, unlike any other.
        owner: whose supervisor looks after it (host and state folder).
        created: when it was submitted, seconds since the epoch by the submitter's clock.
        timeout: seconds that it may take, or None for no limit.
        grace: seconds between asking a replica without a notice to end, and killing it.
        network: name of the network made for it, or ``""`` if none was.
        results: folder of the host that was made for its results, or ``""`` if none was.
        app: the job as JSON text, secret-looking values masked.
        checkpoints: the name under which its checkpoints are kept, or None if it has none.
        progress: folder of the host that is mounted for what its replicas report of their progress.
            With None, they report it in a file of their own.
        asked: who asked, in an orchestrator's words, or None if it said nothing.
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
    progress: str | None = None
    asked: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        """Return the plan as JSON text, without later fields that say nothing."""
        values = {"schema": SCHEMA, **asdict(self)}
        values["roles"] = [role.as_dict() for role in self.roles]
        for name in _WHEN_SET:
            if values[name] is None:
                del values[name]
        return json.dumps(values, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what `to_json` wrote, and ignore unknown fields.

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
            data["roles"] = tuple(RolePlan.from_dict(role) for role in data["roles"])
            plan = Plan(**{key: data[key] for key in Plan.__slots__ if key in data})
        except (KeyError, TypeError, AttributeError, RecursionError) as exc:
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
            self.progress or "",
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
        if not isinstance(self.asked or {}, Mapping):
            raise ValueError("not a plan: who asked is no object")
        name = self.checkpoints
        if name is not None and (os.path.basename(name) != name or name in ("", ".", "..")):
            raise ValueError("not a plan: its checkpoints are another folder's")
        for name, policy, count, least in roles:
            if not (isinstance(name, str) and isinstance(policy, str) and isinstance(count, int)):
                raise ValueError("not a plan: a role is none")
            if not isinstance(least, int):
                raise ValueError("not a plan: a role is none")
        for role in self.roles:
            role.check()

    def seconds_to_end(self, role: str) -> float:
        """Return the seconds between asking a replica to end and killing it."""
        notice = self.role(role).notice
        if notice is None:
            return self.grace
        return notice

    def role(self, name: str) -> RolePlan:
        """Return a role.

        Raises:
            KeyError: if there is none of that name.
        """
        return {role.name: role for role in self.roles}[name]


@dataclass(frozen=True, slots=True)
class Restarts:
    """The counts at the time when a container was made.

    Args:
        app: how often the job had been started again.
        role: how often its role had been.
        replica: how often its replica had been, for its own failures.
        row: how many failures in a row came before.
        peak, cpu: bytes of memory and milliseconds of processor time that the attempts before used,
            or 0 if not known.
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
        """Read what `to_text` returned.

        A text of another form means that nothing was started again.
        """
        parts = text.split(".")
        if len(parts) == 6 and all(part.isdigit() for part in parts):
            return Restarts(*map(int, parts))
        return Restarts()


@dataclass(frozen=True, slots=True)
class Interruptions:
    """What had been counted of interruptions when a container was made.

    Args:
        replica: how often its replica had been started again after one.
        own: how many of these were its own, counted against its role's.
        counts: those of the job, by what they were counted for (`transload.keeper.rules.Gang`).
        earlier: the attempts before, in JSON form (`transload.specs.ReplicaAttempt`).
        msg: what interrupted it last, in words.
        time: when that was decided, seconds since the epoch.
    """

    replica: int = 0
    own: int = 0
    counts: Mapping[str, Any] = field(default_factory=dict)
    earlier: Sequence[dict[str, Any]] = ()
    msg: str = ""
    time: float = 0.0

    def to_text(self) -> str:
        """Return the form of a label."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_text(text: str) -> Interruptions | None:
        """Read what `to_text` returned, or None if it has another form, or none was counted."""
        try:
            data = json.loads(text) if text else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(data, dict):
            return None
        empty = Interruptions()
        known = {}
        for each in fields(Interruptions):
            default = getattr(empty, each.name)
            value = data.get(each.name, default)
            is_list = isinstance(value, list) and each.name == "earlier"
            if not is_list and not isinstance(value, _TYPES[each.name]):
                return None
            known[each.name] = value
        return Interruptions(**known)


_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "replica": int,
    "own": int,
    "counts": dict,
    "earlier": (list, tuple),
    "msg": str,
    "time": (int, float),
}


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice to containers that is noted on the engine, before it is sent.

    Args:
        key: what tells it from other ones of the job.
        ids: beginnings of the ids of the containers that get it.
        time: when it was noted, seconds since the epoch.
        cause: ``""`` if the end of the job's time is near, or ``end`` if they are to be ended.
        owner: who sends it.
    """

    key: str
    ids: tuple[str, ...]
    time: float
    cause: str
    owner: str

    ID_LENGTH: ClassVar[int] = 16

    def is_for(self, container: Container) -> bool:
        """Tell whether a container gets it."""
        return container.id[: self.ID_LENGTH] in self.ids

    def to_text(self) -> str:
        """Return what is noted."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_object(key: str, data: Mapping[str, Any]) -> Notice:
        """Read what was noted.

        Raises:
            ValueError: if it is of another form.
        """
        ids = data.get("ids")
        time = data.get("time")
        if not isinstance(ids, list) or not isinstance(time, int | float):
            raise ValueError("not a notice")
        cause = str(data.get("cause", ""))
        return Notice(key, tuple(map(str, ids)), float(time), cause, str(data.get("owner", "")))


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a job, that is one attempt of a replica.

    Args:
        attempt: how often the replica had been started before.
        uid: the submit that it belongs to.
        status: what the engine calls its state.
        exit_code: exit status as the engine gives it, or None while it runs.
        error: why the engine could not start it.
        oom: the kernel killed it for its memory limit.
        started, finished: seconds since the epoch, or None.
        said: what the program wrote to its error file, as `transload.keeper.failures.read_error` returns
            it.
        used: what it used, in JSON form, or None if not known.
        interruptions: what had been counted of interruptions when it was made, or None for nothing.
        asked_to_end: when somebody else, as by ``docker stop``, sent it its stop signal, seconds
            since the epoch. It is looked up only where its exit code asks for it.
        was_stopped: the engine was asked to stop it, and so was sure to end it. It is looked up
            likewise.
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
    interruptions: Interruptions | None = None
    asked_to_end: float | None = None
    was_stopped: bool = False


@dataclass(slots=True)
class Facts:
    """All that an engine knows of a job.

    Args:
        plan: its plan, or None if there is no record, or it cannot be read.
        containers: all its containers, old attempts included.
        stop: why it is being ended: ``{"reason": …, "msg": …, "time": …, "owner": …, "failed": …}``,
            or None if it is not.
        ended: its final status as `AppStatus` JSON text, once it was noted.
        deleted: the record that outlived it: ``{"digest": …}``.
        engine_since: when the engine was started last, seconds since the epoch, or None if not
            looked up, or it cannot say.
        unread: what is said of a record that is there and cannot be read, or "" if there is none.
        newer: it cannot be read since a newer version wrote it.
        notices: those to its containers.
        delivered: keys of the notices of which all signals were sent.
        kinds: of all that is noted of it.
        signs: what its supervisor saw of its progress and of stalls, in JSON form: ``progress``,
            ``steps`` (by ``role/replica``), ``stalled``.
    """

    plan: Plan | None = None
    containers: list[Container] = field(default_factory=list)
    stop: dict[str, Any] | None = None
    ended: str | None = None
    deleted: dict[str, Any] | None = None
    engine_since: float | None = None
    unread: str = ""
    newer: bool = False
    notices: list[Notice] = field(default_factory=list)
    delivered: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    signs: dict[str, Any] = field(default_factory=dict)

    def notice_to(self, container: Container) -> Notice | None:
        """Return the first notice to a container, or None if it had none."""
        own = [each for each in self.notices if each.is_for(container)]
        return min(own, key=lambda each: each.time, default=None)

    def undelivered(self, owner: str) -> list[Notice]:
        """Return the notices of an owner who may have died before all signals were sent."""
        return [
            each for each in self.notices if each.owner == owner and each.key not in self.delivered
        ]

    def killed(self) -> bool:
        """Tell whether a container ended by a signal, and the job's end was not noted yet."""
        return self.ended is None and any(
            (each.exit_code or 0) >= _FIRST_SIGNAL for each in self.containers
        )
