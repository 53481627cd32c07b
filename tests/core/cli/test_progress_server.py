"""The server to which a training posts its progress, with real requests from a real job."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from transload.errors import UnsupportedFeature
from transload.runtime.progress_server import Account, Posted, Results, status_of
from transload.runtime.reporting import Reports
from transload.runtime.tracking import FsspecResultTracker, open_store, read_curves
from transload.schedulers.api import Capabilities, refuse_unsupported
from transload.specs import AppDef, AppState, Role

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
print(post(good, "wrong"), post(b"[]"), post(b"x" * (1 << 19)), post(good))
print(os.path.basename(sys.argv[0]), sys.argv[1:])
try:
    os.waitpid(-1, os.WNOHANG)
    print("a child")
except ChildProcessError:
    print("no child")
sys.exit(int(sys.argv[1]))
"""


def posted(percentage: int | None = None, **metrics: object) -> Posted:
    """Return what is read of a status."""
    values = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    status: dict[str, Any] = {"metrics": values}
    if percentage is not None:
        status["progressPercentage"] = percentage
    found = status_of(json.dumps({"trainerStatus": status}).encode())
    assert found is not None
    return found


@pytest.mark.unit
@pytest.mark.parametrize(
    ("status", "line"),
    [
        ({"progressPercentage": 71}, {"fraction": 0.71}),
        ({"estimatedRemainingSeconds": 12}, {"eta_seconds": 12}),
        (
            {"metrics": [{"name": "loss", "value": "1"}, {"name": 3}, "x"]},
            {"text": "loss 1"},
        ),
        ({"progressPercentage": "71", "estimatedRemainingSeconds": True}, {}),
        (
            {
                "progressPercentage": 40,
                "metrics": [
                    {"name": "loss", "value": "0.123456"},
                    {"name": "phase", "value": "warm up"},
                    {"name": "current_step", "value": "405"},
                    {"name": "total_steps", "value": "1000"},
                    {"name": "current_epoch", "value": "2.50"},
                ],
            },
            {"step": 405, "total": 1000, "text": "loss 0.1235, phase warm up, epoch 2.5"},
        ),
        ({"metrics": {"loss": 1}}, {}),
    ],
)
def test_what_a_status_means(status: dict[str, Any], line: dict[str, Any]) -> None:
    """The names are those of transformers 5.24. What is of another kind is left out."""
    found = status_of(json.dumps({"trainerStatus": status}).encode())
    assert found is not None
    assert found.line() == line


@pytest.mark.unit
@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"trainerStatus": 1}', b"[" * 100_000])
def test_what_is_no_status(body: bytes) -> None:
    """It is refused, and ends nothing."""
    assert status_of(body) is None


@pytest.mark.unit
@pytest.mark.parametrize(
    ("last", "seconds", "step", "fraction"),
    [
        (950, 4.0, 1000, 1.0),
        (200, 4.0, 200, None),
        (200, 100.0, 1000, 1.0),
    ],
)
def test_an_end_that_is_none(last: int, seconds: float, step: int, fraction: float | None) -> None:
    """Trainer says 100 % also after a notice.

    That is the end only if so many steps are possible.
    """
    account = Account()
    account.line(posted(0, total_steps=1000), 0.0)
    account.line(posted(10, current_step=100, total_steps=1000), 10.0)
    account.line(posted(10, current_step=last, total_steps=1000), 10.0 + (last - 100) / 10)
    line = account.line(posted(100, loss=0.5), 10.0 + (last - 100) / 10 + seconds)
    assert (line["step"], line["total"], line.get("fraction")) == (step, 1000, fraction)


@pytest.mark.unit
def test_an_end_of_which_little_is_known() -> None:
    """A training of a few seconds has said but its first and its last word."""
    account = Account()
    assert account.line(posted(100), 0.0) == {"fraction": 1.0}
    account.line(posted(0, total_steps=60), 0.0)
    assert account.line(posted(100), 3.0) == {"fraction": 1.0, "step": 60, "total": 60}


@pytest.mark.unit
def test_numbers_become_results(tmp_path: Path) -> None:
    """Numbers become points of curves as they change, beside what the program itself reports.

    What was said before an interruption counts up to the step at which it goes on.
    """
    environment = {
        "TRANSLOAD_TRACKER_BASE": str(tmp_path / "results"),
        "TRANSLOAD_JOB_ID": "local://transload/mine",
        "TRANSLOAD_ROLE": "main",
        "TRANSLOAD_ROLES": "main,other",
        "TRANSLOAD_REPLICA_ID": "0",
    }
    results = Results(environment)
    results.add(posted(1, loss=2.5, lr="1e-05", current_step=10, total_steps=100))
    results.add(posted(2, loss=2.5, lr="1e-05", current_step=20, total_steps=100))
    results.add(posted(3, loss=1.5, lr="1e-05", current_step=30, total_steps=100))
    with mock.patch.dict(os.environ, environment):
        reports = Reports()
        reports.add({"accuracy": 0.9, "loss": 3.0}, step=30)
        reports.flush()
    results.add(posted(3, loss="nan", current_step=40, total_steps=100))
    results.add(posted(100, train_loss=1.25))
    with (tmp_path / "results" / "main%2F0.steps.jsonl").open("a") as file:
        file.write('{"torn')
    later = Results({**environment, "TRANSLOAD_INTERRUPTIONS": "1"})
    later.add(posted(3, loss=1.4, current_step=30, total_steps=100))
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
def test_a_scheduler_without_it_refuses_it_by_name() -> None:
    """The error names the field."""
    app = AppDef("app", [Role("main", "img", entrypoint="true", progress_server=True)])
    with pytest.raises(UnsupportedFeature, match=r"roles\[0\]\.progress_server: .*'docker'"):
        refuse_unsupported(app, Capabilities(), "docker")


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
    assert "401 400 413 200" in done.out + done.err, done.err
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


def test_a_disk_without_locks(tmp_path: Path) -> None:
    """What is posted is kept where nothing can be locked, as on Lustre without its option flock."""
    refuse = mock.Mock(side_effect=OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)))
    environment = {
        "TRANSLOAD_TRACKER_BASE": str(tmp_path / "results"),
        "TRANSLOAD_JOB_ID": "local://transload/mine",
        "TRANSLOAD_ROLE": "main",
        "TRANSLOAD_REPLICA_ID": "0",
    }
    with mock.patch("fcntl.flock", refuse):
        results = Results(environment)
        for step in (1, 2):
            results.add(posted(step, loss=1 / step, current_step=step, total_steps=9))
    assert refuse.called
    assert FsspecResultTracker(tmp_path / "results").get("0") == {"loss": 0.5}
    assert read_curves(open_store(tmp_path / "results"))["0"] == {"loss": {1.0: 1.0, 2.0: 0.5}}
