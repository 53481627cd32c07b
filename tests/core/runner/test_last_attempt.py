"""Results, curves, reasons and last lines of an attempt are read from that attempt."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import transload
from transload import cli
from transload.errors import AppFailed
from transload.runner import Runner
from transload.runtime.tracking import open_store, read_curves
from transload.specs import NONE, AppDef, AppState, RetryPolicy, Role

pytestmark = pytest.mark.usefixtures("plain_folder", "transload_home")

REPORTS = """
import os, sys
from transload.runtime import report
first = os.environ["TRANSLOAD_RETRY"] == "0"
if first:
    report(step=1, loss=0.5)
    report(step=2, loss=0.01, only_first=1)
    report(key="other", best=1)
    sys.exit(1)
"""
AGAIN = """
report(step=1, loss=0.4)
report(key="another", x=2)
"""


@pytest.fixture
def runner() -> Iterator[Runner]:
    """A runner with the local scheduler."""
    with Runner("tests") as made:
        yield made


def program(tmp_path: Path, text: str) -> list[str]:
    """Return the command of a Python program."""
    file = tmp_path / "program.py"
    file.write_text(text)
    return [sys.executable, str(file)]


@pytest.mark.parametrize("again", ["", AGAIN])
def test_results_of_a_failed_attempt(tmp_path: Path, again: str, runner: Runner) -> None:
    """What the first attempt reported does not count once a second one began, whether that reports
    or not.
    """
    command = program(tmp_path, REPORTS + again)
    app = transload.run(command=command, retries=1, retry_delay=0, scheduler="local", runner=runner)
    assert app.check(timeout=60).num_restarts == 1
    if again:
        assert app.results().results == {"0": {"loss": 0.4}, "another": {"x": 2}}
        assert runner.job(app.handle).steps() == {"0": {"loss": {1: 0.4}}}
    else:
        assert app.results().results == {}


def test_results_of_replicas_that_were_not_started_again(tmp_path: Path, runner: Runner) -> None:
    """Each replica has its own number of attempts."""
    text = """
import os, sys
from transload.runtime import report
replica, first = os.environ["TRANSLOAD_REPLICA_ID"], os.environ["TRANSLOAD_RETRY"] == "0"
report(n=1 if first else 2)
sys.exit(first and replica == "1")
"""
    name, *args = program(tmp_path, text)
    role = Role(
        "main", "", entrypoint=name, args=args, num_replicas=2, max_retries=1, retry_delay=0
    )
    role.retry_policy = RetryPolicy.REPLICA
    handle = runner.run(AppDef("two", [role]), "local")
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    assert runner.results(handle).results == {"0": {"n": 1}, "1": {"n": 2}}


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_old_file_without_a_writer(tmp_path: Path, runner: Runner, replicas: int) -> None:
    """A shell script's file belongs to the attempt that ran when it was written.

    With two replicas its owner is not known.

    One of the two is not started again: the file may be its.
    """
    script = """
    [ "$TRANSLOAD_REPLICA_ID" = 0 ] || exit 0
    cd $TRANSLOAD_TRACKER_BASE
    [ "$TRANSLOAD_RETRY" = 0 ] || { echo '{"schema": 1, "results": {"loss": 2}}' > new.json; exit; }
    echo '{"schema": 1, "results": {"loss": 1}}' > old.json; exit 1
    """
    role = Role(
        "main",
        "",
        entrypoint="sh",
        args=["-c", script],
        num_replicas=replicas,
        max_retries=1,
        retry_delay=0.2,
    )
    role.retry_policy = RetryPolicy.REPLICA
    handle = runner.run(AppDef("shell", [role]), "local")
    assert runner.wait(handle, timeout=60) is not None
    old = {} if replicas == 1 else {"old": {"loss": 1}}
    assert runner.results(handle).results == {"new": {"loss": 2}, **old}


def test_results_of_which_nobody_says_who_wrote_them(tmp_path: Path, runner: Runner) -> None:
    """A file of another program has no attempt and counts, as does one with a senseless writer."""
    text = """
import json, os, sys
for key, writer in {"a": None, "b": {"role": "main", "replica": [0], "attempt": 0}, "c": 3}.items():
    body = {"schema": 1, "key": key, "results": {"x": 1}, "writer": writer}
    with open(os.environ["TRANSLOAD_TRACKER_BASE"] + f"/{key}.json", "w") as file:
        json.dump(body, file)
sys.exit(os.environ["TRANSLOAD_RETRY"] == "0")
"""
    app = transload.run(command=program(tmp_path, text), retries=1, retry_delay=0, runner=runner)
    app.check(timeout=60)
    assert set(app.results().results) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "second", ["sys.exit(1)", "print('giving up', file=sys.stderr); sys.exit(1)", "os._exit(1)"]
)
def test_the_reason_is_the_last_attempts(
    tmp_path: Path, second: str, runner: Runner, capfd: pytest.CaptureFixture[str]
) -> None:
    """If the second attempt ends for another reason, message and lines are not the first's."""
    text = f"import os, sys\nif os.environ['TRANSLOAD_RETRY'] == '0': raise KeyError('first')\n{second}\n"
    command = program(tmp_path, text)
    app = transload.run(command=command, retries=1, retry_delay=0, runner=runner)
    with pytest.raises(AppFailed, match="exit code 1") as caught:
        app.check(timeout=60)
    assert "first" not in str(caught.value)
    status = app.status()
    assert status is not None and status.structured_error_msg == NONE and status.num_restarts == 1
    assert any("KeyError: 'first'" in line for line in app.logs(follow=False)), "the log has it all"
    capfd.readouterr()
    assert cli.main(["run", "--retries", "1", "--retry-delay", "0", "--", *command]) == 1
    said = capfd.readouterr().err
    tail = said[said.index("main/0 exit code 1") :]
    assert "KeyError" not in tail


def test_a_curve_goes_on_where_a_later_attempt_began(tmp_path: Path) -> None:
    """From a later attempt's first step on older points are gone, and before it they stay."""
    lines = [
        *({"schema": 1, "step": step, "results": {"loss": step}} for step in (1, 2, 3, 4)),
        *({"schema": 1, "step": step, "results": {"loss": -step}, "attempt": 1} for step in (3, 5)),
        {"schema": 1, "step": 4, "results": {"loss": 9}, "attempt": "x"},
    ]
    (tmp_path / "0.steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_curves(open_store(str(tmp_path))) == {"0": {"loss": {1: 1, 2: 2, 3: -3, 5: -5}}}
    assert os.listdir(tmp_path) == ["0.steps.jsonl"]
