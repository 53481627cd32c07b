"""Finding and describing adapters."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from transload.errors import ConfigError, PluginError, TransloadError
from transload.pipelines import (
    Adapter,
    AdapterIO,
    Driver,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    LifecycleAdapter,
    StateMap,
    get_adapter,
    host_runner,
    outcome,
)
from transload.pipelines.adapter import adapters, describe_adapters
from transload.plugins import Plugins, hookimpl, manager
from transload.plugins.hookspecs import Register
from transload.runner import Runner
from transload.specs import AppState, AppStatus
from transload_testing.scripted import ScriptedControl, scripted_app


class CronError(Exception):
    """What an error of transload is in Cron."""


class Cron(LifecycleAdapter[str]):
    """An adapter, for steps that have a name and nothing else."""

    name = "cron"
    states = StateMap("Cron", {state: state.name.lower() for state in AppState})
    endings: ClassVar[Mapping[Ending, str]] = {ending: ending.value for ending in Ending}

    def __init__(self, runner: Runner | None = None) -> None:
        self.runner = runner or host_runner(self.name)
        self.ended: Callable[[], None] | None = None
        self.changes: list[tuple[str, str]] = []

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return the source."""
        return source

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return a text."""
        return "dry"

    def identity(self, context: str) -> Identity:
        """Return the step's name."""
        return Identity(self.name, ("here",), (context,))

    def io(self, context: str) -> AdapterIO:
        """Return a runner, and nothing else."""
        return AdapterIO(runner=self.runner, on_change=self.note_change, asked=lambda: True)

    def note_change(self, handle: str, status: AppStatus) -> None:
        """Keep what was said of the job."""
        self.changes.append((handle, status.state.name))

    @contextmanager
    def cancel_on_exit(self, context: str, driver: Driver) -> Iterator[None]:
        """Note what ends the step."""
        self.ended = driver.kill
        yield

    def translate(self, error: TransloadError, context: str) -> BaseException:
        """Return an error of Cron's."""
        return CronError(f"{context}: {self.endings[Ending.of(error)]}: {error}")


def vague() -> Adapter:
    """Return an adapter whose states are no table."""
    states: Any = {"RUNNING": "on"}
    return Adapter("vague", convert=str, dry_run=str, states=states)


def broken() -> Cron:
    """Fail."""
    raise ValueError("no cron here")


class CronPlugin:
    """Registers adapters, good and bad."""

    @hookimpl
    def transload_adapters(self, register: Register) -> None:
        """Register them."""
        register("cron", Cron)
        register("broken", broken)
        register("half", lambda: object())
        register("vague", vague)
        register("absent", "no.such.module:thing")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins of this test alone."""
    testing = ("testing", "transload_testing.plugin", "transload-testing", "0.1.0")
    mine = Plugins(entry_points=[testing])
    mine.register(CronPlugin(), "crons")
    monkeypatch.setattr(manager, "_plugins", mine)


def test_get_adapter() -> None:
    """By name, with the nearest one suggested."""
    assert adapters() == ["absent", "broken", "cron", "half", "vague"]
    assert get_adapter("cron").convert("x") == "x"
    with pytest.raises(ConfigError, match="'cron'"):
        get_adapter("corn")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", "no cron"),
        ("half", "object is no transload.pipelines.Adapter"),
        ("vague", "with a StateMap"),
        ("absent", "cannot be loaded"),
    ],
)
def test_broken_adapters_are_the_plugins_fault(name: str, says: str) -> None:
    """One clear line that names adapter and reason."""
    with pytest.raises(PluginError, match=says) as caught:
        get_adapter(name)
    assert name in str(caught.value)


def test_describe_adapters() -> None:
    """The table of adapters has the names of states, and does not fail for broken ones."""
    rows = {row["name"]: row for row in describe_adapters()}
    assert rows["cron"]["status"] == "installed"
    assert rows["cron"]["states"]["SUCCEEDED"] == "succeeded"
    assert rows["cron"]["plugin"] == "crons"
    assert "no cron here" in rows["broken"]["status"]
    assert "StateMap" in rows["vague"]["status"]


def test_a_state_table_costs_little() -> None:
    """Reading a state map loads nothing that only a submit needs."""
    code = (
        "import sys; from transload.pipelines import StateMap; "
        "print([m for m in ('asyncio', 'pluggy', 'fsspec', 'subprocess') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_endings_are_total() -> None:
    """An adapter that does not say what one of the endings is cannot be defined."""
    with pytest.raises(ConfigError, match="endings of Half: no value for TIMEOUT"):

        class Half(Cron):
            """Lacks an ending."""

            endings: ClassVar[Mapping[Ending, str]] = {
                ending: "" for ending in Ending if ending is not Ending.TIMEOUT
            }


def test_an_adapter_without_a_method_cannot_be_made() -> None:
    """The base class names what is missing."""

    class Mute(LifecycleAdapter[str]):
        """Lacks all methods."""

    with pytest.raises(
        TypeError, match="cancel_on_exit.*convert.*dry_run.*identity.*io.*translate"
    ):
        Mute()  # type: ignore[abstract]


def launch(script: Mapping[str, Any]) -> Launch:
    """Return a launch of a scripted job."""
    return Launch(app=scripted_app("job", script), scheduler="scripted")


HELD = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"], "results": {"0": {"x": 1}}}


def test_run(control: ScriptedControl, runner: Runner) -> None:
    """A step is one call. What its job reported comes back, and its states were handed on."""
    control.open("go")
    adapter = Cron(runner)
    assert adapter.run("step", launch(HELD), ExecutionOptions()).value("x") == 1
    (handle,) = {handle for handle, _ in adapter.changes}
    assert handle.startswith("scripted://host/cron-step-")
    assert adapter.changes[-1][1] == "SUCCEEDED"


def test_run_async(control: ScriptedControl, runner: Runner) -> None:
    """The same in an event loop."""
    control.open("go")
    work = Cron(runner).run_async("step", launch(HELD), ExecutionOptions())
    assert asyncio.run(work).value("x") == 1


def test_errors_are_translated(control: ScriptedControl, runner: Runner) -> None:
    """A job that failed, and a wrong setting before anything was submitted, are Cron's errors."""
    with pytest.raises(CronError, match="^step: failed: ") as caught:
        Cron(runner).run("step", launch({"steps": ["FAILED"]}), ExecutionOptions())
    assert isinstance(caught.value.__cause__, TransloadError)
    nowhere = Launch(component="utils.echo", scheduler="nowhere")
    with pytest.raises(CronError, match="^step: wrong: .*nowhere"):
        Cron(runner).start("step", nowhere, ExecutionOptions())
    with pytest.raises(CronError, match="^step: wrong: "):
        Cron(runner).restore("step", {"schema": 999})


def test_a_kill_reaches_the_job(control: ScriptedControl, runner: Runner) -> None:
    """What `cancel_on_exit` hands to the orchestrator cancels the job."""
    adapter = Cron(runner)
    driver = adapter.start("step", launch(HELD), ExecutionOptions())
    assert adapter.ended is not None
    adapter.ended()
    with pytest.raises(CronError, match="^step: cancelled: "):
        adapter.resume("step", driver)


def test_defer(control: ScriptedControl, runner: Runner) -> None:
    """The state goes to another process and back as JSON, and nothing is submitted twice."""
    adapter = Cron(runner)
    state = json.loads(json.dumps(adapter.start("step", launch(HELD), ExecutionOptions()).state()))
    control.open("go")
    waited = json.loads(json.dumps(asyncio.run(outcome(adapter.restore("step", state)))))
    back = adapter.restore("step", waited["state"])
    assert adapter.resume("step", back, waited).value("x") == 1
    assert len(control.calls("submit")) == 1


def test_poll(control: ScriptedControl, runner: Runner, eventually: Any) -> None:
    """Looking now and then gives the state, and at the end the results or the error."""
    adapter = Cron(runner)
    driver = adapter.start("step", launch(HELD), ExecutionOptions())
    assert not adapter.poll("step", driver).is_terminal()
    control.open("go")
    eventually(lambda: adapter.poll("step", driver).is_terminal())
    assert driver.collect().value("x") == 1

    failing = adapter.start("other", launch({"steps": ["FAILED"]}), ExecutionOptions())
    with pytest.raises(CronError, match="^other: failed: "):
        eventually(lambda: adapter.poll("other", failing).is_terminal())
    with pytest.raises(CronError, match="^other: failed: .*lost"):
        adapter.poll("other", failing, None, asked=True)
