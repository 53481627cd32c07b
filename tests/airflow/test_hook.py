"""The hook: the runner for tasks, and what a connection's test says."""

from __future__ import annotations

import json

import pytest

from transload.errors import SchedulerUnavailable
from transload.pipelines import host_runner
from transload.specs import AppState
from transload_airflow import TransloadHook
from transload_testing import ScriptedControl, scripted_app


@pytest.fixture
def control(control: ScriptedControl, monkeypatch: pytest.MonkeyPatch) -> ScriptedControl:
    """Scripted apps of a test's own, and a connection that leads to them."""
    connect(monkeypatch, {"scheduler": "scripted"})
    return control


def connect(monkeypatch: pytest.MonkeyPatch, extra: dict[str, object]) -> None:
    """Make the default connection."""
    values = {"conn_type": "transload", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TRANSLOAD_DEFAULT", json.dumps(values))


def test_status_and_cancel(control: ScriptedControl) -> None:
    """A task can ask for an app, and for its end, on the runner that all tasks of the process share."""
    hook = TransloadHook()
    assert hook.get_conn() is host_runner("airflow")
    app = scripted_app("a", {"steps": [{"state": "RUNNING", "until": "go"}]})
    handle = hook.get_conn().run(app, "scripted")
    status = hook.status(handle)
    assert status is not None
    assert status.state is AppState.RUNNING
    hook.cancel(handle)
    assert len(control.calls("cancel")) == 1
    assert hook.status("scripted://airflow/none") is None


def test_connection_is_tested(control: ScriptedControl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The button *Test* says whether the scheduler answers, and else why not."""
    hook = TransloadHook()
    hook.get_conn().run(scripted_app("a", {}), "scripted")
    assert hook.test_connection() == (True, "scheduler 'scripted' answers; it knows 1 apps")
    backend = hook.get_conn().scheduler("scripted")

    def silent() -> list[object]:
        raise SchedulerUnavailable("no answer from there")

    monkeypatch.setattr(backend, "list", silent)
    assert hook.test_connection() == (False, "no answer from there")
    for extra, words in (({"scheduler": "slrum"}, "slrum"), ({"schedular": "x"}, "extra.schedular")):
        connect(monkeypatch, extra)
        works, message = hook.test_connection()
        assert not works
        assert words in message


def test_form_of_the_connection() -> None:
    """The form shows the one field that is read, with an example that is valid."""
    from transload_airflow.hooks import Defaults

    form = TransloadHook.get_ui_field_behaviour()
    assert "extra" not in form["hidden_fields"]
    assert Defaults.of(json.loads(form["placeholders"]["extra"]), "example").scheduler == "slurm"
