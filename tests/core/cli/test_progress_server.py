"""The server to which a training posts its progress, with real requests from a real job."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload import runtime
from transload.errors import UnsupportedFeature
from transload.runtime import report
from transload.runtime.progress_server import Training
from transload.runtime.tracking import FsspecResultTracker, open_store, read_curves
from transload.schedulers.api import refuse_unsupported
from transload.specs import AppDef, AppState, Role
from transload_testing.scripted import ScriptedScheduler

TRAINING = """
import json, os, sys, time, urllib.error, urllib.request

url = os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
assert url.startswith("http://127.0.0.1:"), url
assert "KUBEFLOW_TRAINER_SERVER_CA_CERT" not in os.environ
file = os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]
assert os.stat(file).st_mode & 0o077 == 0
token = open(file).read().strip()

def post(body, token=token, **headers):
    headers = {"Authorization": "Bearer " + token, **headers}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as exc:
        return exc.code

status = {
    "lastUpdatedTime": "2026-01-01T00:00:00+00:00",
    "progressPercentage": 40,
    "estimatedRemainingSeconds": 90,
    "metrics": [
        {"name": "loss", "value": "0.5"},
        {"name": "current_step", "value": "4"},
        {"name": "total_steps", "value": "10"},
    ],
}
good = json.dumps({"trainerStatus": status}).encode()
bad = [b"[]", b"", b'{"trainerStatus": 1}', b"[" * 100_000, b'{"trainerStatus": {"metrics": [3]}}']
print([post(body) for body in bad])
print(post(good, "wrong"), post(b"x" * (1 << 19)), post(good))
print(os.path.basename(sys.argv[0]), sys.argv[1:])
try:
    os.waitpid(-1, os.WNOHANG)
    print("a child")
except ChildProcessError:
    print("no child")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Post a status of a replica's training, and return the progress that follows."""
    variables = {
        "TRACKER_BASE": str(tmp_path / "results"),
        "JOB_ID": "local://transload/mine",
        "ROLE": "main",
        "ROLES": "main,other",
        "REPLICA_ID": "0",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"TRANSLOAD_{name}", value)
    made = []

    def post(percentage: int | None = None, *, again: bool = False, **metrics: object) -> Any:
        if again or not made:
            made.append(Training(str(tmp_path / "progress")))
        values = [{"name": name, "value": str(value)} for name, value in metrics.items()]
        made[-1].note({"metrics": values, "progressPercentage": percentage})
        return json.loads((tmp_path / "progress").read_text())

    return post


@pytest.mark.unit
def test_what_a_status_means(training: Callable[..., dict[str, Any]]) -> None:
    """The names are those of transformers 5.24. Of whole percents and steps the steps count."""
    assert training(71) == {"fraction": 0.71}
    assert training(loss=1) == {"text": "loss 1"}
    line = training(
        40,
        loss=0.123456,
        phase="warm up",
        current_step=405,
        total_steps=1000,
        current_epoch="2.50",
    )
    text = "phase warm up, loss 0.1235, epoch 2.5"
    assert line == {"step": 405, "total": 1000, "text": text}


@pytest.mark.unit
def test_an_end_that_is_none(training: Callable[..., dict[str, Any]]) -> None:
    """Trainer says 100 % also after a notice. The latest step counts, if one was said."""
    assert training(100) == {"fraction": 1}
    training(20, current_step=200, total_steps=1000)
    assert training(100, train_loss=0.5) == {"step": 200, "total": 1000, "text": "train_loss 0.5"}


@pytest.mark.unit
def test_numbers_become_results(
    tmp_path: Path, training: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers become points of curves as they change, beside what the program itself reports.

    What was said before an interruption counts up to the step at which it goes on.
    """
    training(1, loss=2.5, lr="1e-05", current_step=10, total_steps=100)
    training(2, loss=2.5, lr="1e-05", current_step=20, total_steps=100)
    training(3, loss=1.5, lr="1e-05", current_step=30, total_steps=100)
    monkeypatch.setattr(runtime, "_reports", None)
    report(accuracy=0.9, loss=3.0, step=30)
    training(3, loss="nan", current_step=40, total_steps=100)
    training(100, train_loss=1.25)
    with (tmp_path / "results" / "main%2F0.steps.jsonl").open("a") as file:
        file.write('{"torn')
    monkeypatch.setenv("TRANSLOAD_INTERRUPTIONS", "1")
    training(3, again=True, loss=1.4, current_step=30, total_steps=100)
    tracker = FsspecResultTracker(tmp_path / "results")
    assert tracker.get("main/0") == {
        "loss": 1.4,
        "lr": 1e-05,
        "accuracy": 0.9,
        "train_loss": 1.25,
    }
    curves = read_curves(open_store(tmp_path / "results"))["main/0"]
    assert curves == {"loss": {10.0: 2.5, 30.0: 1.4}, "lr": {10.0: 1e-05}}
    assert {path.name for path in (tmp_path / "results").iterdir()} == {
        "main%2F0.json",
        "main%2F0.steps.jsonl",
    }


@pytest.mark.unit
def test_a_scheduler_without_it_refuses_it_by_name(tmp_path: Path) -> None:
    """The error names the field."""
    app = AppDef("app", [Role("main", "img", entrypoint="true", progress_server=True)])
    with pytest.raises(UnsupportedFeature, match=r"roles\[0\]\.progress_server: .*'scripted'"):
        refuse_unsupported(app, ScriptedScheduler("tests", str(tmp_path)))


@pytest.mark.parametrize("code", [0, 7])
def test_a_job_that_posts(
    invoke: Any, plain_folder: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Posted progress is the job's.

    Its arguments, exit code and log stay, and no proxy is asked.
    """
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    Path("train.py").write_text(TRAINING, encoding="utf-8")
    words = ["run", "--app-id", "mine", "--progress-server", "--pass-env", "http_proxy", "--"]
    done = invoke(*words, sys.executable, "train.py", str(code), "${x}")
    assert "[400, 400, 400, 400, 400]" in done.out + done.err, done.err
    assert "401 413 200" in done.out + done.err, done.err
    assert f"train.py ['{code}', '${{x}}']" in done.out + done.err
    assert "no child" in done.out + done.err
    found = invoke("status", "mine", "--json").json["status"]
    assert found["progress"]["fraction"] == 0.4
    assert found["progress"]["step"] == 4
    assert found["progress"]["text"] == "loss 0.5"
    shown = invoke("results", "mine", "--json").json
    assert shown["results"]["0"]["loss"] == 0.5
    ended = {0: AppState.SUCCEEDED, 7: AppState.FAILED}
    assert found["state"] == ended[code].name
