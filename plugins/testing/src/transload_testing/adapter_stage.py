"""The stage and the driver that the scenarios of the adapter suite share, with deadlines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, Unpack

import pytest

from transload.pipelines import ExecutionSettings, StateMap
from transload.specs import AppDef, AppState
from transload_testing.adapter_driver import AdapterDriver, HostJob, Observed
from transload_testing.scripted import ScriptedControl, scripted_app

T = TypeVar("T")
TIMEOUT = 30.0

RUNNING_UNTIL = "go"
"""The gate that ends the RUNNING step of `held`."""


Steps = Sequence[str | Mapping[str, Any]]
"""Steps of a script, as its JSON values have them."""


class ScriptFields(TypedDict, total=False):
    """Fields of a script besides its steps, as `transload_testing.Script` describes them."""

    on_cancel: Steps
    results: Mapping[str, Mapping[str, Any]]
    outage_at_end: float
    crash: str
    forget: bool


def held(
    *after: str | Mapping[str, Any],
    lines: Sequence[str | Mapping[str, Any]] = (),
    **more: Unpack[ScriptFields],
) -> dict[str, Any]:
    """Return a script that runs until the gate ``go`` is opened, then goes on with ``after``.

    By default it succeeds then.
    """
    steps = [
        {"state": "RUNNING", "until": RUNNING_UNTIL, "lines": lines},
        *(after or ("SUCCEEDED",)),
    ]
    return {"steps": steps, **more}


class Stage:
    """A scripted scheduler, and a driver of the adapter on it.

    Args:
        control: directs the scheduler.
        driver: drives the adapter.
        another_driver: makes another one, with files of its own.
        timeout: seconds for each wait.
    """

    def __init__(
        self,
        control: ScriptedControl,
        driver: AdapterDriver,
        another_driver: Callable[[], AdapterDriver],
        timeout: float,
    ) -> None:
        self.control = control
        self.driver = driver
        self.another_driver = another_driver
        self.timeout = timeout
        self.job = HostJob()

    def start(
        self,
        script: Mapping[str, Any] | AppDef | None = None,
        job: HostJob | None = None,
        *,
        roles: Mapping[str, int] | None = None,
        **options: Unpack[ExecutionSettings],
    ) -> None:
        """Let the orchestrator run a job that plays a script, or the job's own launch."""
        app = script if isinstance(script, AppDef) else scripted_app("app", script, roles=roles)
        self.job = job or HostJob()
        merged = {
            "poll_interval": 0.1,
            "logging_interval": 0.05,
            "patience": 60.0,
            **self.job.options,
            **options,
        }
        self.job = replace(self.job, options=merged)
        self.driver.start("" if self.job.launch else app.to_json(), self.job)

    def until(self, condition: Callable[[], T | Literal[False] | None], what: str) -> T:
        """Return the first truthy value of a condition, or fail."""
        __tracebackhide__ = True
        end = time.monotonic() + self.timeout
        pause = 0.005
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                pytest.fail(
                    f"{what}: not within {self.timeout} s; {self.driver.observe()}; "
                    f"{self.control.calls()[-8:]}"
                )
            time.sleep(pause)
            pause = min(pause * 1.3, 0.05)

    def running(self) -> str:
        """Wait until the orchestrator watches a job that was started, and return its id."""
        app_id = self.until(self.control.started, "a job is started")[-1]
        self.watched(app_id)
        return app_id

    def watched(self, app_id: str) -> None:
        """Wait until the orchestrator has asked about a job, once from now on."""
        before = len(self._questions(app_id))
        self.until(lambda: len(self._questions(app_id)) > before, f"the host asks about {app_id}")

    def read_on(self, app_id: str) -> None:
        """Wait until the orchestrator has read a job's log a few times from now on.

        By then, it has handled the lines that it read before.
        """
        before = len(self.control.calls("log_read", app_id))
        # a turn with new lines reads to the end of each stream before it stores its place
        self.until(
            lambda: len(self.control.calls("log_read", app_id)) >= before + 6,
            f"the host reads of {app_id}",
        )

    def _questions(self, app_id: str) -> list[dict[str, Any]]:
        return [
            each
            for each in self.control.calls(app_id=app_id)
            if each["call"] in ("describe", "chain")
        ]

    def ended(self) -> Observed:
        """Wait until the orchestrator shows a final state."""
        return self.until(
            lambda: (seen := self.driver.observe()).state is not None and seen, "the host ends it"
        )

    def logged(self, *lines: str) -> None:
        """Wait until the orchestrator's log has these lines."""
        self.until(lambda: set(lines) <= set(self.driver.observe().logs), f"the log has {lines}")

    def reported(self, text: str) -> None:
        """Wait until the orchestrator's log has a line with a text, which must be there once."""
        lines = self.until(
            lambda: [line for line in self.driver.observe().logs if text in line],
            f"the log says {text!r}",
        )
        assert len(lines) == 1, lines

    def dead(self) -> None:
        """Wait until the orchestrator's process is gone."""
        self.until(lambda: not self.driver.observe().alive, "the host's process ends")

    @property
    def started(self) -> list[str]:
        """Ids of all jobs that were started."""
        return self.control.started()

    @property
    def cancelled(self) -> list[str]:
        """Ids of all jobs whose end was asked for."""
        return [each["app_id"] for each in self.control.calls("cancel")]


class AdapterSuite:
    """Settings and fixtures of `transload_testing.AdapterConformance`.

    Attributes:
        state_map: the adapter's table of states.
        unknown_state: the state after the unreachable timeout, by default that of UNKNOWN.
        lost_state: the state when a job is lost, by default that of FAILED.
        submit_failed_state: the state when a submit fails, by default that of FAILED.
        refused_state: the state of a step that is refused before its submit, by default that of
            FAILED.
        detached_state: the state after a kill with ``on_kill="detach"``, or None for any or none.
        cannot: scenario (name of the test) → why this orchestrator cannot have it.
        timeout: seconds for each wait.
    """

    state_map: ClassVar[StateMap[Any]]
    unknown_state: ClassVar[object] = None
    lost_state: ClassVar[object] = None
    submit_failed_state: ClassVar[object] = None
    refused_state: ClassVar[object] = None
    detached_state: ClassVar[object] = None
    cannot: ClassVar[Mapping[str, str]] = {}
    timeout: ClassVar[float] = TIMEOUT

    def make_driver(self, folder: Path, environment: Mapping[str, str]) -> AdapterDriver:
        """Return a driver of the adapter. Override this.

        Args:
            folder: where it may keep files, the orchestrator's store among them.
            environment: variables that its processes must have.
        """
        raise NotImplementedError(
            "an AdapterConformance says how to make its driver: override make_driver"
        )

    @pytest.fixture
    def stage(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
        """Make a new stage for each scenario. An impossible scenario is skipped with its reason."""
        reason = self.cannot.get(request.function.__name__)
        if reason is not None:
            pytest.skip(f"this host cannot have it: {reason}")
        control = ScriptedControl(tmp_path / "scripted")
        environment = {**control.environment(), "TRANSLOAD_HOME": str(tmp_path / "home")}
        environment |= {"SUITE_PASSED": "passed", "OTHER": "not passed"}
        driver = self.make_driver(tmp_path / "driver", environment)
        try:
            yield Stage(
                control,
                driver,
                lambda: self.make_driver(tmp_path / "another", environment),
                self.timeout,
            )
        finally:
            driver.close()

    @classmethod
    def scenarios(cls) -> list[str]:
        """Return the names of all scenarios."""
        return [name for name in dir(cls) if name.startswith("test_")]

    @classmethod
    def render_exceptions(cls) -> str:
        """Return the scenarios that this orchestrator cannot have, as Markdown for its pages."""
        if not cls.cannot:
            return f"All {len(cls.scenarios())} scenarios of the conformance suite hold.\n"
        rows = [
            f"| {name.removeprefix('test_').replace('_', ' ')} | {why} |"
            for name, why in sorted(cls.cannot.items())
        ]
        return "\n".join(["| scenario | why this host cannot have it |", "|---|---|", *rows]) + "\n"

    def is_state(self, seen: Observed, state: AppState) -> None:
        """Check that the orchestrator shows the mapped state."""
        assert seen.state == state_name(self.state_map[state]), seen

    def is_failure(self, seen: Observed, own: object) -> None:
        """Check that the orchestrator shows its state for a failure, by default that of FAILED."""
        assert seen.state == state_name(self.state_map[AppState.FAILED] if own is None else own), (
            seen
        )


def state_name(value: object) -> str:
    """Return the name of an orchestrator's state."""
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
