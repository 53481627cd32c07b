"""Scenarios about the end of a job, how the orchestrator shows it, and who may end it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import pytest

from transload.specs import AppDef, AppState, Role
from transload_testing.adapter_driver import HostJob
from transload_testing.adapter_stage import AdapterSuite, Stage, held, state_name
from transload_testing.packages import package_index
from transload_testing.scripted import scripted_app


class EndingScenarios(AdapterSuite):
    """Success, failure, cancellation, results, logs."""

    def test_success_delivers_results(self, stage: Stage) -> None:
        """A job that ends well gives the orchestrator's success and the job's results."""
        stage.start({"results": {"0": {"accuracy": 0.5, "name": "ä"}}})
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        assert seen.results["results"] == {"0": {"accuracy": 0.5, "name": "ä"}}
        assert len(stage.started) == 1

    def test_success_needs_no_results(self, stage: Stage) -> None:
        """The state alone decides about success. Without results, the searched places are named."""
        stage.start()
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        assert seen.results["results"] == {}
        assert seen.results["looked_in"]

    def test_failure_says_who_how_and_last_words(self, stage: Stage) -> None:
        """The failure has the replica, its exit code, and the last lines of the log."""
        lines = [{"text": "that went wrong", "stream": "stderr", "replica": 1}]
        steps = [{"state": "RUNNING", "lines": lines}, {"state": "FAILED", "msg": "no retry left"}]
        stage.start({"steps": steps, "exit_code": 3, "failing": 1}, roles={"main": 2})
        seen = stage.ended()
        self.is_state(seen, AppState.FAILED)
        for part in ("main/1", "exit code 3", "that went wrong"):
            assert part in seen.error
        assert seen.retryable is not False

    def test_failure_says_what_was_raised(self, stage: Stage) -> None:
        """The error has a real program's exception and its place, before the last lines."""
        source = "def train():\n    raise ValueError('no such thing')\ntrain()\n"
        role = Role("main", "", entrypoint=sys.executable, args=["-c", source])
        stage.start(AppDef("app", [role]), HostJob(scheduler="local"))
        seen = stage.ended()
        self.is_state(seen, AppState.FAILED)
        said, _, lines = seen.error.partition("last lines of main/0")
        assert "exit code 1" in said
        assert "ValueError: no such thing" in said
        assert "in train" in said
        assert "Traceback" in lines

    def test_any_command(self, stage: Stage) -> None:
        """A command runs unchanged, and its lines, exit code and variables arrive."""
        command = ["sh", "-c", 'echo "said $SUITE_PASSED ${OTHER-none}"; exit 5']
        stage.start(
            job=HostJob(scheduler="local", launch={"command": command, "pass_env": ["SUITE_*"]})
        )
        seen = stage.ended()
        self.is_state(seen, AppState.FAILED)
        assert "exit code 5" in seen.error
        assert any(line.endswith("said passed none") for line in seen.logs), seen.logs

    def test_packages_of_a_command(
        self, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file beside the job's definition names the packages that a job needs."""
        (tmp_path / "project").mkdir()
        (tmp_path / "project" / "packages.txt").write_text("tiny\n", encoding="utf-8")
        launch = {
            "command": ["python", "-c", "import tiny; print('tiny', tiny.VERSION)"],
            "environment": "packages.txt",
            "folder": str(tmp_path / "project"),
        }
        with package_index(tmp_path / "index") as index:
            index.add("tiny", "1.0")
            index.be_the_only_one(monkeypatch)
            stage.start(job=HostJob(scheduler="local", launch=launch))
            seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert any(line.endswith("tiny 1.0") for line in seen.logs), seen.logs

    @pytest.mark.parametrize("workspace", [None, "data=data"])
    def test_paths_are_relative_to_the_defining_file(
        self, stage: Stage, tmp_path: Path, workspace: str | None
    ) -> None:
        """Component, workspace and files are found beside the step's definition."""
        project = tmp_path / "project"
        (project / "data").mkdir(parents=True)
        (project / "data" / "offset.txt").write_text("0.25", encoding="utf-8")
        program = "import sys; from transload.runtime import report; x = float(open('data/offset.txt').read()); "
        program += "report(loss=float(sys.argv[1]) + x)"
        role = f"Role('main', '', entrypoint={sys.executable!r}, args=['-c', {program!r}, str(lr)])"
        source = "from transload.specs import AppDef, Role\n\ndef train(lr: float) -> AppDef:\n"
        source += f'    """Train.\n\n    Args:\n        lr: the rate\n    """\n    return AppDef("train", [{role}])\n'
        (project / "jobs.py").write_text(source, encoding="utf-8")
        launch = {
            "component": "jobs.py:train",
            "args": {"lr": 0.5},
            "folder": str(project),
            "workspace": workspace,
        }
        stage.start(job=HostJob(scheduler="local", launch=launch))
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        assert seen.results["results"] == {"0": {"loss": 0.75}}

    def test_variables_and_files_of_a_real_program(self, stage: Stage) -> None:
        """A job gets the variables that match a pattern, and its results have its files."""
        command = 'echo "$SUITE_PASSED ${OTHER-none}" > "$TRANSLOAD_OUTPUT_DIR/model.txt"'
        role = Role("main", "", entrypoint="sh", args=["-c", command])
        job = HostJob(scheduler="local", cfg={"pass_env": ["SUITE_*"]})
        stage.start(AppDef("app", [role]), job)
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        (found,) = [
            each["path"]
            for name, each in seen.results["artifacts"].items()
            if name.endswith("model.txt")
        ]
        assert Path(found).read_text(encoding="utf-8") == "passed none\n"

    def test_cancelled_elsewhere(self, stage: Stage) -> None:
        """A job that somebody cancels ends as cancelled, and is not retried."""
        stage.start({"steps": [{"state": "RUNNING"}, "CANCELLED"]})
        seen = stage.ended()
        self.is_state(seen, AppState.CANCELLED)
        assert not seen.retryable

    def test_logs_of_all_replicas_once(self, stage: Stage) -> None:
        """The orchestrator's log has each line of each stream of all replicas once."""
        lines = [
            {"text": f"{role} {k} {stream} {n}", "role": role, "replica": k, "stream": stream}
            for role in ("main", "other")
            for k in range(3)
            for stream in ("stdout", "stderr")
            for n in range(5)
        ]
        stage.start(
            {"steps": [{"state": "RUNNING", "lines": lines, "seconds": 0.1}, "SUCCEEDED"]},
            roles={"main": 3, "other": 3},
        )
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        texts = [line for line in seen.logs if " std" in line]
        for line in lines:
            assert sum(text.endswith(str(line["text"])) for text in texts) == 1, line
        assert len(stage.started) == 1

    def test_logs_while_it_runs(self, stage: Stage) -> None:
        """Lines appear in the orchestrator's log before the job ends."""
        stage.start(held(lines=("early",)))
        stage.until(
            lambda: any("early" in line for line in stage.driver.observe().logs),
            "a line while it runs",
        )
        assert stage.driver.observe().state is None
        stage.control.open("go")
        self.is_state(stage.ended(), AppState.SUCCEEDED)

    def test_unusual_lines(self, stage: Stage) -> None:
        """Unicode, empty and very long lines come through whole."""
        long = "x" * 20_000
        stage.start({"steps": [{"state": "SUCCEEDED", "lines": ["", "日本語 ✓", long]}]})
        logs = stage.ended().logs
        assert any(line.endswith("日本語 ✓") for line in logs)
        assert any(line.endswith(long) for line in logs)

    def test_kill_cancels(self, stage: Stage) -> None:
        """A requested kill of the orchestrator's step cancels the job."""
        stage.start(held(), on_kill="cancel")
        app_id = stage.running()
        stage.driver.cancel()
        stage.until(lambda: app_id in stage.cancelled, "the job is cancelled")
        stage.dead()
        assert stage.driver.observe().state != state_name(self.state_map[AppState.SUCCEEDED])
        assert stage.started == [app_id]

    def test_sigterm_that_nobody_asked_for(self, stage: Stage) -> None:
        """After SIGTERM to the orchestrator, the job goes on, and the next run reattaches.

        A machine that is stopped sends such a SIGTERM.
        """
        stage.start(held(results={"0": {"x": 1}}), on_kill="cancel")
        app_id = stage.running()
        stage.driver.terminate()
        stage.dead()
        assert stage.cancelled == []
        assert stage.driver.observe().retryable is not False
        stage.driver.restart()
        stage.watched(app_id)
        stage.control.open("go")
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert stage.started == [app_id]

    def test_kill_detaches_when_told_to(self, stage: Stage) -> None:
        """With ``on_kill="detach"`` the job survives a kill, and the next run reattaches."""
        stage.start(held(results={"0": {"x": 1}}), on_kill="detach")
        app_id = stage.running()
        stage.driver.cancel()
        stage.dead()
        assert stage.cancelled == []
        stage.driver.restart()
        stage.watched(app_id)
        stage.control.open("go")
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert stage.started == [app_id]

    def test_cancel_racing_the_end(self, stage: Stage) -> None:
        """A job that ends well although its end was asked for has succeeded.

        Running the step again collects its results.
        """
        stage.start(
            held(
                results={"0": {"x": 1}},
                on_cancel=[{"state": "RUNNING", "seconds": 0.1}, "SUCCEEDED"],
            )
        )
        app_id = stage.running()
        stage.driver.cancel()
        stage.until(lambda: app_id in stage.cancelled, "the job is cancelled")
        stage.dead()
        stage.driver.restart()
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert stage.started == [app_id]

    def test_preemption_is_no_end(self, stage: Stage) -> None:
        """RUNNING → PENDING → RUNNING is one job on its way."""
        steps = [
            {"state": "RUNNING", "seconds": 0.1},
            {"state": "PENDING", "seconds": 0.15, "restarts": 1},
        ]
        stage.start(
            {
                "steps": [
                    *steps,
                    {"state": "RUNNING", "seconds": 0.1, "restarts": 1},
                    {"state": "SUCCEEDED", "restarts": 1},
                ]
            }
        )
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 1

    def test_a_running_job_is_reported(self, stage: Stage) -> None:
        """The log says why it waits, how far it is, what interrupted it, and that it is late."""
        half = {"fraction": 0.5, "eta_seconds": 7255.0}
        steps: list[object] = [
            {"state": "PENDING", "until": "begin", "msg": "no node is free"},
            {"state": "RUNNING", "until": "interrupt", "progress": {"fraction": 0.25}},
            {
                "state": "RUNNING",
                "until": "end",
                "progress": half,
                "interrupted": [{"cause": "preempted", "step": 4200}],
                "ends_in": 600.0,
            },
            {"state": "SUCCEEDED", "progress": {"fraction": 1.0}},
        ]
        stage.start({"steps": steps})
        stage.reported("no node is free")
        stage.control.open("begin")
        stage.reported("25 %")
        stage.control.open("interrupt")
        stage.reported("interrupted (preempted) at step 4,200; started again, 1st")
        stage.reported("50 %, 2 h 00 min left")
        stage.reported("it will not end within its limit of time")
        stage.control.open("end")
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        texts = ("no node", "25 %", "interrupted (preempted)", "50 %", "its limit of time", "100 %")
        for text in texts:
            stage.reported(text)

    def test_slow_scheduler(self, stage: Stage) -> None:
        """A scheduler that takes its time to answer changes nothing in the end."""
        stage.start(
            {
                "steps": [{"state": "RUNNING", "seconds": 0.2}, "SUCCEEDED"],
                "latency": 0.2,
                "submit_seconds": 0.2,
            }
        )
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 1

    def test_retries_left_to_the_host(self, stage: Stage) -> None:
        """With ``retries_by="host"`` the job is submitted without retries of its own."""
        assert self._submitted_retries(stage, "host") == 0

    def test_retries_nested(self, stage: Stage) -> None:
        """By default the scheduler spends the job's retries within one attempt."""
        assert self._submitted_retries(stage, "nested") == 2

    def test_retries_left_to_the_scheduler(self, stage: Stage) -> None:
        """With ``retries_by="scheduler"`` the orchestrator does not retry a failed job."""
        stage.start({"steps": ["FAILED"]}, retries_by="scheduler")
        seen = stage.ended()
        self.is_state(seen, AppState.FAILED)
        assert seen.retryable is False

    def _submitted_retries(self, stage: Stage, rule: Literal["nested", "host", "scheduler"]) -> int:
        app = scripted_app("app")
        app.roles[0].max_retries = 2
        stage.start(app, retries_by=rule)
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        record = stage.control.folder.record(stage.started[0])
        assert record is not None
        return AppDef.from_json(record["app"]).roles[0].max_retries

    def test_refused_spec_is_one_clear_line(self, stage: Stage) -> None:
        """An unsupported field is refused by name, and nothing is started or retried."""
        app = AppDef("app", [Role("main", "none", entrypoint="none", port_map={"web": 80})])
        stage.start(app)
        seen = stage.ended()
        self.is_failure(seen, self.submit_failed_state)
        assert "roles[0].port_map" in seen.error
        assert "\n" not in seen.error.strip()
        assert seen.retryable is False
        assert stage.started == []

    def test_secrets_are_not_stored(self, stage: Stage) -> None:
        """A secret run option is in neither the orchestrator's store nor its log."""
        stage.start(held(), HostJob(cfg={"api_key": "hunter2-value"}))
        stage.running()
        stage.control.open("go")
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        root = stage.control.folder.root.parent
        for path in root.rglob("*"):
            assert not path.is_file() or b"hunter2-value" not in path.read_bytes(), path

    def test_environment_is_not_inherited(self, stage: Stage) -> None:
        """By default a job does not get the environment of the orchestrator's worker."""
        stage.start()
        stage.ended()
        record = stage.control.folder.record(stage.started[0])
        assert record is not None
        assert record["inherit_env"] is False
