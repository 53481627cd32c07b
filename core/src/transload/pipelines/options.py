"""The settings that every adapter offers for running a job."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from transload.errors import AppExists, ConfigError, PluginError, SpecError, SubmitError
from transload.pipelines.errors import AppCancelled, Detached, ended_state
from transload.schedulers.patience import DEFAULT_PATIENCE, check_seconds
from transload.specs import AppDef, AppState, is_started, is_terminal, nearest
from transload.specs.checks import shorten
from transload.specs.settings import JOB_SETTINGS, OverrideOptions, split_overrides

OnKill = Literal["cancel", "detach"]
"""What happens to the job when somebody asks for the end of the orchestrator's step."""

RetriesBy = Literal["nested", "host", "scheduler"]
"""Who spends the retries of a job, which is the scheduler, the orchestrator, or both nested."""

Checkpoints = Literal["keep", "new"]
"""Whether an attempt begins with the checkpoints of the attempts before it, or with none."""


class ExecutionSettings(TypedDict, total=False):
    """The arguments of `ExecutionOptions`, which describes them."""

    patience: float
    poll_interval: float
    logging_interval: float
    schedule_timeout: float | None
    startup_timeout: float | None
    deadline: float | None
    on_kill: OnKill
    retries_by: RetriesBy
    tail_lines: int
    resubmit_on: frozenset[AppState]
    checkpoints: Checkpoints


@dataclass(kw_only=True)
class ExecutionOptions:
    """How an orchestrator runs a job. Adapters pass on their users' values under these names.

    Args:
        patience: seconds of unbroken UNKNOWN before the step fails.
        poll_interval: longest pause in seconds between questions to a scheduler that does not push
            changes.
        logging_interval: longest pause in seconds between two looks at the logs.
        schedule_timeout: seconds in SUBMITTED before the job is cancelled. None means no limit.
        startup_timeout: seconds in PENDING before it first runs. None means no limit.
        deadline: absolute end for the whole, seconds since the epoch. None means no end.
        on_kill: with ``cancel`` the job ends with the step if somebody asked for that. With
            ``detach`` it goes on in any case.
        retries_by: with ``nested`` the scheduler spends ``max_retries`` inside one attempt, and
            each retry of the orchestrator is a new attempt. With ``host`` the job is submitted with
            ``max_retries=0``. With ``scheduler`` the orchestrator's failure is final.
        tail_lines: how many last log lines go into the message of a failure.
        resubmit_on: ended states that are answered by a new attempt when the orchestrator runs the
            step again. Where a restart is no retry (a pod that is started again), states that must
            stay final are taken out.
        checkpoints: with ``keep`` an attempt finds the checkpoints of the attempts before it, since
            a person asked for the step. With ``new`` each attempt has a separate folder. This is
            about roles that ask for checkpoints only.

    Raises:
        ConfigError: for a value that is not allowed.
    """

    patience: float = DEFAULT_PATIENCE
    poll_interval: float = 5.0
    logging_interval: float = 2.0
    schedule_timeout: float | None = None
    startup_timeout: float | None = None
    deadline: float | None = None
    on_kill: OnKill = "cancel"
    retries_by: RetriesBy = "nested"
    tail_lines: int = 20
    resubmit_on: frozenset[AppState] = frozenset({AppState.FAILED, AppState.CANCELLED})
    checkpoints: Checkpoints = "keep"

    def __post_init__(self) -> None:
        choices = {"on_kill": OnKill, "retries_by": RetriesBy, "checkpoints": Checkpoints}
        for name, choice in choices.items():
            allowed = get_args(choice)
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name}={getattr(self, name)!r}: must be {' or '.join(map(repr, allowed))}"
                )
        self.resubmit_on = _ended_states(self.resubmit_on)
        check_seconds("patience", self.patience, zero=True)
        for name in ("poll_interval", "logging_interval"):
            check_seconds(name, getattr(self, name))
        for name in ("schedule_timeout", "startup_timeout", "deadline"):
            if getattr(self, name) is not None:
                check_seconds(name, getattr(self, name))
        if (
            isinstance(self.tail_lines, bool)
            or not isinstance(self.tail_lines, int)
            or self.tail_lines < 0
        ):
            raise ConfigError(f"tail_lines={self.tail_lines!r}: must be an int, 0 or more")

    def host_may_retry(self, error: BaseException) -> bool:
        """Tell whether the orchestrator may answer this failure with a retry.

        A wrong spec, setting or plugin and a cancelled job never are retried. An unknown state
        always is. So is an end of the orchestrator's process that nobody asked for, after which the
        retry attaches.
        """
        if isinstance(error, Detached):
            return not error.asked
        if isinstance(error, (SpecError, ConfigError, PluginError, AppExists, AppCancelled)):
            return False
        if isinstance(error, SubmitError):
            return error.transient
        return self.retries_by != "scheduler" or ended_state(error) is None

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        # JSON has no infinity
        values = {name: None if value == float("inf") else value for name, value in values.items()}
        values["resubmit_on"] = sorted(state.name for state in self.resubmit_on)
        return values

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> ExecutionOptions:
        """Read what `to_dict` returned, and ignore options that a later version added.

        Raises:
            ConfigError: for a value that is not allowed.
            KeyError: for an unknown name of a state.
        """
        fields = ExecutionOptions.__dataclass_fields__
        known = {name: value for name, value in values.items() if name in fields}
        for name in ("patience", "poll_interval", "logging_interval"):
            if name in known and known[name] is None:
                known[name] = float("inf")
        known["resubmit_on"] = frozenset(AppState[name] for name in values.get("resubmit_on", ()))
        return ExecutionOptions(**known)


def _ended_states(given: Iterable[AppState | str]) -> frozenset[AppState]:
    """Return ended states, each of which may be given by its name.

    Raises:
        ConfigError: for anything else.
    """
    allowed = {state.name: state for state in AppState if is_terminal(state)}
    where = f"resubmit_on={shorten(given)}"
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{where}: must be a list of ended states: {', '.join(allowed)}")
    states = set()
    for each in given:
        name = each.name if isinstance(each, AppState) else each
        if not isinstance(name, str) or name not in allowed:
            raise ConfigError(f"{where}: {each!r}: must be one of {', '.join(allowed)}")
        states.add(allowed[name])
    return frozenset(states)


def split_options(options: Mapping[str, Any]) -> tuple[OverrideOptions, ExecutionOptions]:
    """Return what an adapter's options set over a definition, and how the job is run.

    Args:
        options: of `ExecutionOptions`, of `JobSettings`, and the mapping ``overrides``.

    Raises:
        SpecError: for an unknown name in ``overrides``.
        ConfigError: for another unknown name, with the nearest, or a value that is not allowed.
    """
    overrides, others = split_overrides(options)
    own = list(ExecutionOptions.__dataclass_fields__)
    for name, value in others.items():
        if name not in own:
            hint = nearest(name, [*own, *JOB_SETTINGS, "overrides"])
            raise ConfigError(f"{name}={shorten(value)}: no option of an adapter: {hint}")
    return overrides, ExecutionOptions(**others)


def note_state(first_seen: MutableMapping[str, float], state: AppState, now: float) -> None:
    """Note when a job was first seen in a state that has a limit, or to run.

    `next_limit` counts from these moments. They travel between processes as JSON, so they are
    seconds since the epoch.
    """
    if is_started(state):
        first_seen.setdefault("ran", now)
    elif state in (AppState.UNSUBMITTED, AppState.SUBMITTED):
        first_seen.setdefault("submitted", now)
    elif state is AppState.PENDING:
        first_seen.setdefault("pending", now)


def next_limit(options: ExecutionOptions, first_seen: Mapping[str, float]) -> tuple[float, str]:
    """Return when the next limit passes, and what to say then.

    The time is infinite if no limit is running.
    """
    ends = [(float("inf"), "")]
    if options.deadline is not None:
        ends.append((options.deadline, "the orchestrator's time limit has passed"))
    startup, schedule = options.startup_timeout, options.schedule_timeout
    if "ran" in first_seen:  # a pre-emption is no start-up
        pass
    elif "pending" in first_seen:
        if startup is not None:
            text = f"it did not start running within startup_timeout={startup} s of being PENDING"
            ends.append((first_seen["pending"] + startup, text))
    elif "submitted" in first_seen and schedule is not None:
        text = f"it did not leave SUBMITTED within schedule_timeout={schedule} s"
        ends.append((first_seen["submitted"] + schedule, text))
    return min(ends)


def without_retries(app: AppDef) -> AppDef:
    """Return the app definition without its retries, as a copy if it has some."""
    if not any(role.max_retries for role in app.roles):
        return app
    app = copy.deepcopy(app)
    for role in app.roles:
        role.max_retries = 0
    return app


def retries_note(app: AppDef, options: ExecutionOptions, host_retries: int | None) -> str | None:
    """Return the warning for the log that retries multiply, or None if they do not."""
    own = max((role.max_retries for role in app.roles), default=0)
    if options.retries_by != "nested" or not own or not host_retries:
        return None
    return (
        f"retries multiply: {1 + host_retries} attempts of the orchestrator × {1 + own} starts by "
        f"the scheduler = {(1 + own) * (1 + host_retries)} starts at most (retries_by='host' or "
        "'scheduler' leaves them to one)"
    )
