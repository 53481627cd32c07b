"""The server to which a training posts its progress, with real requests from a real job."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from transload.errors import UnsupportedFeature
from transload.runtime.progress_server import progress_of
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
    "metrics": [{"name": "loss", "value": "0.5"}],
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
    ],
)
def test_what_a_status_means(status: dict[str, Any], line: dict[str, Any]) -> None:
    """The names are those of transformers 5.24; what is of another kind is left out."""
    assert progress_of(json.dumps({"trainerStatus": status}).encode()) == line


@pytest.mark.unit
@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"trainerStatus": 1}', b"[" * 100_000])
def test_what_is_no_status(body: bytes) -> None:
    """It is refused, and ends nothing."""
    assert progress_of(body) is None


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
    """Its progress is the job's; arguments, exit code and log are its own, a proxy is not asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    Path("train.py").write_text(TRAINING, encoding="utf-8")
    words = ["run", "--app-id", "mine", "--progress-server", "--pass-env", "http_proxy", "--"]
    done = invoke(*words, sys.executable, "train.py", str(code), "${x}")
    assert "401 400 413 200" in done.out + done.err, done.err
    assert f"train.py ['{code}', '${{x}}']" in done.out + done.err
    assert "no child" in done.out + done.err
    found = invoke("status", "mine", "--json").json["status"]
    assert found["progress"]["fraction"] == 0.4
    assert found["progress"]["text"] == "loss 0.5"
    ended = {0: AppState.SUCCEEDED, 7: AppState.FAILED}
    assert found["state"] == ended[code].name
