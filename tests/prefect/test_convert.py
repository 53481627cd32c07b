"""Jobs become tasks without a server, with settings, refusals and the state table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs import job

from transload.errors import ConfigError, SpecError
from transload.pipelines import get_adapter
from transload.specs import AppDef, AppState, Role


def test_state_table() -> None:
    """The table is the public one, in names of Prefect's own state types."""
    from prefect.client.schemas.objects import StateType

    from transload_prefect import STATES

    assert {state.name: STATES[state] for state in AppState} == {
        "UNSUBMITTED": "SCHEDULED",
        "SUBMITTED": "PENDING",
        "PENDING": "PENDING",
        "RUNNING": "RUNNING",
        "SUCCEEDED": "COMPLETED",
        "FAILED": "FAILED",
        "CANCELLED": "CANCELLED",
        "UNKNOWN": "CRASHED",
    }
    assert all(STATES[state] in StateType.__members__ for state in AppState)


def test_note_leads_to_the_page() -> None:
    """The note about a job's logs has the page about the job, or else how to read them."""
    from transload_prefect.artifacts import log_note

    line = "Its page: [https://cluster/a](https://cluster/a)"
    assert log_note("local://s/a", "https://cluster/a").splitlines()[-1] == line
    assert (
        log_note("local://s/a", None).splitlines()[-1]
        == "All of its logs: `transload log local://s/a`"
    )


def test_adapter_is_registered() -> None:
    """``get_adapter("prefect")`` converts, and shows what it would submit."""
    adapter = get_adapter("prefect")
    task = adapter.convert("utils.echo", retries=2)
    assert (type(task).__name__, task.retries, task.name) == ("Task", 2, "utils.echo")
    text = adapter.dry_run("utils.echo", component_args={"msg": "hello there"}, name="greet")
    assert "greet" in text and "hello there" in text


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"retires": 2}, ConfigError, "did you mean 'retries'"),
        ({"on_kill": "keep"}, ConfigError, "must be 'cancel' or 'detach'"),
        ({"stderr_level": "LOUD"}, ConfigError, "stderr_level='LOUD'"),
        ({"patience": -1}, ConfigError, "patience=-1"),
        (
            {
                "scheduler": None,
                "component_args": {"x": 1},
                "source": AppDef("a", [Role("r", "i")]),
            },
            SpecError,
            "only a component",
        ),
        ({"source": 7}, SpecError, "must be an AppDef"),
    ],
)
def test_refusals(settings: dict[str, Any], error: type[Exception], words: str) -> None:
    """What is wrong is said in one line when the task is made."""
    from transload_prefect import app_task

    source = settings.pop("source", job)
    with pytest.raises(error, match="(?s).*") as seen:
        app_task(source, **settings)
    assert words in str(seen.value)
    assert "\n" not in str(seen.value)


def test_tasks_of_one_factory_have_keys_of_their_own() -> None:
    """Prefect tells the tasks apart, though one function makes them all."""
    from transload_prefect import app_task

    assert app_task(job, name="a").task_key != app_task(job, name="b").task_key
    assert app_task("utils.echo").task_key != app_task("utils.sh").task_key
    named = [app_task(job, component_args={"value": k}, name="train") for k in (1, 2)]
    assert named[0].task_key != named[1].with_options(retries=1).task_key


def test_documentation_has_the_tables() -> None:
    """State table and exceptions of the documentation are those of the code."""
    from test_conformance import TestPrefect

    root = Path(__file__).parents[2]
    states = (root / "docs" / "reference" / "states.md").read_text(encoding="utf-8")
    assert TestPrefect.state_map.markdown() in states
    assert TestPrefect.render_exceptions() in (root / "dev" / "conformance.md").read_text(
        encoding="utf-8"
    )


def test_launch_as_every_adapter_takes_it() -> None:
    """``launch={…}`` sets what to launch and where, as with every adapter."""
    task = get_adapter("prefect").convert(
        "utils.echo", launch={"args": {"msg": "hi"}, "scheduler": "local"}
    )
    assert (task.spec.launch.args, task.spec.launch.scheduler) == ({"msg": "hi"}, "local")
    with pytest.raises(ConfigError, match="unexpected keyword argument 'shceduler'"):
        get_adapter("prefect").convert("utils.echo", launch={"shceduler": "local"})


def test_nothing_imports_prefect_for_the_table() -> None:
    """The plugin module and the table import no host."""
    import subprocess
    import sys

    modules = "transload_prefect.plugin, transload_prefect.states, transload_prefect.adapter"
    code = f"import sys, {modules}; assert 'prefect' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
