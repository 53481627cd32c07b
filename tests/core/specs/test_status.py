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
from transload.specs import (
    AppState,
    AppStatus,
    AppStatusError,
    ReplicaStatus,
    RoleStatus,
    exit_text,
    is_started,
    is_terminal,
)


def failed() -> AppStatus:
    """Return a status with a failed replica among good ones."""
    good = ReplicaStatus(0, AppState.SUCCEEDED, "w", "h0", exit_code=0)
    bad = ReplicaStatus(1, AppState.FAILED, "w", "h1", exit_code=-9, restarts=1)
    return AppStatus(AppState.FAILED, 2, "gave up", roles=[RoleStatus("w", [bad, good])])


def test_states() -> None:
    """Numbers, names and terminality are those of the table."""
    assert [state.value for state in AppState] == list(range(8))
    assert [str(state) for state in AppState if is_terminal(state)] == ["SUCCEEDED", "FAILED", "CANCELLED"]
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
    assert AppStatusError is AppFailed
    for state in AppState:
        if state is not AppState.SUCCEEDED:
            with pytest.raises(AppFailed):
                AppStatus(state).raise_for_status()


def test_text_forms() -> None:
    """Format names replicas in order, with how each ended; a role may be chosen."""
    text = failed().format()
    assert text.index("w[0]") < text.index("w[1]")
    assert "FAILED (killed by SIGKILL) on h1" in text
    assert "w[0]" not in failed().format(["other"])
    assert "state: FAILED (5)" in repr(failed())
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


@pytest.mark.parametrize("depth", [960, 100_000])
def test_an_error_nested_deeper_than_python_goes_is_shown_as_text(depth: int) -> None:
    """An error file may hold anything; showing a status never fails. How deep it goes is Python's, by its version."""
    text = '{"a": ' * depth + "1" + "}" * depth
    shown = repr(AppStatus(AppState.FAILED, structured_error_msg=text))
    assert text in shown or (depth < 1000 and " a: 1\n" in shown)
