"""An agent is told what to run, and starts the replica."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transload
import transload_slurm.job
from transload.keeper import processes

_SERVE = (
    "import json, os, sys; from transload_slurm.job.agent import Agent; "
    "Agent(sys.argv[1], json.loads(sys.argv[2]), 0, 0, 0, os.dup(1)).main()"
)


def task(folder: Path, entrypoint: str, *args: str, **fields: Any) -> str:
    """Return what an agent is to run, in the folder."""
    plain = {
        "app_id": "a", "grace": 1.0, "name": "main", "num_replicas": 1, "cwd": str(folder),
        "entrypoint": entrypoint, "container": [], "args": args, "env": {}, "secrets": [],
        "notice": None, "notice_signal": "TERM", "checkpoints": None, "stall_after": None,
        "on_stall": "note", "stall_signal": "USR1",
    }  # fmt: skip
    return json.dumps({**plain, **fields})


def serve(
    folder: Path, what: str, code: str = _SERVE, runs: int = 1, **more: Any
) -> list[dict[str, Any]]:
    """Have an agent run something so often, and return what it reports."""
    command = [sys.executable, "-c", code, str(folder), what]
    reports: list[dict[str, Any]] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more
    ) as served:
        assert served.stdin is not None and served.stdout is not None
        for run in range(runs):
            served.stdin.write(f"start 0 {run} here {run}\n")
            served.stdin.flush()
            for line in served.stdout:
                reports.append(json.loads(line))
                if reports[-1]["e"] == "ended":
                    break
        served.stdin.close()
    return reports


def test_a_replica_has_a_clean_start(tmp_path: Path) -> None:
    """A session of its own, its folder and environment, standard input empty, nothing else open."""
    inherited = os.open(os.devnull, os.O_RDONLY)
    code = (
        "import os, sys; "
        "print(os.getcwd(), dict(os.environ).get('A'), os.getsid(0) == os.getpid(), "
        "sys.stdin.read() == '', "
        "os.path.exists('/proc/self/fd/%s'), flush=True); os._exit(7)"
    )
    try:
        what = task(tmp_path, sys.executable, "-I", "-S", "-c", code % inherited, env={"A": "b c"})
        main = (
            "import transload_slurm.job.agent as agent, sys; "
            "agent.layout.write_file(sys.argv[1] + '/role-0', sys.argv[2].encode()); "
            "agent.main(sys.argv[1], '0')"
        )
        reports = serve(tmp_path, what, main, pass_fds=[inherited])
    finally:
        os.close(inherited)
    assert reports[-1]["code"] == 7
    output = (tmp_path / "logs" / "main" / "0" / "stdout.log").read_text()
    assert output == f"{tmp_path.resolve()} b c True True False\n"


def test_program_found_by_the_path_of_its_own_environment(tmp_path: Path) -> None:
    """PATH of the replica counts, not that of the agent."""
    (tmp_path / "mine").write_text("#!/bin/sh\nexit 5\n")
    (tmp_path / "mine").chmod(0o755)
    (_, end) = serve(tmp_path, task(tmp_path, "mine", env={"PATH": str(tmp_path)}))
    assert end["code"] == 5


@pytest.mark.parametrize(
    ("program", "folder", "code", "missing"),
    [
        ("/no/such/program", "", 127, "/no/such/program"),
        ("sh", "nowhere", 127, "nowhere"),
        ("./text", "", 126, "./text"),
        ("no-such-word", "", 127, "no-such-word"),
    ],
)
def test_what_cannot_be_started(
    tmp_path: Path, program: str, folder: str, code: int, missing: str
) -> None:
    """The log says what is missing, and the exit code is that of a shell."""
    (tmp_path / "text").write_text("not a program")
    (end,) = serve(tmp_path, task(tmp_path / folder, program))
    assert end["code"] == code
    assert missing in (tmp_path / "logs" / "main" / "0" / "stderr.log").read_text()


def test_the_agent_imports_next_to_nothing() -> None:
    """An agent imports nothing heavy, as one starts for each replica."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); ours = type(sys)('transload'); "
        "ours.__path__ = [sys.argv[2]]; sys.modules['transload'] = ours; import job.agent; "
        "print(*sorted({'ctypes', 'json', 're', 'subprocess', 'contextlib', 'enum', 'typing'} & "
        "set(sys.modules)))"
    )
    place = str(Path(transload_slurm.job.__file__).parents[1])
    ours = str(Path(transload.__file__).parent)
    command = [sys.executable, "-I", "-S", "-c", code, place, ours]
    assert (
        subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout.split()
        == []
    )


_SIGNALLED_LAST = """
import json, os, signal, sys
from transload_slurm.job import keeper
from transload_slurm.job.starts import Start
folder, told = sys.argv[1], sys.argv[2] == "told"
role = {"name": "main", "entrypoint": "sh", "args": ["-c", "kill -TERM $$"], "env": dict(os.environ), "cwd": folder,
        "srun": [], "num_replicas": 1,
        "min_replicas": None, "max_retries": 0, "retry_policy": "APPLICATION", "secrets": [], "container": [],
        "max_interruptions": 0, "notice": None, "notice_signal": "TERM", "checkpoints": None,
        "stall_after": None, "on_stall": "note", "stall_signal": "USR1"}
plan = {"app_id": "a", "python": sys.executable, "timeout": None, "segment": None, "grace": 5.0, "roles": [role]}
me = os.getpid()

class Told(keeper.SlurmKeeper):
    def take(self, event):
        super().take(event)
        if told and self.doubtful:
            os.kill(me, signal.SIGTERM)

start = Start(folder, 0, os.path.dirname(folder))
start.enter()
sys.exit(Told(folder, plan, start, None).main())
"""


@pytest.mark.parametrize(("slurm", "code"), [("told", 143), ("silent", 1)])
def test_replica_is_signalled_before_its_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: str, code: int
) -> None:
    """A TERM from Slurm, which is to start the job again, is no end of the job.

    Another's is one.
    """
    package = Path(transload_slurm.job.__file__).parent
    shutil.copytree(package, tmp_path / "job" / "transload_slurm_job")
    shutil.copy(package / "__main__.py", tmp_path / "job" / "__main__.py")
    keeper = Path(transload.__file__).parent / "keeper"
    shutil.copytree(keeper, tmp_path / "job" / "transload" / "keeper")
    (tmp_path / "srun").write_text(
        '#!/bin/sh\nexec "$@"\n'
    )  # stands in for Slurm's: one task, here
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = [sys.executable, "-c", _SIGNALLED_LAST, str(tmp_path), slurm]
    assert subprocess.run(command, check=False, timeout=60).returncode == code
    written = json.loads((tmp_path / "states.jsonl").read_text())
    assert written["signalled"] is (slurm == "told")
    assert (written["state"] == "FAILED") is (slurm == "silent")
    assert written["roles"][0]["replicas"][0]["exit_code"] == -15


_LEAVES_ONE = """
import os, signal, sys, time
if os.fork():
    time.sleep(60)
terms = []
signal.signal(signal.SIGTERM, lambda *_: terms.append(1))
open(sys.argv[1] + "/ready", "w").close()
while not terms:
    signal.pause()
time.sleep(0.5)
with open(sys.argv[1] + "/terms", "w") as file:
    file.write(str(len(terms)))
"""


def test_what_slurm_has_signalled_has_its_time_and_no_second_signal(
    tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """A process that outlives the main one ends by itself, though Slurm is ending the job."""
    what = task(tmp_path, sys.executable, "-c", _LEAVES_ONE, str(tmp_path), grace=20.0)
    command = [sys.executable, "-c", _SERVE, str(tmp_path), what]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdin is not None and served.stdout is not None
        served.stdin.write("start 0 0 here 0\n")
        served.stdin.flush()
        eventually((tmp_path / "ready").exists, 30)
        living = processes.snapshot()
        for pid in [served.pid, *processes.below(living, {served.pid})]:
            os.kill(pid, signal.SIGTERM)
        reports = []
        for line in served.stdout:
            reports.append(json.loads(line))
            if reports[-1]["e"] == "ended":
                break
        served.stdin.close()
    assert (reports[-1]["code"], reports[-1]["signalled"]) == (-15, True)
    assert (tmp_path / "terms").read_text() == "1"


_DELAYED = """
import json, os, sys
from transload.keeper import replica
from transload_slurm.job.agent import Agent

def start_replica(*given):
    pid = started(*given)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

started, replica.start_replica = replica.start_replica, start_replica
Agent(sys.argv[1], json.loads(sys.argv[2]), 0, 0, 0, os.dup(1)).main()
"""


def test_what_an_attempt_writes_is_never_older_than_its_start(tmp_path: Path) -> None:
    """On a busy node a program may have written all, before its agent has time to report."""
    reports = serve(tmp_path, task(tmp_path, "sleep", "0.3"), _DELAYED)
    assert [report["e"] for report in reports] == ["started", "ended"]
    assert reports[1]["time"] - reports[0]["time"] >= 0.3


def test_a_replica_is_started_again_on_a_disk_that_its_log_has_filled(tmp_path: Path) -> None:
    """A full log that breaks off without a newline does not keep a replica from running."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("not run: no file system of limited size can be mounted here")
    fill = "[ $TRANSLOAD_RETRY = 1 ] || { head -c 1000000 /dev/zero | tr '\\0' x; exit 1; }"
    try:
        reports = serve(disk, task(tmp_path, "sh", "-c", fill), runs=2)
        assert [each["code"] for each in reports if each["e"] == "ended"] == [1, 0]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
