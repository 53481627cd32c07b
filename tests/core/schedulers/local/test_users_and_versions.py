"""State may be left by another user of the same machine, or by an older version."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transload.keeper import layout
from transload.specs import AppState

NOBODY = 65534

STRANGER = """
import os, sys
for entry in reversed(sys.argv[2].split(os.pathsep)):
    sys.path.insert(0, entry)
from transload.errors import TransloadError
from transload.runner import get_runner
from transload.specs import AppDef, Role

handle = sys.argv[1]
app = AppDef("mine", [Role("main", "", entrypoint="true")])
tried = {
    "status": lambda runner: runner.job(handle).need_description().status,
    "list": lambda runner: runner.list("local"),
    "cancel": lambda runner: runner.cancel(handle),
    "delete": lambda runner: runner.delete(handle),
    "log": lambda runner: list(runner.log_lines(handle, "main")),
    "run": lambda runner: runner.run(app, "local"),
}
for name, call in tried.items():
    try:
        with get_runner() as runner:
            call(runner)
        print(name, "was allowed")
    except TransloadError as exc:
        print(name, "refused:", str(exc).count("\\n"))
"""


def _as_nobody(program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python code as another user."""
    return subprocess.run(
        [
            "/usr/bin/env",
            *(f"{name}={value}" for name, value in env.items()),
            program,
            "-B",
            "-c",
            *arguments,
        ],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _python_for_everybody() -> str:
    """Return a Python that another user may run, and that can import these sources."""
    code = f"import sys; sys.path[:0] = {sys.path!r}; import fsspec, pluggy, transload.runner"
    for program in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if os.path.exists(program) and _as_nobody(program, code).returncode == 0:
            return program
    pytest.skip("not run: another user has no Python that can import these sources")


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become another user")
def test_another_user_sees_and_touches_nothing(local) -> None:
    """Another user who names our state folder is refused in one line each time, and our app goes
    on.
    """
    program = _python_for_everybody()
    app_id = local.run(local.sh("echo secret; sleep 300"))
    local.line(app_id, "secret")
    paths = os.pathsep.join(sys.path)
    done = _as_nobody(
        program, STRANGER, f"local://tests/{app_id}", paths, TRANSLOAD_HOME=str(local.home)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{name} refused: 0" for name in ("status", "list", "cancel", "delete", "log", "run")
    ]
    assert local.status(app_id).state is AppState.RUNNING


OUT_OF_REACH = """
import os, sys
for entry in reversed(sys.argv[2].split(os.pathsep)):
    sys.path.insert(0, entry)
from transload.runner import get_runner
from transload.specs import AppDef, Notice, Role

program = ["--reuid=0", "--clear-groups", "sh", "-c", "echo $$; exec sleep 300"]
with get_runner() as runner:
    app = AppDef("stuck", [Role("main", "", entrypoint=sys.argv[1], args=program, notice=Notice(0.1))])
    handle = runner.run(app, "local")
    print(next(runner.log_lines(handle, "main", should_tail=True)), end="", flush=True)
    runner.cancel(handle)
    status = runner.wait(handle)
    print(status.state.name, repr(status.msg))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: only root can become another user")
def test_what_cannot_be_killed(local, eventually) -> None:
    """A process out of reach is named in the status, and its end is seen.

    It is looked for ever more rarely.
    """
    program = _python_for_everybody()
    home = local.home
    become_root = home / "become-root"
    shutil.copy(shutil.which("setpriv") or "", become_root)
    os.chown(home, NOBODY, NOBODY)
    become_root.chmod(0o4755)
    arguments = [program, "-B", "-c", OUT_OF_REACH, str(become_root), os.pathsep.join(sys.path)]
    env = {"PATH": os.environ["PATH"], "TRANSLOAD_HOME": str(home)}
    who = f"{pwd.getpwuid(NOBODY).pw_name} on {os.uname().nodename}"
    cancelled = f"cancelled on request of {who}"
    with subprocess.Popen(
        arguments,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env=env,
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        try:
            (folder,) = eventually(lambda: list((home / "local" / "apps").glob("[!.]*")))
            said = f"{cancelled}; cannot end the process {pid} (sleep)"
            eventually(lambda: layout.read_json(str(folder / "states.jsonl")).get("msg") == said)
            keeper = local.keeper(folder.name)

            def wakings() -> int:
                text = Path(f"/proc/{keeper}/status").read_text()
                return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

            before = wakings()
            time.sleep(2.0)  # the time over which the keeper's work is counted
            assert wakings() - before < 10
        finally:
            os.kill(pid, signal.SIGKILL)
        assert client.stdout.readline() == f"CANCELLED {cancelled!r}\n"
    os.chown(home, os.geteuid(), os.getegid())


RECORD = {
    "schema": 1,
    "app_id": "old",
    "session": "transload",
    "app": {
        "schema": 1,
        "name": "echo",
        "roles": [
            {"name": "main", "image": "", "entrypoint": "echo", "args": ["hi"], "num_replicas": 1}
        ],
    },
    "cfg": {"grace_period": 5.0},
    "digest": "sha256:c7828fbeb832c2076452c6a6431ec639e37868a85a63561af5e9a53930fb23cf",
    "created": 1795245456.859414,
    "boot_id": "another boot",
    "id_given": True,
    "cookie": "40edbf9214eebb8faad9b5482897931a",
    "token": "75bc11317b935a96",
    "workspaces": [],
}
REPLICA = {"id": 0, "role": "main", "hostname": "vm", "start_time": 1795245457.0, "restarts": 0}


@pytest.mark.parametrize("state", ["SUCCEEDED", "RUNNING"])
def test_state_of_version_0_1(local, state: str) -> None:
    """What version 0.1 wrote can be read for ever, as a copy of such files shows."""
    folder = Path(local.home) / "local" / "apps" / "old"
    logs = folder / "logs" / "main" / "0"
    logs.mkdir(parents=True)
    for path in (folder.parent.parent, folder.parent, folder):
        path.chmod(0o700)
    record = RECORD | {"tracker_base": str(folder / "results"), "logs": str(folder / "logs")}
    ended = {"exit_code": 0, "end_time": 1795245457.5} if state == "SUCCEEDED" else {}
    status = {
        "schema": 1,
        "state": state,
        "num_restarts": 0,
        "msg": "",
        "roles": [
            {
                "role": "main",
                "replicas": [
                    REPLICA | {"state": state, "exit_code": None, "end_time": None} | ended
                ],
            }
        ],
        "cancel_requested": False,
        "processes": [] if ended else [[1, 12345]],
    }
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "states.jsonl").write_text(json.dumps(status))
    os.mkfifo(folder / "ctl")
    (logs / "stdout.log").write_text("hi\n")
    (logs / "stderr.log").touch()
    (logs / "index").write_bytes(bytes.fromhex("a99c476451c0da4103000000000000000000000000000000"))
    found = local.scheduler.describe(["old"])["old"]
    assert found is not None and found.app is not None
    assert found.app.roles[0].args == ["hi"]
    assert found.digest == RECORD["digest"]
    if ended:
        assert found.status.state is AppState.SUCCEEDED
        assert found.status.roles[0].replicas[0].end_time == 1795245457.5
    else:
        assert found.status.state is AppState.FAILED and "rebooted" in found.status.msg
    assert local.log("old") == ["hi\n"]
    assert [row.app_id for row in local.scheduler.list()] == ["old"]
    local.scheduler.delete("old")
    assert local.scheduler.describe(["old"])["old"] is None and local.scheduler.existed("old")
