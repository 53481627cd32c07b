"""Drive an adapter like its orchestrator would, in a process that can be killed at any point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Final

ASKED: Final = ".asked"
"""Ending of the file beside a report that says that the end of the step was requested."""


@dataclass(frozen=True)
class HostJob:
    """A step as an orchestrator would name it.

    Args:
        name: what tells it from others of its run.
        namespace: what tells its run or installation from others.
        generation: counted up when somebody runs it again on purpose.
        began: when its run began. Where that differs and nobody ran it again, it may be the run of
            another installation that has the same names.
        options: the user's settings: those of ``transload.pipelines.ExecutionOptions``, by name.
        cfg: run options of the scheduler.
        scheduler: where its job runs.
        launch: what is run in place of a job, as arguments of ``transload.pipelines.Launch``:
            ``component``, ``args``, ``command``, ``workspace``, ``pass_env``. ``folder`` is that of
            the file that defines the step.
    """

    name: str = "job"
    namespace: str = "here"
    generation: str = "0"
    began: str = "monday"
    options: dict[str, Any] = field(default_factory=dict)
    cfg: dict[str, Any] = field(default_factory=dict)
    scheduler: str = "scripted"
    launch: dict[str, Any] = field(default_factory=dict)


@dataclass
class Observed:
    """What the orchestrator shows of a step.

    Args:
        state: the name of the orchestrator's final state, or None while it goes on.
        logs: the lines in the orchestrator's log, without newlines.
        results: ``AppResults.to_dict()``, or None.
        error: the message of the orchestrator's failure.
        retryable: whether the orchestrator would retry, or None where it did not fail.
        alive: the process is there.
    """

    state: str | None = None
    logs: list[str] = field(default_factory=list)
    results: dict[str, Any] | None = None
    error: str = ""
    retryable: bool | None = None
    alive: bool = False


class AdapterDriver(ABC):
    """Drives one adapter through the life of one step after the other."""

    @abstractmethod
    def start(self, app: str, job: HostJob) -> None:
        """Let the orchestrator start a step, without waiting.

        Args:
            app: the app definition as JSON, or "" where the step says itself what to launch.
            job: the step.
        """

    @abstractmethod
    def crash(self) -> None:
        """Kill the orchestrator's process with SIGKILL, and wait until it is gone."""

    @abstractmethod
    def restart(self) -> None:
        """Let the orchestrator run the same step again, after a crash or as a retry.

        Its logs continue.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Let the orchestrator kill the step like its users do, without waiting."""

    def terminate(self) -> None:
        """Send SIGTERM to the orchestrator's process, without waiting.

        The end of the step was not requested.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.terminate: must send SIGTERM to the host's process"
        )

    @abstractmethod
    def observe(self) -> Observed:
        """Return what the orchestrator shows of the latest run, with the logs of all runs."""

    @abstractmethod
    def close(self) -> None:
        """End all processes."""


class ChildDriver(AdapterDriver):
    """Runs ``entry(ChildJob)`` in a child process.

    An adapter's driver often is no more than that function.

    Attributes:
        entry: ``module:function``.
        environment: more environment variables for the child.

    Args:
        folder: where reports and the orchestrator's store are kept.
        environment: environment variables that the suite wants in the child.
    """

    entry: ClassVar[str] = ""
    environment: ClassVar[Mapping[str, str]] = {}

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._request: dict[str, Any] = {}
        self._run = -1
        self._key = ""

    def start(self, app: str, job: HostJob) -> None:
        """Start a child for a step."""
        self.close()
        self._key = sha256(
            json.dumps([job.namespace, job.name, job.generation]).encode()
        ).hexdigest()[:12]
        store = sha256(json.dumps([job.namespace, job.name]).encode()).hexdigest()[:12]
        self._request = {
            "app": app,
            "job": asdict(job),
            "store": str(self.folder / f"store-{store}.json"),
        }
        self._run = -1
        self.restart()

    def restart(self) -> None:
        """Start another child for the same step."""
        self.close()
        self._run += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        request = {**self._request, "report": str(self._report(self._run))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "transload_testing.adapter_child", self.entry],
            stdin=subprocess.PIPE,
            env={**os.environ, **self.environment, **self._environment},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            pipe.write(json.dumps(request).encode())

    def crash(self) -> None:
        """Kill the child."""
        self._end(signal.SIGKILL)

    def cancel(self) -> None:
        """Note that the end was asked for (`ChildJob.asked`), and send SIGTERM to the child."""
        self._report(self._run).with_suffix(ASKED).touch()
        self.terminate()

    def terminate(self) -> None:
        """Send SIGTERM to the child."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def observe(self) -> Observed:
        """Read what the children reported."""
        seen = Observed(alive=self._process is not None and self._process.poll() is None)
        for run in range(self._run + 1):
            for report in self._reports(run):
                if report["kind"] == "log":
                    seen.logs.append(report["line"])
                elif run == self._run:
                    seen.state, seen.error = report["state"], report["error"]
                    seen.results, seen.retryable = report["results"], report["retryable"]
        return seen

    def close(self) -> None:
        """Kill the child if it is there."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait(timeout=30)

    def _report(self, run: int) -> Path:
        return self.folder / f"report-{self._key}-{run}.jsonl"

    def _reports(self, run: int) -> list[dict[str, Any]]:
        try:
            text = self._report(run).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@dataclass
class ChildJob:
    """What ``entry`` gets in the child process.

    Args:
        app: the app definition as JSON.
        job: the step.
        store: file for the orchestrator's store (``transload_testing.stores.JsonFileStore``), which
            outlives the process.
        report: file for reports.
    """

    app: str
    job: HostJob
    store: str
    report: str

    @property
    def launch(self) -> dict[str, Any]:
        """What to run and where, as arguments of ``transload.pipelines.Launch``."""
        return {
            "scheduler": self.job.scheduler,
            "cfg": self.job.cfg,
            **(self.job.launch or {"app": self.app}),
        }

    def log(self, line: str) -> None:
        """Report a line in the orchestrator's log."""
        self._write({"kind": "log", "line": line.rstrip("\n")})

    def finish(
        self,
        state: object,
        results: Mapping[str, Any] | None = None,
        error: BaseException | str = "",
        retryable: bool | None = None,
    ) -> None:
        """Report the orchestrator's final state.

        Args:
            state: the orchestrator's own, whose name is reported.
            results: ``AppResults.to_dict()``.
            error: the failure.
            retryable: whether the orchestrator would retry.
        """
        name = getattr(state, "name", None)
        self._write(
            {
                "kind": "end",
                "state": name if isinstance(name, str) else str(state),
                "results": None if results is None else dict(results),
                "error": str(error),
                "retryable": retryable,
            }
        )

    def on_kill(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the orchestrator kills the step (SIGTERM)."""
        signal.signal(signal.SIGTERM, lambda *_: callback())

    def asked(self) -> bool:
        """Tell whether the end of the step was requested from the orchestrator."""
        return Path(self.report).with_suffix(ASKED).exists()

    def _write(self, report: dict[str, Any]) -> None:
        data = (json.dumps(report) + "\n").encode()
        descriptor = os.open(self.report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
