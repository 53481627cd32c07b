"""Describe what a job, a role and a replica are doing."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from transload.errors import AppFailed, SpecError
from transload.specs.app import NONE
from transload.specs.checks import LATEST, refuse
from transload.specs.progress import Progress
from transload.specs.states import AppState, ReplicaState, is_started, is_terminal
from transload.specs.text import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transload.specs.app import AppDef

_T = TypeVar("_T")

_SURELY_LATE: Final = 1.1
"""A warning is due if the time needed is this many times as long as the time left."""
_SOON_S: Final = 5.0

_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
}
"""The types of JSON values that the fields of a status may have, by what is written there."""
_TIMES: Final = ("start_time", "end_time", "ends_by", "segment_ends", "time_limit")
_MOST: Final = 1 << 63

NEAR_LIMIT: Final = 0.9
"""The part of the requested memory from which a replica is near its limit."""


@dataclass
class ReplicaAttempt:
    """One attempt of a replica that was started again.

    Args:
        state: how it ended. It is FAILED, or CANCELLED if it was ended because of another replica.
        exit_code: as in `ReplicaStatus`.
        start_time: when it was started, seconds since the epoch.
        end_time: when it ended, seconds since the epoch.
        cause: why it ended. It is ``failed``, or what interrupted it (``preempted``, ``segment``,
            ``node``, ``evicted``, ``drained``, ``requested``), or None if its scheduler does not
            say.
        step: the step that it had reported last, or None.
    """

    state: AppState
    exit_code: int | None = None
    start_time: float | None = None
    end_time: float | None = None
    cause: str | None = None
    step: float | None = None

    WHEN_SET = ("cause", "step")


@dataclass
class Usage:
    """What was used, as far as the scheduler can tell.

    Args:
        peak_memory: bytes of main memory, at the most demanding moment, or None if not known.
        cpu_seconds: seconds of processor time, or None if not known.
    """

    peak_memory: int | None = None
    cpu_seconds: float | None = None


@dataclass
class ReplicaStatus:
    """Status of one replica.

    Args:
        id: its number within the role, from 0.
        state: what it is doing.
        role: name of its role.
        hostname: where it runs, or ``""`` if not known.
        structured_error_msg: an error as JSON text, or `NONE`.
        exit_code: exit status, −N for a death by signal N, or None while it runs or where it is not
            known. While it waits to be started again, that of its last attempt.
        start_time: when it was last started, seconds since the epoch.
        end_time: when it ended, seconds since the epoch.
        restarts: how often it was started again.
        earlier: the attempts before the latest, oldest first, as far as the scheduler keeps them.
        usage: what its attempts have used that have ended, all together, or None where nothing is
            known.
        attempt: the number of its latest attempt, as its program knows it (``TRANSLOAD_RETRY``),
            where that is not ``restarts``. An engine may start it again without counting that.
        interruptions: how often it was started again after an end that was nobody's fault. These
            are not among ``restarts``.
    """

    id: int
    state: ReplicaState
    role: str
    hostname: str
    structured_error_msg: str = NONE
    exit_code: int | None = None
    start_time: float | None = None
    end_time: float | None = None
    restarts: int = 0
    earlier: list[ReplicaAttempt] = field(default_factory=list)
    usage: Usage | None = None
    attempt: int | None = None
    interruptions: int = 0

    WHEN_SET = ("attempt", "interruptions")

    @property
    def latest_attempt(self) -> int:
        """Return the number of its latest attempt, as its program knows it."""
        if self.attempt is None:
            return self.restarts
        return self.attempt


@dataclass
class RoleStatus:
    """The status of one role, with that of each replica in order."""

    role: str
    replicas: list[ReplicaStatus]


@dataclass
class AppStatus:
    """Status of a job.

    Args:
        state: what it is doing.
        num_restarts: how often it, or a part of it, was started again.
        msg: why it is in that state, for a person.
        structured_error_msg: an error as JSON text, or `NONE`.
        ui_url: a page about the job, if there is one.
        roles: status of each role, of its latest attempt.
        cancel_requested: True once somebody asked to end it.
        progress: how far it is, or None if it does not say.
        time_limit: seconds that it may run, where its scheduler keeps a limit. None means no limit,
            or not known.
        ends_by: when its scheduler ends it at the latest, seconds since the epoch. None means no
            limit, or that its time does not run yet.
        stalled: True if a replica that runs gives no sign of life for too long, as ``msg`` says.
        segment_ends: when its present segment ends, after which it goes on in the next one, seconds
            since the epoch. None means that it has no segments, or that none runs.
        engine: by what names the tools of its engine know it, such as ``{"slurm_job": "4711",
            "nodes": "node[1-2]"}``, also when it has ended.
        failed: (role, replica) of the first that failed for good, where its scheduler says so (see
            `first_failure`).
    """

    state: AppState
    num_restarts: int = 0
    msg: str = ""
    structured_error_msg: str = NONE
    ui_url: str | None = None
    roles: list[RoleStatus] = field(default_factory=list)
    cancel_requested: bool = False
    progress: Progress | None = None
    time_limit: float | None = None
    ends_by: float | None = None
    stalled: bool = False
    segment_ends: float | None = None
    engine: dict[str, str] = field(default_factory=dict)
    failed: tuple[str, int] | None = None

    WHEN_SET = ("progress", "time_limit", "ends_by", "stalled", "segment_ends", "engine", "failed")

    def is_terminal(self) -> bool:
        """Tell whether the job has ended."""
        return is_terminal(self.state)

    def close(self, at: float | None = None, *, otherwise: float | None = None) -> None:
        """Set the missing end times of the replicas and attempts of a job that has ended.

        Args:
            at: when the job ended, at the latest, seconds since the epoch. None means the latest
                time
                in the status.
            otherwise: the end if the status has no time at all, seconds since the epoch. None means
                that there is none then.
        """
        if not self.is_terminal():
            return
        last = at
        if last is None:
            last = max(self._times(), default=otherwise)
        if last is None:
            return
        for replica in self._replicas():
            following = replica.start_time
            for attempt in reversed(replica.earlier):
                attempt.end_time = attempt.end_time or following or last
                following = attempt.start_time
            if replica.end_time is None:
                replica.end_time = max(last, replica.start_time or last)

    def _replicas(self) -> list[ReplicaStatus]:
        return [replica for role in self.roles for replica in role.replicas]

    def _times(self) -> list[float]:
        """Return all times at which a replica started or ended."""
        times = []
        for replica in self._replicas():
            times += [replica.start_time, replica.end_time]
        return [time for time in times if time is not None]

    @property
    def interruptions(self) -> int:
        """Return how often it, or a part of it, was started again after an interruption."""
        return max((replica.interruptions for replica in self._replicas()), default=0)

    @property
    def is_stalled(self) -> bool:
        """Return whether a running replica gave no sign of life for too long, as ``msg`` says."""
        return self.stalled is True and not self.is_terminal()

    def late_for_limit(self, now: float, deadline: float | None = None) -> str:
        """Return why the job will not end within its limit, by its own progress.

        Args:
            now: seconds since the epoch.
            deadline: when the orchestrator ends it, seconds since the epoch. None means that it
                does
                not. The nearer one of the two limits counts.

        Returns:
            The reason, or ``""`` if the job will end in time or that is not known.
        """
        if self.progress is None or self.is_terminal():
            return ""
        limits = [(self.ends_by, "its limit of time"), (deadline, "the orchestrator's time limit")]
        known = [(end, whose) for end, whose in limits if end is not None]
        if not known:
            return ""
        end, whose = min(known)
        needed = self.progress.left(now)
        left = end - now
        if needed is None or needed <= max(left * _SURELY_LATE, _SOON_S):
            return ""
        return (
            f"it will not end within {whose}: it needs {duration_text(needed)} more at "
            f"its present rate, and has {duration_text(max(0.0, left))}"
        )

    def why_waiting(self) -> str:
        """Return on one line why a job has not started yet, or ``""`` if that is not known."""
        if is_started(self.state) or self.state is AppState.UNKNOWN:
            return ""
        return " ".join(self.msg.split())

    def raise_for_status(self) -> None:
        """Raise unless the job succeeded.

        Raises:
            AppFailed: with this status, if the state is not SUCCEEDED.
        """
        if self.state is not AppState.SUCCEEDED:
            raise AppFailed(self)

    def first_failure(self) -> ReplicaStatus | None:
        """Return the replica that failed first, or None.

        Where its scheduler does not say which one that is, exit codes and times of ends decide.
        """
        for each in self._replicas():
            if (each.role, each.id) == self.failed:
                return each
        bad = [
            each
            for each in self._replicas()
            if each.state is AppState.FAILED or each.exit_code not in (None, 0)
        ]

        def rank(replica: ReplicaStatus) -> tuple[bool, float]:
            # a gang's others are ended by a signal after the first failure, so a replica's own exit
            # code comes first
            was_killed = (replica.exit_code or -1) < 0
            return was_killed, replica.end_time or float("inf")

        return min(bad, key=rank, default=None)

    def started_again(self, role: str, replica: int) -> float | None:
        """Return when the latest attempt of a replica began, seconds since the epoch.

        Returns:
            The time, or None if it is the replica's first attempt.
        """
        for each in self.roles:
            for one in each.replicas:
                again = one.restarts or one.interruptions
                if each.role == role and one.id == replica and again:
                    return one.start_time
        return None

    def usage(self) -> Usage:
        """Return what was used, retries included.

        It holds the peak memory of the replica that needed most, and the CPU time of all.
        """
        from transload.keeper.rules import total_usage

        known = [vars(each.usage) for each in self._replicas() if each.usage]
        return Usage(**total_usage(known))

    def seconds_since(self, created: float | None) -> float | None:
        """Return the seconds from a job's submit to the end of its last replica.

        Args:
            created: when it was submitted, seconds since the epoch. None means unknown.

        Returns:
            The seconds, or None if they are not known.
        """
        ends = [each.end_time for each in self._replicas() if each.end_time is not None]
        if created is None or not ends:
            return None
        return max(0.0, max(ends) - created)

    def short_of_memory(self, app: AppDef | None) -> list[str]:
        """Return a line for each role that used nearly all of the memory that it asked for.

        One that used more has a line, too.
        """
        if app is None:
            return []
        lines = []
        limits = {role.name: role.resource.memMB for role in app.roles}
        for role in self.roles:
            peaks = [(each.usage.peak_memory or 0, each.id) for each in role.replicas if each.usage]
            most, k = max(peaks, default=(0, 0))
            limit = limits.get(role.role, -1)
            if limit > 0 and most >= NEAR_LIMIT * limit * (1 << 20):
                lines.append(
                    f"{role.role}/{k} used {most >> 20} MB of memory, and asked for {limit} MB"
                )
        return lines

    def summary(self) -> str:
        """Return the state, the first replica that failed with its exit code, and the message.

        They stand on one line.
        """
        text = str(self.state)
        bad = self.first_failure()
        if bad is not None:
            text += f", {bad.role}/{bad.id} {exit_text(bad.exit_code)}"
        if self.msg:
            text += f": {self.msg}"
        return text

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the status as JSON text, states by name, with a ``schema`` number."""
        from transload.specs.serialization import SCHEMA, dump, to_value

        return dump({"schema": SCHEMA, **to_value(self)}, indent)

    @staticmethod
    def from_json(text: str | bytes) -> AppStatus:
        """Read what `to_json` wrote.

        Unknown fields are ignored, and an unknown state becomes UNKNOWN.

        Raises:
            SpecError: for text that is not JSON, or of a newer schema.
        """
        from transload.specs.serialization import load

        return AppStatus.from_dict(load(text, "AppStatus"))

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> AppStatus:
        """Read the JSON values of a status. Errors as in `from_json`."""
        from transload.specs.serialization import check_schema

        data = check_schema(values, "AppStatus")
        roles = data.get("roles", [])
        if not isinstance(roles, list):
            refuse("AppStatus.roles", roles, "must be a list")
        data["roles"] = [
            _role_status(role, f"AppStatus.roles[{index}]") for index, role in enumerate(roles)
        ]
        if data.get("progress") is not None:
            data["progress"] = Progress.from_value(data["progress"])
        data["engine"] = _texts(data.get("engine"))
        data["failed"] = _replica_name(data.get("failed"))
        return _part(AppStatus, data, "AppStatus")


def _role_status(data: Any, path: str) -> RoleStatus:
    allowed = "must be an object with the name of a role and a list of replicas"
    if not isinstance(data, dict):
        refuse(path, data, allowed)
    role = data.get("role")
    parts = data.get("replicas", [])
    if not isinstance(parts, list) or not isinstance(role, str):
        refuse(path, data, allowed)
    replicas = [
        _replica(part, role, f"{path}.replicas[{index}]") for index, part in enumerate(parts)
    ]
    return RoleStatus(role, replicas)


def _replica(data: Any, role: str, path: str) -> ReplicaStatus:
    if isinstance(data, dict):
        data = {"role": role, "hostname": "", **data}
    replica = _part(ReplicaStatus, data, path)
    if not isinstance(replica.earlier, list):
        refuse(f"{path}.earlier", replica.earlier, "must be a list")
    if replica.usage is not None:
        replica.usage = _usage(replica.usage)
    replica.earlier = [
        _part(ReplicaAttempt, each, f"{path}.earlier[{i}]")
        for i, each in enumerate(replica.earlier)
    ]
    return replica


def _replica_name(data: Any) -> tuple[str, int] | None:
    """Read a role and the number of a replica, or return None for anything else."""
    if not isinstance(data, list | tuple) or [type(each) for each in data] != [str, int]:
        return None
    role, number = data
    return role, number


def _texts(data: Any) -> dict[str, str]:
    """Read names and texts, without what is no text."""
    if not isinstance(data, dict):
        return {}
    return {name: text for name, text in data.items() if isinstance(text, str)}


def _usage(data: Any) -> Usage:
    """Read what a replica has used, without what is wrong in it."""
    found = Usage()
    for name, kinds in (("peak_memory", (int,)), ("cpu_seconds", (int, float))):
        value = data.get(name) if isinstance(data, dict) else None
        if _is_right(name, value, kinds):
            setattr(found, name, value)
    return found


def _part(cls: type[_T], data: Any, path: str) -> _T:
    """Build a part of a status.

    Fields that a later version added are ignored, as are those that are null, and a state that it
    added becomes UNKNOWN.
    """
    if not isinstance(data, dict):
        refuse(path, data, "must be a JSON object")
    known = cls.__dataclass_fields__  # type: ignore[attr-defined]
    values = {key: value for key, value in data.items() if key in known and value is not None}
    kinds = _kinds_of(cls)  # type: ignore[arg-type]
    for key, value in values.items():
        if key in kinds and not _is_right(key, value, kinds[key]):
            refuse(f"{path}.{key}", value, f"must be a sensible {kinds[key][-1].__name__}")
    values["state"] = AppState.__members__.get(str(values.get("state")), AppState.UNKNOWN)
    try:
        return cls(**values)
    except TypeError as exc:
        raise SpecError(f"{path}: {exc}") from exc


@lru_cache(maxsize=None)
def _kinds_of(cls: type[Any]) -> dict[str, tuple[type, ...]]:
    """Return the types of the plain fields of a class."""
    kinds = {name: each.type.partition(" ")[0] for name, each in cls.__dataclass_fields__.items()}
    return {name: _KINDS[kind] for name, kind in kinds.items() if kind in _KINDS}


def _is_right(name: str, value: object, kinds: tuple[type, ...]) -> bool:
    """Tell whether the value of a field has one of these types, and a number is not absurd."""
    if type(value) not in kinds:
        return False
    if isinstance(value, (int, float)):
        if name in _TIMES:
            return 0 <= value <= LATEST
        return -_MOST <= value <= _MOST
    return True


def exit_text(exit_code: int | None) -> str:
    """Return ``"exit code 3"``, ``"killed by SIGKILL"``, or ``"failed"`` for an unknown code."""
    from transload.keeper import failures

    return failures.exit_text(exit_code)
