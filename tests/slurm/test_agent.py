"""An agent is told what to run, and starts the replica."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import transload
import transload_slurm.job
from transload_slurm.job import agent


def _output(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)


def test_spawn_gives_a_clean_start(tmp_path: Path) -> None:
    """A session of its own, its folder and environment, standard input empty, nothing else open."""
    out = _output(tmp_path / "out")
    inherited = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    code = (
        "import os, sys; "
        "print(os.getcwd(), dict(os.environ).get('A'), os.getsid(0) == os.getpid(), "
        "sys.stdin.read() == '', "
        "os.path.exists('/proc/self/fd/%s'), flush=True); os._exit(7)"
    )
    try:
        pid = agent.spawn(
            [sys.executable, "-I", "-S", "-c", code % inherited],
            str(tmp_path),
            {"A": "b c"},
            [out, out],
        )
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    finally:
        os.close(out)
        os.close(inherited)
    assert (tmp_path / "out").read_text().split("\n")[
        0
    ] == f"{tmp_path.resolve()} b c True True False"


def test_program_found_by_the_path_of_its_own_environment(tmp_path: Path) -> None:
    """PATH of the replica counts, not that of the agent."""
    (tmp_path / "mine").write_text("#!/bin/sh\nexit 5\n")
    (tmp_path / "mine").chmod(0o755)
    out = _output(tmp_path / "out")
    try:
        pid = agent.spawn(["mine"], str(tmp_path), {"PATH": str(tmp_path)}, [out, out])
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    finally:
        os.close(out)


@pytest.mark.parametrize(
    ("program", "folder", "number", "missing"),
    [
        ("/no/such/program", "", errno.ENOENT, "/no/such/program"),
        ("sh", "nowhere", errno.ENOENT, "nowhere"),
        ("./text", "", errno.EACCES, "./text"),
        ("no-such-word", "", errno.ENOENT, "no-such-word"),
    ],
)
def test_what_cannot_be_started(
    tmp_path: Path, program: str, folder: str, number: int, missing: str
) -> None:
    """The error says why, and what is missing, and no process is left."""
    (tmp_path / "text").write_text("not a program")
    out = _output(tmp_path / "out")
    try:
        with pytest.raises(OSError) as caught:
            agent.spawn(
                [program],
                str(tmp_path / folder) if folder else str(tmp_path),
                dict(os.environ),
                [out, out],
            )
    finally:
        os.close(out)
    assert caught.value.errno == number
    assert str(caught.value.filename).endswith(missing)


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
from transload_slurm.job import supervise
from transload_slurm.job.starts import Start
folder, told = sys.argv[1], sys.argv[2] == "told"
role = {"name": "main", "entrypoint": "sh", "args": ["-c", "kill -TERM $$"], "env": dict(os.environ), "cwd": folder,
        "srun": [], "num_replicas": 1,
        "min_replicas": None, "max_retries": 0, "retry_policy": "APPLICATION", "secrets": [], "container": [],
        "max_interruptions": 0, "notice": None, "notice_signal": "TERM", "checkpoints": None,
        "stall_after": None, "on_stall": "note", "stall_signal": "USR1"}
plan = {"app_id": "a", "python": sys.executable, "timeout": None, "segment": None, "grace": 5.0, "roles": [role]}
me = os.getpid()

class Told(supervise.Supervisor):
    def take(self, event):
        super().take(event)
        if told and self.doubtful:
            os.kill(me, signal.SIGTERM)

start = Start(folder, 0, os.path.dirname(folder))
start.enter()
sys.exit(Told(folder, plan, start, None).main())
"""


@pytest.mark.parametrize(("slurm", "code"), [("told", 143), ("silent", 1)])
def test_replica_is_signalled_before_its_supervisor(
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


_DELAYED = """
import json, os, sys
from transload_slurm.job import agent

def spawn(*given):
    pid = started(*given)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

started, agent.spawn = agent.spawn, spawn
agent.Agent(sys.argv[1], json.loads(sys.argv[2]), 0, 0, 0, os.dup(1)).main()
"""


def test_what_an_attempt_writes_is_never_older_than_its_start(tmp_path: Path) -> None:
    """On a busy node a program may have written all, before its agent has time to report."""
    task = {
        "app_id": "a", "grace": 1.0, "name": "main", "num_replicas": 1, "cwd": str(tmp_path),
        "entrypoint": "sleep", "container": [], "args": ["0.3"], "env": {}, "secrets": [],
        "notice": None, "notice_signal": "TERM", "checkpoints": None, "stall_after": None,
        "on_stall": "note", "stall_signal": "USR1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", _DELAYED, str(tmp_path), json.dumps(task)],
        input="start 0 1 here 1\n",
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    reports = [json.loads(line) for line in done.stdout.splitlines()]
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
    task = {
        "app_id": "a", "grace": 1.0, "name": "main", "num_replicas": 1, "cwd": str(tmp_path), "entrypoint": "sh",
        "container": [], "args": ["-c", fill], "env": {}, "secrets": [], "notice": None,
        "notice_signal": "TERM", "checkpoints": None, "stall_after": None, "on_stall": "note",
        "stall_signal": "USR1",
    }  # fmt: skip
    code = (
        "import json, os, sys; from transload_slurm.job.agent import Agent; "
        "Agent(sys.argv[1], json.loads(sys.argv[2]), 0, 0, 0, os.dup(1)).main()"
    )
    command = [sys.executable, "-c", code, str(disk), json.dumps(task)]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as served:
            assert served.stdin is not None and served.stdout is not None
            ends = []
            for run in range(2):
                served.stdin.write(f"start 0 {run} here {run}\n")
                served.stdin.flush()
                ends.append(
                    next(
                        (
                            each
                            for line in served.stdout
                            if (each := json.loads(line))["e"] == "ended"
                        ),
                        None,
                    )
                )
            served.stdin.close()
        assert [end and end["code"] for end in ends] == [1, 0]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
