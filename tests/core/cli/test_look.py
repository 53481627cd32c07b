"""The commands that look at jobs and tidy up have text for pipes, JSON and exit codes."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

LOOP = "import time\nwhile True: time.sleep(0.05)"
REPORT = """
import json, os
base = os.environ["TRANSLOAD_TRACKER_BASE"]
os.makedirs(base, exist_ok=True)
for key, value in (("a", 0.5), ("b", "text")):
    with open(f"{base}/{key}.json", "w") as file:
        json.dump({"schema": 1, "key": key, "results": {"score": value, f"only/{key}": 7}}, file)
"""


@pytest.fixture
def failed(started: Any, invoke: Any) -> str:
    """The handle of an app of two replicas, of which the second failed with 3."""
    code = "import os, sys; sys.exit(3 if os.environ['TRANSLOAD_REPLICA_ID'] == '1' else 0)"
    handle: str = started(code, "--replicas", "2")
    assert invoke("wait", handle).code == 1
    return handle


def test_status(invoke: Any, failed: str) -> None:
    """``status`` exits with 0 whatever the state, and shows each replica with its exit code."""
    result = invoke("status", failed)
    assert result.code == 0
    assert ["state", "FAILED"] in [line.split("\t") for line in result.lines]
    row = next(line.split("\t") for line in result.lines if line.startswith("train/1"))
    assert row[1:3] == ["FAILED", "3"]
    document = invoke("status", failed, "--json").json
    assert "time_limit" not in document["status"]
    job = {"schema", "handle", "scheduler", "app_id", "state", "status"}
    assert set(document) == {*job, "asked", "silent_for"}
    assert document["status"]["roles"][0]["replicas"][1]["exit_code"] == 3


def test_limit_and_what_is_left(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``status`` and ``describe`` show how long a job may run, and what is left of it.

    The same holds for the segment of a job that has segments.
    """
    role = {"name": "main", "image": "", "entrypoint": "sleep", "args": ["600"]}
    role["max_interruptions"] = 3
    app = {"schema": 1, "name": "limited", "roles": [role], "timeout": 7200.0, "segment": 3600.0}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(app).encode())))
    handle = invoke("run", "--stdin", "--detach").out.strip()
    invoke("wait", handle, "--timeout", "0.1")
    for command in ("status", "describe"):
        fields = dict(
            line.split("\t")[:2] for line in invoke(command, handle).lines if "\t" in line
        )
        assert fields["limit"].startswith("2 h 00 min, 1 h 59 min left (until 20"), command
        assert "59 min 5" in fields["segment"], command
        assert fields["segment"].endswith("), then the next one begins"), command
    status = invoke("status", handle, "--json").json["status"]
    assert status["time_limit"] == 7200.0
    assert status["segment_ends"] == pytest.approx(time.time() + 3600, abs=60)
    assert invoke("cancel", "--wait", handle).code == 0
    assert "limit\t2 h 00 min\n" in invoke("status", handle).out


def test_status_of_an_id_alone(invoke: Any, failed: str) -> None:
    """A job id alone means the default scheduler."""
    assert invoke("status", failed.rpartition("/")[2], "--json").json["handle"] == failed


def test_nearest_id_is_suggested(invoke: Any, started: Any, component_file: str) -> None:
    """A mistyped id is answered with the one that was probably meant."""
    assert invoke("run", "-d", "--app-id", "training", component_file).code == 0
    result = invoke("status", "trainign")
    assert result.code == 2
    assert "did you mean 'training'?" in result.err
    assert invoke("wait", "training").code == 0


def test_status_of_one_role(invoke: Any, failed: str) -> None:
    """``--role`` narrows down, and an unknown role is refused."""
    assert len(invoke("status", failed, "--role", "train", "--json").json["status"]["roles"]) == 1
    assert invoke("status", failed, "--role", "trian").code == 2


def test_wait(invoke: Any, started: Any, failed: str, gate: Any) -> None:
    """``wait`` exits by the state, says how the app ended, and gives up after ``--timeout``."""
    result = invoke("wait", failed, "--json")
    assert (result.code, result.json["state"]) == (1, "FAILED")
    assert "train/1 exit code 3" in result.err
    code, open_gate = gate
    handle = started(code)
    result = invoke("wait", handle, "--timeout", "100ms", "--json")
    assert (result.code, result.json["timed_out"], result.json["state"]) == (5, True, "RUNNING")
    open_gate()
    assert invoke("wait", handle).code == 0


def test_list(invoke: Any, started: Any, failed: str) -> None:
    """``list`` shows as many jobs as wanted, the newest first, by state."""
    handle = started(LOOP)
    rows = [line.split("\t") for line in invoke("list").lines]
    assert [row[0] for row in rows] == [handle, failed]
    assert (rows[1][1], rows[1][3:]) == ("FAILED", ["local", "job"])
    assert [line.split("\t")[0] for line in invoke("list", "--sort", "state").lines] == [
        failed,
        handle,
    ]
    assert len(invoke("list", "--name", "j*").lines) == 2
    assert invoke("list", "--name", "k*").lines == []
    apps = invoke("list", "--json", "--state", "failed").json["apps"]
    assert [app["handle"] for app in apps] == [failed]
    assert set(apps[0]) == {"handle", "app_id", "name", "state", "created"}
    assert len(invoke("list", "-n", "1").lines) == 1
    assert invoke("cancel", handle, "--wait").code == 0


def test_arguments_are_shown(invoke: Any) -> None:
    """``list --arguments`` and ``describe`` tell how a component or a command was called."""
    assert invoke("run", "utils.echo", "--msg", "hello").code == 0
    assert invoke("run", "--", "true", "--lr", "0.1").code == 0
    rows = [line.split("\t") for line in invoke("list", "--arguments").lines]
    assert rows[0][5] == "lr=0.1"
    assert rows[1][5].startswith("msg=hello ")
    apps = invoke("list", "--arguments", "--json").json["apps"]
    assert apps[1]["arguments"]["num_replicas"] == 1
    assert "arguments\tlr=0.1" in invoke("describe", rows[0][0]).lines
    assert invoke("describe", rows[1][0], "--json").json["app"]["arguments"]["msg"] == "hello"


def test_cancel(invoke: Any, started: Any) -> None:
    """``cancel`` asks several jobs, and with ``--wait`` they have ended. Again it does nothing."""
    handles = [started(LOOP), started(LOOP)]
    result = invoke("cancel", "--wait", "--json", *handles)
    assert result.code == 0
    assert [app["state"] for app in result.json["apps"]] == ["CANCELLED", "CANCELLED"]
    assert invoke("cancel", handles[0]).lines == [f"{handles[0]}\tCANCELLED"]
    assert invoke("wait", handles[0]).code == 4


def test_cancel_looks_before_it_touches(invoke: Any, started: Any) -> None:
    """With one unknown handle among several nothing is cancelled."""
    handle = started(LOOP)
    assert invoke("cancel", handle, "nothing-here").code == 2
    assert not invoke("status", handle, "--json").json["status"]["cancel_requested"]
    assert invoke("delete", handle).code == 2, "an app that runs is not deleted without --force"
    assert invoke("delete", "--force", handle).lines == [f"{handle}\tdeleted"]
    assert invoke("status", handle).code == 2


def test_delete(invoke: Any, failed: str) -> None:
    """``delete`` removes a job, which is unknown the second time."""
    assert invoke("delete", failed, "--json").json["deleted"] == [failed]
    assert invoke("delete", failed).code == 2
    assert invoke("list").out == ""


def test_describe(invoke: Any, failed: str) -> None:
    """``describe`` shows the app as submitted, and with what options."""
    result = invoke("describe", failed)
    assert result.code == 0
    fields = dict(line.split("\t", 1) for line in result.lines if "\t" in line)
    assert (fields["name"], fields["state"], fields["replicas"]) == ("job", "FAILED", "2")
    document = invoke("describe", failed, "--json").json
    assert document["app"]["roles"][0]["num_replicas"] == 2
    assert document["digest"].startswith("sha256:")
    assert document["tracker_base"].endswith("/results")
    assert {"session", "cfg", "created", "log_url", "link", "handle", "state"} <= set(document)


def test_results(invoke: Any, started: Any) -> None:
    """``results`` shows all keys, one value, or JSON."""
    handle = started(REPORT)
    assert invoke("wait", handle).code == 0
    rows = [line.split("\t") for line in invoke("results", handle).lines]
    assert rows == [
        ["a", "score", "0.5"],
        ["a", "only/a", "7"],
        ["b", "score", "text"],
        ["b", "only/b", "7"],
    ]
    document = invoke("results", handle, "--json").json
    assert document["results"]["a"] == {"score": 0.5, "only/a": 7}
    assert invoke("results", handle, "--value", "only/b").out == "7\n"
    assert invoke("results", handle, "--value", "score", "--key", "b").out == "text\n"
    ambiguous = invoke("results", handle, "--value", "score")
    assert (ambiguous.code, ambiguous.out) == (2, "")
    assert "a, b" in ambiguous.err


def test_no_results(invoke: Any, failed: str) -> None:
    """When nothing was reported, stderr says where it was looked for, and stdout stays empty."""
    result = invoke("results", failed)
    assert (result.code, result.out) == (0, "")
    assert "reported nothing; looked in " in result.err


def test_delete_by_age_and_size(invoke: Any, started: Any, failed: str) -> None:
    """By age and size ``delete`` takes ended apps only, and with ``--dry-run`` none."""
    handle = started(LOOP)
    assert invoke("delete", "--older-than", "1h", "--json").json["deleted"] == []
    assert invoke("delete", "--older-than", "0s", "--dry-run", "--json").json == {
        "schema": 1, "dry_run": True, "deleted": [failed]
    }  # fmt: skip
    assert invoke("delete", "--dry-run", failed).lines == [f"{failed}\twould be deleted"]
    assert invoke("delete", "--larger-than", "10G").out == ""
    assert invoke("delete", "--larger-than", "0").lines == [f"{failed}\tdeleted"]
    assert [app["handle"] for app in invoke("list", "--json").json["apps"]] == [handle]
    assert invoke("cancel", "--wait", handle).code == 0


def test_broken_state_of_one_app(invoke: Any, failed: str, transload_home: Path) -> None:
    """A damaged record of one app ends no listing."""
    (record,) = transload_home.rglob("record.json")
    record.write_text("{torn")
    assert invoke("list").code == 0
    assert invoke("status", failed).code == 0


def test_json_is_one_line_in_a_pipe(invoke: Any, failed: str) -> None:
    """JSON is one document on one line, with nothing around it."""
    for command in (
        ["list"],
        ["status", failed],
        ["describe", failed],
        ["results", failed],
        ["info"],
    ):
        result = invoke(*command, "--json")
        assert result.out.count("\n") == 1
        assert json.loads(result.out)["schema"] == 1


def test_usage_is_shown(invoke: Any) -> None:
    """The usage of a job is told at its end and in ``status``, with a warning near its limits."""
    program = ["--mem", "80M", "--", "dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=5"]
    result = invoke("run", *program)
    assert result.code == 0
    assert " of CPU, 1" in result.err
    assert "warning: main/0 used 10" in result.err and "asked for 80 MB" in result.err
    handle = invoke("list", "--name", "dd").out.split("\t")[0]
    (row,) = [
        line.split("\t") for line in invoke("status", handle).lines if line.startswith("main/0\t")
    ]
    assert row[6].endswith(" MiB") and row[7].endswith("s")
