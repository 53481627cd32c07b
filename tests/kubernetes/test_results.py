"""Results of pods without storage come by a container's message."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from transload.runtime.tracking import TrackingError, read_bodies
from transload.schedulers.api import Submission
from transload.specs import NONE, AppDef, AppState, Role
from transload_kubernetes import results


def finished(scheduler: Any, eventually: Any, app: Any, **cfg: Any) -> str:
    """Submit a job, wait until it has ended, and return its id."""
    options = scheduler.options.read(cfg)
    submission = Submission(app, app.digest(), "tests", options.cfg(), id_given=True)
    scheduler.submit(scheduler.convert(app, options), "test", submission)
    eventually(lambda: scheduler.describe(["test"])["test"].status.is_terminal(), 20)
    return "test"


def files(scheduler: Any, app_id: str) -> dict[str, bytes]:
    """Return all files of an app's results."""
    store = scheduler.results_store(app_id)
    return {name: store.read(name) for name, folder in store.entries() if not folder}


def test_results_come_with_the_status(scheduler: Any, eventually: Any, shell: Any) -> None:
    """The status has bodies of result files and plain results, where a later line of a key wins.

    The key of plain results is the replica's.
    """
    body = json.dumps({"schema": 1, "key": "a/b", "results": {"x": 1}})
    command = f"""echo '{{"loss": 3}}' >> $TRANSLOAD_RESULT_FILE; echo '{body}' >> $TRANSLOAD_RESULT_FILE
    echo '{{"loss": '$TRANSLOAD_REPLICA_ID'}}' >> $TRANSLOAD_RESULT_FILE"""
    found = files(scheduler, finished(scheduler, eventually, shell(command, replicas=2)))
    assert {name: json.loads(text) for name, text in found.items()} == {
        "0.json": {"schema": 1, "key": "0", "results": {"loss": 0}},
        "1.json": {"schema": 1, "key": "1", "results": {"loss": 1}},
        "a%2Fb.json": {"schema": 1, "key": "a/b", "results": {"x": 1}},
    }


def test_long_keys_come_back() -> None:
    """A key that is too long for a file's name is found again, as anywhere else."""
    store = results.PodStore("here")
    body = json.dumps({"schema": 1, "key": "é" * 100, "results": {"x": 1}})
    store.take_end({"exitCode": 0, "reason": "Completed", "message": body}, "0", "main/0")
    assert {key: body.results for key, body in read_bodies(store).items()} == {"é" * 100: {"x": 1}}


def test_a_key_that_no_text_can_hold_comes_back() -> None:
    """A program may write an escape that is no character without losing its results."""
    store = results.PodStore("here")
    body = '{"schema": 1, "key": "a\\ud800", "results": {"x": 1}}'
    store.take_end({"exitCode": 0, "reason": "Completed", "message": body}, "0", "main/0")
    assert {key: body.results for key, body in read_bodies(store).items()} == {"a?": {"x": 1}}


def test_too_much_for_the_status_is_refused(scheduler: Any, eventually: Any, shell: Any) -> None:
    """A status that was cut off is refused, with the replica's name and the way out."""
    command = """printf '{"x": "%05000d"}' 0 > $TRANSLOAD_RESULT_FILE"""
    app_id = finished(scheduler, eventually, shell({"other": "true", "main": command}))
    with pytest.raises(
        TrackingError, match=r"main/0: 4,096 bytes or more; .* 4,095; set tracker_base"
    ):
        scheduler.results_store(app_id)


def test_what_has_not_begun_says_nothing(runner: Any, fake: Any, eventually: Any) -> None:
    """The log of a pod that its kubelet does not know yet is empty, without an outage."""
    app = AppDef("a", [Role("main", "missing:1", entrypoint="true")])
    handle = runner.run(app, "kubernetes")
    eventually(lambda: fake.cluster.items("pods"), 10)
    fake.cluster.forgotten = {each["metadata"]["name"] for each in fake.cluster.items("pods")}
    assert list(runner.log_lines(handle, "main")) == []
    assert not runner.results(handle).results
    runner.cancel(handle)


@pytest.mark.parametrize(
    ("message", "first"),
    [
        (
            '{"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": "f"}}}',
            "ValueError: no",
        ),
        ("no such thing\nreally", "no such thing"),
        ('{"message": {"message": "ValueError: no \\"' + "x" * 5000, 'ValueError: no "xxx'),
    ],
)
def test_the_first_error_is_the_cause(
    scheduler: Any, eventually: Any, shell: Any, message: str, first: str
) -> None:
    """Whatever a failed program wrote to its error file is its error. The first failure leads."""
    write = f"""cat > $TRANSLOAD_ERROR_FILE <<'END'
{message}
END
exit 3"""
    late = "sleep 1.2; echo late > $TRANSLOAD_ERROR_FILE; exit 4"
    command = f"if [ $TRANSLOAD_REPLICA_ID = 1 ]; then\n{write}\nfi\n{late}".replace("\\n", "\n")
    app_id = finished(scheduler, eventually, shell(command, replicas=2, min_replicas=1))
    status = scheduler.describe([app_id])[app_id].status
    bad = status.roles[0].replicas[1]
    assert status.state is AppState.FAILED and f"main/1: {first}" in status.msg
    assert status.structured_error_msg == bad.structured_error_msg != NONE
    assert files(scheduler, app_id) == {}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ('{"loss": 1}', ""),
        ('{"file": "a", "base64": "!"}', ""),
        ('{"loss": 1}\n{"message": "no"}', "no"),
        ('{"message": "no \\u00e', "no"),
        ("[" * 4096, "[" * 4096),
    ],
)
def test_whatever_is_in_the_file(message: str, error: str) -> None:
    """No text of a program that failed keeps its status or its results from being read."""
    end = {"exitCode": 1, "reason": "Error", "message": message}
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": end}}]}
    said = results.error_of({"spec": {}, "status": status})
    assert (json.loads(said)["message"].strip() if said else "") == error
    store = results.PodStore("here")
    store.take_end(end, "0", "main/0")
    assert all(name for name, _ in store.entries())


def test_python_is_found_as_python3(scheduler: Any, eventually: Any, tmp_path: Path) -> None:
    """A program `python` runs where there is but a python3, with its arguments as they are."""
    (tmp_path / "python3").symlink_to(sys.executable)
    (tmp_path / "sh").symlink_to("/bin/sh")
    program = "import sys; sys.exit(sys.argv[1:] != ['a b', '$c'])"
    role = Role(
        "main",
        "i",
        entrypoint="python",
        args=["-c", program, "a b", "$c"],
        env={"PATH": str(tmp_path)},
    )
    app_id = finished(scheduler, eventually, AppDef("a", [role]))
    assert scheduler.describe([app_id])[app_id].status.state is AppState.SUCCEEDED


def test_report_reaches_the_reader(runner: Any) -> None:
    """The same program reports in the same way as elsewhere. Steps need a folder."""
    program = (
        "from transload.runtime import report; report(step=1, loss=3); report(step=2, loss=0.5)"
    )
    app = AppDef(
        "a", [Role("main", "i", entrypoint=sys.executable, args=["-c", program], num_replicas=2)]
    )
    handle = runner.run(app, "kubernetes")
    assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED
    found = runner.results(handle)
    assert {key: values["loss"] for key, values in found.results.items()} == {"0": 0.5, "1": 0.5}
    assert found.value("loss") == 0.5
    assert runner.job(handle).steps() == {}


def test_a_program_that_reports_too_much_says_so(runner: Any) -> None:
    """What does not fit is named in the log with the setting that takes it, and the rest comes."""
    program = (
        "from transload.runtime import report; report(loss=0.5); "
        "report(**{f'text{each}': 'a' * 1000 for each in range(5)})"
    )
    app = AppDef("a", [Role("main", "i", entrypoint=sys.executable, args=["-c", program])])
    handle = runner.run(app, "kubernetes")
    assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED
    assert runner.results(handle).value("loss") == 0.5
    assert "tracker_base" in "".join(runner.log_lines(handle, "main"))


def test_whoever_follows_the_log_sees_the_progress(runner: Any) -> None:
    """Progress is a marked line of the log, by Python and by the command, and not at each step."""
    program = (
        "import subprocess, sys; from transload.runtime import progress\n"
        "for step in range(50): progress(step=step, total=100, text='epoch 1')\n"
        "subprocess.run([sys.executable, '-m', 'transload', 'put', '--progress', '60/100'])"
    )
    app = AppDef("a", [Role("main", "i", entrypoint=sys.executable, args=["-c", program])])
    handle = runner.run(app, "kubernetes")
    assert runner.wait(handle, timeout=30).state is AppState.SUCCEEDED
    lines = list(runner.log_lines(handle, "main"))
    mark = "transload progress: "
    assert all(line.startswith(mark) for line in lines), lines
    reports = [json.loads(line.removeprefix(mark)) for line in lines]
    assert [report["step"] for report in reports] == [0, 60, 49]
    assert reports[0]["text"] == "epoch 1" and reports[0]["total"] == 100
