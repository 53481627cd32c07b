"""States and statuses."""

from __future__ import annotations

import pickle

import pytest

from transload.errors import (
    AppExists,
    AppFailed,
    AppNotFound,
    ConfigError,
    PluginError,
    SchedulerUnavailable,
    SpecError,
    SubmitError,
    TransloadError,
    TransloadTimeout,
    UnsupportedFeature,
)
from transload.schedulers import AppDescription, ListAppResponse
from transload.specs import (
    AppState,
    AppStatus,
    Progress,
    ReplicaAttempt,
    ReplicaStatus,
    RoleStatus,
    exit_text,
    is_started,
    is_terminal,
)

pytestmark = pytest.mark.unit


def failed() -> AppStatus:
    """Return a status with a failed replica among good ones."""
    good = ReplicaStatus(0, AppState.SUCCEEDED, "w", "h0", exit_code=0)
    bad = ReplicaStatus(1, AppState.FAILED, "w", "h1", exit_code=-9, restarts=1)
    return AppStatus(AppState.FAILED, 2, "gave up", roles=[RoleStatus("w", [bad, good])])


def test_states() -> None:
    """Numbers, names and terminality are those of the table."""
    assert [state.value for state in AppState] == list(range(8))
    assert [str(state) for state in AppState if is_terminal(state)] == [
        "SUCCEEDED",
        "FAILED",
        "CANCELLED",
    ]
    assert {state for state in AppState if is_started(state)} == {
        AppState.RUNNING, AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED,
    }  # fmt: skip
    assert f"{AppState.RUNNING:>9}" == "  RUNNING"
    assert repr(AppState.FAILED) == "FAILED (5)"


def test_raise_for_status() -> None:
    """Anything but SUCCEEDED raises, with the status and the first bad replica in the message."""
    AppStatus(AppState.SUCCEEDED).raise_for_status()
    with pytest.raises(AppFailed, match="FAILED, w/1 killed by SIGKILL: gave up") as caught:
        failed().raise_for_status()
    assert caught.value.status == failed()
    for state in AppState:
        if state is not AppState.SUCCEEDED:
            with pytest.raises(AppFailed):
                AppStatus(state).raise_for_status()


def test_summary() -> None:
    """A line names the replica that failed first, and how."""
    assert failed().summary() == "FAILED, w/1 killed by SIGKILL: gave up"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "failed"),
        (0, "exit code 0"),
        (3, "exit code 3"),
        (128, "exit code 128"),
        (137, "exit code 137 (128 + SIGKILL)"),
        (255, "exit code 255"),
        (-15, "killed by SIGTERM"),
        (-99, "killed by signal 99"),
    ],
)
def test_exit_text(code: int | None, text: str) -> None:
    """Exit statuses and signals in words."""
    assert exit_text(code) == text


def test_error_tree() -> None:
    """Each error is what its reader catches."""
    assert issubclass(UnsupportedFeature, SpecError)
    assert issubclass(SpecError, ValueError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(TransloadTimeout, TimeoutError)
    for kind in (
        AppExists,
        AppFailed,
        AppNotFound,
        ConfigError,
        PluginError,
        SchedulerUnavailable,
        SpecError,
        SubmitError,
    ):
        assert issubclass(kind, TransloadError)
    assert SubmitError("x", transient=True).transient
    assert UnsupportedFeature("x", "roles[0]").field == "roles[0]"
    assert "never submitted" in str(AppNotFound("local://s/x"))
    assert AppExists("x").app_id == "x"
    assert PluginError("x", "p", "d").dist == "d"


def test_status_survives_pickle() -> None:
    """Hosts move statuses between processes."""
    assert pickle.loads(pickle.dumps(failed())) == failed()


def test_what_has_ended_has_an_end() -> None:
    """An ended job's status gets the ends that its scheduler did not know.

    A running one's does not.
    """
    never = ReplicaStatus(0, AppState.CANCELLED, "main", "")
    lost = ReplicaStatus(1, AppState.FAILED, "main", "", start_time=50.0)
    lost.earlier = [ReplicaAttempt(AppState.FAILED, 1, 10.0), ReplicaAttempt(AppState.CANCELLED)]
    known = ReplicaStatus(
        2, AppState.SUCCEEDED, "main", "", exit_code=0, start_time=20.0, end_time=30.0
    )
    status = AppStatus(AppState.RUNNING, roles=[RoleStatus("main", [never, lost, known])])
    AppDescription("x", status, created=5.0)
    assert (never.end_time, lost.end_time) == (None, None)
    status.state = AppState.FAILED
    AppDescription("x", status, created=5.0)
    assert (never.end_time, lost.end_time, known.end_time) == (50.0, 50.0, 30.0)
    assert [attempt.end_time for attempt in lost.earlier] == [50.0, 50.0]
    bare = AppStatus(
        AppState.CANCELLED,
        roles=[RoleStatus("main", [ReplicaStatus(0, AppState.CANCELLED, "main", "")])],
    )
    assert AppDescription("x", bare, created=5.0).status.roles[0].replicas[0].end_time == 5.0
    bare.roles[0].replicas[0].end_time = None
    bare.close(7.0)
    assert bare.roles[0].replicas[0].end_time == 7.0
    assert bare.seconds_since(5.0) == 2.0


def test_a_stall_is_a_field_and_no_part_of_the_message() -> None:
    """A stall is written only when set, is no part of the message, and ends with the job."""
    text = AppStatus(AppState.RUNNING, msg="main/0 has stalled: no result for 2 s").to_json()
    assert 'stalled":' not in text and not AppStatus.from_json(text).is_stalled
    stalled = AppStatus.from_json(AppStatus(AppState.RUNNING, stalled=True).to_json())
    assert stalled.is_stalled
    stalled.state = AppState.FAILED
    assert not stalled.is_stalled


def test_each_percent_has_its_text() -> None:
    """No whole percent is shown as the one before it, as 0.29 * 100 would be."""
    texts = [Progress(fraction=number / 100).percent_text() for number in range(101)]
    assert texts == [f"{number} %" for number in range(101)]
    assert Progress(step=3).percent_text() == ""


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(step=10, at=10.0, history=[(0.0, 5), (8.0, 9)]), "30 steps a minute"),
        (Progress(0.5, 50, 100, None, 10.0, None, [(0.0, 0.0)]), "5 steps a second"),
        (Progress(0.5, 50, 100, None, 9000.0, None, [(0.0, 0.0), (8800.0, 0.4)]), "3 steps a minute"),
        (Progress(0.5, 50, 100, None, 9000.0, None, [(8800.0, 0.9), (8900.0, 0.4)]), "6 steps a minute"),
        (Progress(step=1, at=300.0, history=[(0.0, 0.4)]), "7.2 steps an hour"),
        (Progress(0.5, 50, None, None, 10.0, None, [(0.0, 0.0)]), ""),
        (Progress(step=50, at=10.0), ""),
        (Progress(step=50, at=10.0, history=[(10.0, 50)]), ""),
    ],
)  # fmt: skip
def test_the_rate_of_the_last_minutes(progress: Progress, text: str) -> None:
    """It is that of the last five minutes, since the last fall."""
    assert progress.rate_text() == text


def test_a_list_of_jobs_has_no_histories() -> None:
    """A row says how far a job is now, and its status says also how it came there."""
    progress = Progress(step=3, at=2.0, history=[(1.0, 2), (2.0, 3)])
    assert ListAppResponse("x", AppState.RUNNING, progress=progress).progress == Progress(
        step=3, at=2.0
    )
    again = AppStatus.from_json(AppStatus(AppState.RUNNING, progress=progress).to_json())
    assert again.progress == progress
