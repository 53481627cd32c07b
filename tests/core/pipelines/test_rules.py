"""Patience, deadlines, retry rule and attach policy are decided without any I/O."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import (
    AppExists,
    AppFailed,
    ConfigError,
    SpecError,
    StateUnknown,
    SubmitError,
    TransloadTimeout,
)
from transload.pipelines import (
    AppCancelled,
    AppLost,
    Detached,
    ExecutionOptions,
    ExecutionSettings,
    Launch,
    LaunchSettings,
    ended_state,
)
from transload.pipelines.chain import Action, Again, Newest, decide
from transload.pipelines.options import retries_note
from transload.schedulers import check_seconds
from transload.specs import AppDef, AppState, AppStatus, Role, is_terminal

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("seconds", [-1, float("nan"), True, "10", None])
def test_patience_must_be_seconds(seconds: object) -> None:
    """Anything but a number of 0 or more is refused."""
    with pytest.raises(ConfigError, match="patience"):
        check_seconds("patience", seconds, zero=True)


APP = AppDef(
    "a", [Role("one", "i", entrypoint="e", max_retries=3), Role("two", "i", entrypoint="e")]
)


def test_retry_product_is_said_only_where_retries_multiply() -> None:
    """The note names the product of retries on both sides, and is left out without them."""
    assert "12 starts" in (retries_note(APP, ExecutionOptions(), 2) or "")
    assert retries_note(APP, ExecutionOptions(), 0) is None
    assert retries_note(APP, ExecutionOptions(), None) is None
    assert retries_note(APP, ExecutionOptions(retries_by="host"), 2) is None


FAILED = AppStatus(AppState.FAILED)


@pytest.mark.parametrize(
    ("error", "nested", "scheduler"),
    [
        (SpecError("x"), False, False),
        (ConfigError("x"), False, False),
        (AppExists("x"), False, False),
        (AppCancelled(FAILED), False, False),
        (Detached("h"), False, False),
        (SubmitError("x"), False, False),
        (SubmitError("x", transient=True), True, True),
        (AppFailed(FAILED), True, False),
        (AppLost("h"), True, False),
        (TransloadTimeout("x"), True, False),
        (StateUnknown("h", 1.0), True, True),
    ],
)
def test_what_a_host_may_retry(error: Exception, nested: bool, scheduler: bool) -> None:
    """Each failure is retried, or not, by rule."""
    assert ExecutionOptions().host_may_retry(error) is nested
    assert ExecutionOptions(retries_by="host").host_may_retry(error) is nested
    assert ExecutionOptions(retries_by="scheduler").host_may_retry(error) is scheduler


def test_what_an_exception_says_of_the_app() -> None:
    """A bad end has a state. An outage, a refused submit or a kill says nothing of the end."""
    assert ended_state(AppCancelled(AppStatus(AppState.CANCELLED))) is AppState.CANCELLED
    for error in (AppFailed(FAILED), AppLost("local://x/y"), TransloadTimeout("x")):
        assert ended_state(error) is AppState.FAILED
    for error in (
        StateUnknown("h", 1.0),
        SubmitError("no"),
        SpecError("no"),
        Detached("h"),
        KeyboardInterrupt(),
    ):
        assert ended_state(error) is None


def test_unknown_rule_is_refused() -> None:
    """A misspelt rule names those that exist."""
    with pytest.raises(ConfigError, match="nested"):
        ExecutionOptions(retries_by="sometimes")  # type: ignore[arg-type]


STATUS = st.one_of(
    st.none(), st.builds(AppStatus, st.sampled_from(list(AppState)), cancel_requested=st.booleans())
)
NEXT_AFTER = st.frozensets(st.sampled_from([AppState.FAILED, AppState.CANCELLED]))


@given(NEXT_AFTER, STATUS, st.sampled_from(Again))
def test_attach_policy(
    resubmit_on: frozenset[AppState], status: AppStatus | None, again: Again
) -> None:
    """The first job is submitted only where there never was one, and UNKNOWN waits.

    A later try's job ends this one. A running job is attached to, or ended first where a person
    asks anew, or refused if it may be another's. What has ended is the answer, or is followed by
    the next one. Where it may be a person who asks, only what ended well is the answer, and where
    the try that submitted it goes on, everything is.
    """
    assert decide(Newest("h"), resubmit_on) is Action.SUBMIT
    action = decide(Newest("h", 3, status, again), resubmit_on)
    assert action is not Action.SUBMIT
    if again is Again.IF_ENDED:
        resubmit_on = frozenset([AppState.FAILED, AppState.CANCELLED])
    if again is Again.SAME_TRY:
        resubmit_on = frozenset()
    if again is Again.LATER:
        assert action is Action.OVER
    elif status is None:
        assert action is Action.GONE
    elif status.state is AppState.UNKNOWN:
        assert action is Action.WAIT_KNOWN
    elif is_terminal(status.state):
        is_next = not again.is_same or status.state in resubmit_on
        assert action is (Action.NEXT if is_next else Action.COLLECT)
    elif not again.is_same:
        assert action is {Again.YES: Action.END, Again.FOREIGN: Action.FOREIGN}[again]
    else:
        waits = status.cancel_requested and AppState.CANCELLED in resubmit_on
        assert action is (Action.WAIT_END if waits else Action.ATTACH)


def test_options_are_checked_and_travel() -> None:
    """Options refuse wrong values by name, and survive JSON."""
    for name, value in (
        ("patience", -1),
        ("poll_interval", 0),
        ("logging_interval", "2"),
        ("startup_timeout", 0),
        ("on_kill", "ignore"),
        ("retries_by", "luck"),
        ("deadline", "tomorrow"),
        ("deadline", float("nan")),
        ("tail_lines", -1),
        ("tail_lines", 2.5),
        ("resubmit_on", "FAILED"),
        ("resubmit_on", ["failed"]),
        ("resubmit_on", ["RUNNING"]),
        ("resubmit_on", 5),
        ("resubmit_on", [None]),
    ):
        with pytest.raises(ConfigError, match=name):
            ExecutionOptions(**{name: value})  # type: ignore[arg-type]
    options = ExecutionOptions(
        patience=5, retries_by="host", resubmit_on=frozenset({AppState.FAILED})
    )
    named = ExecutionOptions(patience=5, retries_by="host", resubmit_on=["FAILED"])  # type: ignore[arg-type]
    assert named == options and named.to_dict() == options.to_dict()
    again = ExecutionOptions.from_dict({**options.to_dict(), "of_a_later_version": 1})
    assert again == options
    endless = ExecutionOptions(patience=float("inf"), startup_timeout=float("inf"))
    text = json.dumps(endless.to_dict(), allow_nan=False)
    again = ExecutionOptions.from_dict(json.loads(text))
    assert (again.patience, again.startup_timeout) == (float("inf"), None)


@pytest.mark.parametrize(
    ("settings", "made", "apart"),
    [
        (ExecutionSettings, ExecutionOptions, set()),
        (LaunchSettings, Launch, {"app", "component", "command"}),
    ],
)
def test_settings_name_each_argument(settings: type, made: type, apart: set[str]) -> None:
    """What adapters declare as their options are the arguments of the class, all of them."""
    assert set(settings.__annotations__) == set(made.__dataclass_fields__) - apart  # type: ignore[attr-defined]
    assert {
        name: settings.__annotations__[name].__forward_arg__ for name in settings.__annotations__
    } == {name: made.__annotations__[name] for name in settings.__annotations__}
