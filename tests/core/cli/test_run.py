"""Run ``transload run`` attached, detached, dry and from JSON, and read what it says at the end."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs.text import duration_text

REPORT = """
import json, os
base = os.environ["TRANSLOAD_TRACKER_BASE"]
os.makedirs(base, exist_ok=True)
with open(base + "/digits.json", "w") as file:
    json.dump({"schema": 1, "key": "digits", "results": {"accuracy": 0.9712, "loss": 0.125}}, file)
"""


def test_attached_run_shows_logs_states_and_the_end(invoke: Any, component_file: str) -> None:
    """Log lines go to stdout behind ``role/k``, everything else to stderr, and the end is said."""
    result = invoke(
        "run", component_file, "--replicas", "2", "--code", "print('one'); print('two')"
    )
    assert result.code == 0
    assert sorted(result.lines) == ["train/0 one", "train/0 two", "train/1 one", "train/1 two"]
    assert [line for line in result.lines if line.startswith("train/0")] == [
        "train/0 one",
        "train/0 two",
    ]
    err = result.err.splitlines()
    assert err[0].startswith("transload: submitted local://transload/job-")
    assert "press Ctrl-C to cancel it" in err[1]
    assert "transload log -f local://transload/job-" in err[2]
    assert err[-1].startswith("transload: SUCCEEDED after ")
    assert "\x1b" not in result.out + result.err


def test_wait_for_an_ended_app_says_how_long_the_app_took(invoke: Any, started: Any) -> None:
    """``wait`` tells the app's own time, from its submit to the end of its last replica, not the
    time of waiting.
    """
    handle = started("import time; time.sleep(0.3)")
    invoke("wait", handle)
    with Runner() as runner:
        description = runner.job(handle).description()
    assert description is not None and description.created is not None
    took = duration_text(description.status.roles[0].replicas[0].end_time - description.created)
    assert f"SUCCEEDED after {took} " in invoke("wait", handle).err


def test_last_line_without_newline(invoke: Any, component_file: str) -> None:
    """A last line that lacks its newline gets one, so that it does not run into what follows."""
    result = invoke("run", component_file, "--code", "import sys; sys.stdout.write('no newline')")
    assert result.out == "train/0 no newline\n"


def test_without_prefix(invoke: Any, component_file: str) -> None:
    """``--no-prefix`` shows the lines as they are."""
    assert invoke("run", "--no-prefix", component_file).out == "hello\n"


def test_output_that_is_no_utf8(spawn: Any, component_file: str) -> None:
    """A byte that is not UTF-8 and a lone surrogate do not end the command."""
    code = r"import sys; sys.stdout.buffer.write(b'a\xff\xe2\x82\xac\n')"
    process = spawn("run", component_file, "--code", code, text=False)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert out.startswith(b"train/0 a") and out.endswith("€\n".encode())


def test_failed_app(invoke: Any, component_file: str) -> None:
    """A failure exits with 1 and names the replica, its exit code and its last lines."""
    code = "import os, sys; k = os.environ['TRANSLOAD_REPLICA_ID']; print('last words of', k); sys.exit(3 * int(k))"
    result = invoke("run", component_file, "--replicas", "2", "--code", code)
    assert result.code == 1
    assert "transload: FAILED after " in result.err
    assert "train/1 exit code 3" in result.err
    assert "    last words of 1\n" in result.err
    assert "    last words of 0\n" not in result.err


def test_failed_app_without_logs(invoke: Any, component_file: str) -> None:
    """``--wait`` shows no logs, but the last lines of what failed."""
    result = invoke(
        "run", "--wait", component_file, "--code", "print('why it failed'); raise SystemExit(4)"
    )
    assert (result.code, result.out) == (1, "")
    assert "train/0 exit code 4" in result.err
    assert "    why it failed\n" in result.err


def test_retries_are_told(invoke: Any, component_file: str) -> None:
    """A restart is a line of its own."""
    result = invoke("run", component_file, "--retries", "1", "--code", "raise SystemExit(1)")
    assert result.code == 1
    assert "restart 1" in result.err


def test_results_are_shown(invoke: Any, component_file: str) -> None:
    """What the app reported by the public format is shown at the end."""
    result = invoke("run", component_file, "--code", REPORT)
    assert result.code == 0
    assert "transload: result digits: accuracy=0.9712  loss=0.125" in result.err


def test_json(invoke: Any, component_file: str) -> None:
    """With ``--json`` stdout has one document, and stderr the logs."""
    result = invoke("run", "--json", component_file, "--code", f"print('to stderr')\n{REPORT}")
    assert result.code == 0
    assert "train/0 to stderr" in result.err
    document = result.json
    assert document["schema"] == 1
    assert document["state"] == "SUCCEEDED" == document["status"]["state"]
    assert document["handle"] == f"local://transload/{document['app_id']}"
    assert document["results"] == {"digits": {"accuracy": 0.9712, "loss": 0.125}}
    assert document["timed_out"] is False
    assert document["status"]["roles"][0]["replicas"][0]["exit_code"] == 0


def test_detached(invoke: Any, component_file: str) -> None:
    """``--detach`` writes the handle and nothing else, and ``wait`` does the rest."""
    result = invoke("run", "-d", component_file)
    assert (result.code, result.err) == (0, "")
    handle = result.out.strip()
    assert handle.startswith("local://transload/job-")
    assert invoke("wait", handle).code == 0
    assert (
        invoke("run", "--detach", "--json", component_file)
        .json["handle"]
        .startswith("local://transload/job-")
    )
    assert (
        invoke(
            "cancel", "--wait", *(row["handle"] for row in invoke("list", "--json").json["apps"])
        ).code
        == 0
    )


def test_dry_run_starts_nothing(invoke: Any, component_file: str, transload_home: Path) -> None:
    """``--dry-run`` shows the request, masks secrets, and leaves no trace."""
    result = invoke("run", "--dry-run", component_file, "--code", "print(12345)")
    assert result.code == 0
    assert "print(12345)" in result.out
    document = invoke("run", "--dry-run", "--json", "--app-id", "mine", component_file).json
    assert (document["app_id"], document["scheduler"], document["app"]["name"]) == (
        "mine",
        "local",
        "job",
    )
    assert not list(transload_home.rglob("record.json"))


def test_secrets_are_masked(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value whose name looks secret is shown nowhere."""
    app = {
        "name": "a",
        "roles": [
            {"name": "r", "image": "", "entrypoint": "true", "env": {"API_KEY": "hunter2hunter2"}}
        ],
    }
    for options in (["--dry-run"], ["--dry-run", "--json"], ["--json", "--app-id", "secretive"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(app).encode())))
        result = invoke("run", "--stdin", *options)
        assert result.code == 0, result.err
        assert "hunter2" not in result.out + result.err
    for command in ("describe", "status"):
        for options in ([], ["--json"]):
            result = invoke(command, "secretive", *options)
            assert "hunter2" not in result.out + result.err


def test_stdin_round_trip(invoke: Any, started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``describe --json`` shows as ``app`` can be run again by ``run --stdin``."""
    handle = started("print('again')")
    assert invoke("wait", handle).code == 0
    app = invoke("describe", handle, "--json").json["app"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(app).encode())))
    result = invoke("run", "--stdin")
    assert (result.code, result.out) == (0, "train/0 again\n")


def test_given_id_adopts(invoke: Any, component_file: str) -> None:
    """The same id and job reattach to what is there. Another job of that id is refused."""
    code = "import os; print('started by', os.getpid())"
    first = invoke("run", "--app-id", "mine", component_file, "--code", code)
    again = invoke("run", "--app-id", "mine", component_file, "--code", code)
    assert first.code == again.code == 0
    assert first.out == again.out
    assert "submitted local://transload/mine" in first.err
    assert "reattached to local://transload/mine, which was submitted before" in again.err
    assert "transload: submitted" not in again.err
    assert "Ctrl-C" in first.err and "Ctrl-C" not in again.err  # nothing runs any more
    detached = invoke("run", "--detach", "--app-id", "mine", component_file, "--code", code)
    assert detached.out == "local://transload/mine\n" and "reattached" in detached.err
    for how in ("--wait", "--detach"):
        options = ("--json", how, "--app-id", "mine")
        found = invoke("run", *options, component_file, "--code", code)
        assert found.json["reattached"] is True
    other = invoke("run", "--app-id", "mine", component_file, "--code", "print('other')")
    assert other.code == 2
    assert "'mine' is taken" in other.err


def test_timeout_leaves_the_app_alone(invoke: Any, component_file: str, gate: Any) -> None:
    """``--timeout`` ends the command with 5, says so, and the app goes on."""
    code, open_gate = gate
    result = invoke("run", "--timeout", "0.3", "--app-id", "slow", component_file, "--code", code)
    assert result.code == 5
    assert "goes on" in result.err
    assert invoke("status", "slow", "--json").json["state"] == "RUNNING"
    open_gate()
    assert invoke("wait", "slow").code == 0


def test_limits_of_centuries(invoke: Any, component_file: str) -> None:
    """A limit that is longer than Python can wait at once is as good as none."""
    assert invoke("run", "--timeout", "100000d", "--app-id", "long", component_file).code == 0
    assert invoke("log", "-f", "long", "--until", "9999-12-31").lines == ["train/0 hello"]


def test_options_reach_the_scheduler(invoke: Any, component_file: str, tmp_path: Path) -> None:
    """``-c``, ``--cfg``, TorchX's ``-cfg`` and ``--scheduler_args`` set run options, and may be
    repeated.
    """
    for number, option in enumerate(("-c", "--cfg", "-cfg", "--scheduler_args")):
        folder = tmp_path / str(number)
        result = invoke(
            "run", option, f"log_dir={folder}", option, "max_log_size=1", component_file
        )
        assert result.code == 0, result.err
        assert [path.read_text() for path in folder.rglob("stdout.log")] == ["hello\n"]


def test_scheduler_from_settings(invoke: Any, component_file: str) -> None:
    """Without ``-s`` the configured scheduler is used, and its options."""
    Path("transload.toml").write_text(
        'scheduler = "local_cwd"\n[component."jobs.py:job"]\ncode = "print(\'set\')"\n'
    )
    result = invoke("run", component_file)
    assert result.out == "train/0 set\n"
    assert "local_cwd://transload/" in result.err


def test_component_help(invoke: Any, component_file: str) -> None:
    """``--help`` behind a component is the component's, from its docstring."""
    result = invoke("run", component_file, "--help")
    assert result.code == 0
    for word in ("Run Python code.", "--replicas", "how many", "default: 1"):
        assert word in result.out


def test_arguments_behind_two_dashes_are_the_programs(invoke: Any) -> None:
    """``-- --help`` is the program's, not ours."""
    result = invoke("run", "utils.sh", "--", "echo", "--help", "-d", "--json")
    assert result.out == "sh/0 --help -d --json\n"


def test_a_short_job_costs_no_poll(invoke: Any, component_file: str) -> None:
    """The end of a job is seen when it happens, not at the next look."""
    invoke("run", component_file)
    took = []
    for _ in range(3):  # the best of three: others may use the machine too
        began = time.monotonic()
        assert invoke("run", component_file, "--code", "import time; time.sleep(0.2)").code == 0
        took.append(time.monotonic() - began)
    assert min(took) < 2.0


@pytest.mark.parametrize("policy", ["APPLICATION"])
def test_many_replicas_take_no_threads(
    spawn: Any, component_file: str, gate: Any, eventually: Any, policy: str
) -> None:
    """Following 60 replicas takes the threads and descriptors that following one takes."""
    code, open_gate = gate
    waiting = f"import os\nprint('here')\nif os.environ['TRANSLOAD_REPLICA_ID'] == '0': {code}"
    process = spawn("run", component_file, "--replicas", "60", "--code", waiting)
    lines = [process.stdout.readline() for _ in range(60)]
    assert sorted(lines) == sorted(f"train/{k} here\n" for k in range(60))
    status = Path(f"/proc/{process.pid}/status")
    eventually(lambda: int(status.read_text().split("Threads:")[1].split()[0]) <= 4)
    assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < 30
    open_gate()
    assert process.wait(20) == 0
