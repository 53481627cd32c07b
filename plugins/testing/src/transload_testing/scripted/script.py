"""The script of a job, with the states that it will have, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from transload.errors import SpecError
from transload.specs import AppState, is_terminal
from transload.specs.checks import nearest

UNAVAILABLE: Final = "UNAVAILABLE"
"""Stands for a step in which every query fails with SchedulerUnavailable."""

GONE: Final = "GONE"
"""Stands for a step in which the job does not exist any more."""

STATES: Final = frozenset({*AppState.__members__, UNAVAILABLE, GONE})


@dataclass(frozen=True, slots=True)
class Line:
    """A line of log, without its newline.

    Args:
        text: the line.
        role: name of the role, or ``""`` for the first one.
        replica: number of the replica, or −1 for every one of the role.
        stream: ``stdout`` or ``stderr``.
        repeat: how many times it stands there.
    """

    text: str
    role: str = ""
    replica: int = 0
    stream: Literal["stdout", "stderr"] = "stdout"
    repeat: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A period in which a job has one state.

    Args:
        state: name of an AppState, ``UNAVAILABLE`` or ``GONE``.
        seconds: how long, at least. The last step lasts for ever.
        until: name of a gate: the step also lasts until somebody opens it (`ScriptedControl.open`).
        lines: what the logs have gained when it begins.
        restarts: ``AppStatus.num_restarts``.
        msg: ``AppStatus.msg``.
        progress: fields of ``AppStatus.progress``, ``at`` being the beginning of the step.
        interrupted: fields of the attempts that were interrupted so far, as of
            ``ReplicaAttempt``: ``cause``, ``step`` …
        ends_in: seconds from its beginning to ``AppStatus.ends_by``.
    """

    state: str
    seconds: float = 0.0
    until: str | None = None
    lines: tuple[Line, ...] = ()
    restarts: int = 0
    msg: str = ""
    progress: Mapping[str, Any] | None = None
    interrupted: tuple[Mapping[str, Any], ...] = ()
    ends_in: float | None = None


@dataclass(frozen=True)
class Script:
    """All states and failures of a scripted job.

    Args:
        steps: one after the other.
        on_cancel: what follows instead, from the moment of a cancel.
        results: key → name → value, reported when the job is submitted.
        exit_code: of the replica that fails, in FAILED.
        failing: number of that replica within the first role.
        submit_error: ``transient`` or ``permanent``: what a submit meets.
        submit_errors: how many submits of a job of this name meet it.
        submit_seconds: how long a submit takes.
        crash: ``before`` or ``after``: the submitting process dies on the spot, before or after the
            job was taken.
        crashes: how many submits of a job of this name die.
        latency: seconds that each query takes.
        outage_at_end: seconds for which every query fails, once somebody was told of the end.
        forget: the scheduler keeps no record of the id once the job is gone.
        page: address of the job's page, or ``""`` if there is none, only a folder.

    Raises:
        SpecError: for an unknown state or field.
    """

    steps: tuple[Step, ...] = (Step("SUCCEEDED"),)
    on_cancel: tuple[Step, ...] = (Step("CANCELLED"),)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    exit_code: int = 1
    failing: int = 0
    submit_error: str | None = None
    submit_errors: int = 1
    submit_seconds: float = 0.0
    crash: str | None = None
    crashes: int = 1
    latency: float = 0.0
    outage_at_end: float = 0.0
    forget: bool = False
    page: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _steps(self.steps, "steps"))
        object.__setattr__(self, "on_cancel", _steps(self.on_cancel, "on_cancel"))
        if self.submit_error not in (None, "transient", "permanent"):
            raise SpecError(
                f"script.submit_error={self.submit_error!r}: must be 'transient' or 'permanent'"
            )
        if self.crash not in (None, "before", "after"):
            raise SpecError(f"script.crash={self.crash!r}: must be 'before' or 'after'")

    def to_dict(self) -> dict[str, Any]:
        """Return the script as JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Script:
        """Read what `to_dict` returned, or what a person wrote.

        It has only what differs from the defaults, and names of states.

        Raises:
            SpecError: for an unknown state or field.
        """
        for key in data:
            if key not in Script.__dataclass_fields__:
                raise SpecError(
                    f"script: unknown field {key!r}: "
                    f"{nearest(key, list(Script.__dataclass_fields__))}"
                )
        return Script(**data)

    def at(
        self, now: float, began: float, cancelled: float | None, gates: Mapping[str, float]
    ) -> Moment:
        """Return the situation at a time.

        Args:
            now: seconds since the epoch.
            began: when it was submitted.
            cancelled: when its end was asked for, if it was.
            gates: gate → when it was opened.
        """
        reached: list[tuple[Step, float]] = []
        ended = self._walk(self.steps, now, began, cancelled, gates, reached)
        asked = cancelled is not None and cancelled <= now and not ended
        if asked:
            assert cancelled is not None
            self._walk(self.on_cancel, now, cancelled, None, gates, reached)
        return Moment(reached, asked)

    @staticmethod
    def _walk(
        steps: tuple[Step, ...],
        now: float,
        began: float,
        cancelled: float | None,
        gates: Mapping[str, float],
        reached: list[tuple[Step, float]],
    ) -> bool:
        """Collect the steps reached, and return True unless a cancel interrupted them."""
        start = began
        for index, step in enumerate(steps):
            reached.append((step, start))
            terminal = step.state in AppState.__members__ and is_terminal(AppState[step.state])
            if terminal:
                cancelled = None  # too late
                if index == len(steps) - 1:
                    return True
            end = start + step.seconds
            if step.until is not None:
                end = max(end, gates[step.until]) if step.until in gates else float("inf")
            if index == len(steps) - 1:
                end = float("inf")
            if cancelled is not None and cancelled < min(end, now):
                return False
            if now < end:
                return cancelled is None or cancelled > now
            start = end
        return True


@dataclass(frozen=True, slots=True)
class Moment:
    """The situation in a script at a time.

    Args:
        reached: the steps so far, each with the time at which it began.
        cancel_requested: its end was asked for while it had not ended.
    """

    reached: list[tuple[Step, float]]
    cancel_requested: bool

    @property
    def step(self) -> Step:
        """The current step."""
        return self.reached[-1][0]

    @property
    def since(self) -> float:
        """When the current step started."""
        return self.reached[-1][1]

    @property
    def ended(self) -> bool:
        """True in a terminal state, and after one."""
        return any(
            step.state in AppState.__members__ and is_terminal(AppState[step.state])
            for step, _ in self.reached
        )


def _steps(values: Any, where: str) -> tuple[Step, ...]:
    steps = tuple(_step(value, f"script.{where}[{index}]") for index, value in enumerate(values))
    if not steps:
        raise SpecError(f"script.{where}: must hold at least one step")
    return steps


def _step(value: Any, where: str) -> Step:
    if isinstance(value, str):
        value = {"state": value}
    if isinstance(value, Mapping):
        try:
            lines = tuple(_line(line, where) for line in value.get("lines", ()))
            interrupted = tuple(value.get("interrupted", ()))
            value = Step(**{**value, "lines": lines, "interrupted": interrupted})
        except TypeError as exc:
            raise SpecError(f"{where}: {exc}") from exc
    if not isinstance(value, Step):
        raise SpecError(f"{where}={value!r}: must be the name of a state, or a step")
    if value.state not in STATES:
        raise SpecError(f"{where}.state={value.state!r}: {nearest(value.state, sorted(STATES))}")
    return value


def _line(value: Any, where: str) -> Line:
    if isinstance(value, Line):
        return value
    if isinstance(value, str):
        return Line(value)
    try:
        return Line(**value)
    except TypeError as exc:
        raise SpecError(f"{where}.lines: {exc}") from exc
