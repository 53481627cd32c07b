"""Jobs on a real cluster have gangs, devices, all ends, secrets and workspaces."""

from __future__ import annotations

import dataclasses
import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from transload.cli import main
from transload.errors import AppExists, ConfigError, SchedulerUnavailable, SubmitError
from transload.runner import Launch, Runner
from transload.schedulers.api import Stream
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    Resource,
    RetryPolicy,
    Role,
    Workspace,
    macros,
    parse_app_handle,
)
from transload_slurm import SlurmScheduler
from transload_slurm.job import keeper

Eventually = Callable[..., Any]
ShellApp = Callable[..., AppDef]
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits" / "component.py"


def ended(runner: Runner, handle: str) -> AppStatus:
    """Wait for an app's end."""
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


def job_id(runner: Runner, handle: str) -> str:
    """Return the id of an app's Slurm job."""
    found: Any = runner.scheduler("slurm")
    job: str = found.slurm_job(parse_app_handle(handle).app_id)
    return job


def lines(
    runner: Runner, handle: str, role: str = "main", k: int = 0, streams: Stream | None = None
) -> list[str]:
    """Return a replica's log."""
    return list(runner.log_lines(handle, role, k, streams=streams))


def test_gang_of_two_roles_with_gpus(runner: Runner, cluster: Any) -> None:
    """Roles start together as components. Each replica has its own GPUs, and all know rank 0."""
    say = f"echo $CUDA_VISIBLE_DEVICES on $SLURMD_NODENAME rank0 ${macros.rank0_env} id {macros.replica_id}"
    say += f" app {macros.app_id}"
    roles = [
        Role(
            "gpu",
            "/tmp",
            entrypoint="sh",
            args=["-c", say],
            num_replicas=2,
            resource=Resource(cpu=2, gpu=1, memMB=200),
        ),
        Role(
            "cpu",
            "/tmp",
            entrypoint="sh",
            args=["-c", f"{say}; exit 0"],
            resource=Resource(cpu=1, gpu=0, memMB=100),
        ),
    ]
    handle = runner.run(AppDef("pair", roles), "slurm")
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert [(r.role, r.id, r.exit_code) for role in status.roles for r in role.replicas] == [
        ("gpu", 0, 0),
        ("gpu", 1, 0),
        ("cpu", 0, 0),
    ]
    said = [lines(runner, handle, "gpu", k)[0].split() for k in range(2)]
    assert {words[0] for words in said} == {"0", "1"}
    app_id = parse_app_handle(handle).app_id
    assert [words[words.index("id") + 1] for words in said] == ["0", "1"]
    assert said[0][-1] == app_id
    assert said[0][said[0].index("rank0") + 1] == "127.0.0.1"
    assert lines(runner, handle, "cpu")[0].startswith("on ")
    comments = cluster.tool(
        "squeue", "-h", "-t", "all", "-o", "%k", "-j", job_id(runner, handle)
    ).split()
    assert f"transload:{app_id}" in comments


def test_exit_codes_and_signals(runner: Runner, shell_app: ShellApp) -> None:
    """Exit statuses and signals are told apart, 137 and SIGKILL too."""
    commands = {0: "exit 3", 1: "exit 137", 2: "kill -9 $$", 3: "exit 0"}
    cases = " ".join(f"{k}) {command};;" for k, command in commands.items())
    handle = runner.run(
        shell_app(f"case {macros.replica_id} in {cases} esac", num_replicas=4, min_replicas=1),
        "slurm",
    )
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED
    assert [replica.exit_code for replica in status.roles[0].replicas] == [3, 137, -9, 0]


def test_scancel_from_outside(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually
) -> None:
    """A job that somebody cancels with Slurm's own tool is CANCELLED, never FAILED, whatever its
    retries.
    """
    app = shell_app(
        "echo up; sleep 100", num_replicas=2, max_retries=3, retry_policy=RetryPolicy.REPLICA
    )
    handle = runner.run(app, "slurm")
    eventually(lambda: lines(runner, handle) == ["up\n"], 30)
    cluster.tool("scancel", job_id(runner, handle))
    status = ended(runner, handle)
    assert status.state is AppState.CANCELLED
    assert not status.cancel_requested
    assert status.num_restarts == 0


def test_cancel_leaves_nothing_behind(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually, tmp_path: Path
) -> None:
    """Cancelling ends grandchildren that have left their session too."""
    mark = f"3{os.getpid()}"
    handle = runner.run(shell_app(f"setsid sleep {mark} & echo up; sleep {mark}"), "slurm")
    eventually(lambda: lines(runner, handle) == ["up\n"], 30)
    eventually(lambda: _sleepers(mark) == 2, 30)  # "up" is said before either has started
    runner.cancel(handle)
    status = ended(runner, handle)
    assert status.state is AppState.CANCELLED
    assert status.cancel_requested
    assert status.msg.startswith("cancelled on request of ")
    eventually(lambda: _sleepers(mark) == 0, 20)


def _sleepers(mark: str) -> int:
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                count += Path(f"/proc/{entry}/cmdline").read_bytes() == f"sleep\0{mark}\0".encode()
            except OSError:
                continue
    return count


def test_end_of_the_replica_ends_its_children(runner: Runner, shell_app: ShellApp) -> None:
    """What a replica leaves running when it ends is ended."""
    mark = f"4{os.getpid()}"
    handle = runner.run(shell_app(f"setsid sleep {mark} & sleep 0.3"), "slurm")
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert _sleepers(mark) == 0


def test_wrapper_is_killed(runner: Runner, shell_app: ShellApp, eventually: Eventually) -> None:
    """A task killed with its keeper is lost, which a retry answers once."""
    app = shell_app(
        "echo $PPID; exec sleep 100",
        num_replicas=2,
        max_retries=1,
        retry_policy=RetryPolicy.REPLICA,
    )
    handle = runner.run(app, "slurm")
    for attempt in range(2):
        eventually(lambda want=attempt + 1: len(lines(runner, handle, "main", 1)) == want, 40)
        os.kill(int(lines(runner, handle, "main", 1)[attempt]), 9)
    status = ended(runner, handle)
    assert status.state is AppState.FAILED
    assert "replica 1 failed (lost" in status.msg
    assert status.num_restarts == 1


def test_batch_script_is_killed(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually
) -> None:
    """If the keeper is killed, Slurm ends the job, which is FAILED with ended replicas."""
    handle = runner.run(shell_app("echo $PPID; sleep 100", num_replicas=1), "slurm")
    eventually(lambda: lines(runner, handle), 30)
    cluster.tool("scancel", "--batch", "--signal=KILL", job_id(runner, handle))
    status = ended(runner, handle)
    assert status.state is AppState.FAILED, status
    assert all(replica.state is not AppState.RUNNING for replica in status.roles[0].replicas)


@pytest.mark.slow
def test_a_program_that_calls_srun(runner: Runner, shell_app: ShellApp) -> None:
    """Its step does not wait for what its job's own step has, and gets the same memory."""
    app = shell_app("srun echo inside", resource=Resource(cpu=2, gpu=-1, memMB=100))
    handle = runner.run(app, "slurm")
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main", 0)) == ["inside\n"]


@pytest.mark.slow
def test_limit_of_time(runner: Runner, shell_app: ShellApp) -> None:
    """A job that Slurm ends at its limit of time is FAILED, and says why."""
    handle = runner.run(shell_app("sleep 300"), "slurm", {"time": "1"})
    status = runner.wait(handle, timeout=240)
    assert status is not None
    assert status.state is AppState.FAILED
    assert "limit of time" in status.msg


def test_dependency_never_satisfied(runner: Runner, shell_app: ShellApp) -> None:
    """A job whose dependency cannot come true does not wait for ever."""
    first = runner.run(shell_app("exit 1"), "slurm")
    assert ended(runner, first).state is AppState.FAILED
    handle = runner.run(
        shell_app("true"), "slurm", {"dependency": f"afterok:{job_id(runner, first)}"}
    )
    status = ended(runner, handle)
    assert status.state is AppState.FAILED
    assert "dependency can never be satisfied" in status.msg


def test_partition_that_does_not_exist(
    runner: Runner, shell_app: ShellApp, slurm_dir: Path
) -> None:
    """A missing partition is one clear line, and the job's id is free again."""
    with pytest.raises(SubmitError, match="invalid partition specified: nope") as caught:
        runner.run(shell_app("true"), "slurm", {"partition": "nope"}, app_id="again")
    assert "\n" not in str(caught.value)
    assert not caught.value.transient
    assert not (slurm_dir / "again").exists()
    handle = runner.run(shell_app("true"), "slurm", {"partition": "other"}, app_id="again")
    assert ended(runner, handle).state is AppState.SUCCEEDED


def test_waiting_says_why(runner: Runner, shell_app: ShellApp, eventually: Eventually) -> None:
    """A job in the queue is PENDING with Slurm's reason, and can be cancelled there."""
    handle = runner.run(shell_app("true"), "slurm", {"begin": "now+1hour"})
    status = eventually(lambda: (s := runner.status(handle)) and "BeginTime" in s.msg and s, 30)
    assert status.state is AppState.PENDING
    runner.cancel(handle)
    status = ended(runner, handle)
    assert status.state is AppState.CANCELLED
    assert status.msg.startswith("cancelled on request of ")


def test_options_reach_slurm(runner: Runner, cluster: Any, shell_app: ShellApp) -> None:
    """Options become those of sbatch, and a role's metadata is stronger than the app's."""
    app = shell_app("true", metadata={"slurm.partition": "other"})
    cfg = {
        "partition": "main",
        "comment": 'said "so"',
        "time": "5",
        "nice": 10,
        "nodes": 1,
        "exclusive": True,
    }
    handle = runner.run(app, "slurm", cfg)
    assert ended(runner, handle).state is AppState.SUCCEEDED
    shown = cluster.tool("scontrol", "show", "job", job_id(runner, handle))
    assert "Partition=other" in shown
    assert f"Comment=transload:{parse_app_handle(handle).app_id} " in shown
    assert ' said "so"' in shown
    assert "TimeLimit=00:05:00" in shown
    assert "NodeList=node3" in shown


def test_constraint(runner: Runner, cluster: Any, shell_app: ShellApp) -> None:
    """A constraint picks nodes with the feature.

    One that no node has is Slurm's complaint in a line.
    """
    handle = runner.run(
        shell_app("echo on $SLURMD_NODENAME", num_replicas=2), "slurm", {"constraint": "new&fast"}
    )
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert [lines(runner, handle, k=k) for k in range(2)] == [["on node3\n"], ["on node3\n"]]
    assert "Features=new&fast" in cluster.tool("scontrol", "show", "job", job_id(runner, handle))
    with pytest.raises(SubmitError, match="[Ii]nvalid feature specification") as caught:
        runner.run(shell_app("true"), "slurm", {"constraint": "newest"})
    assert not caught.value.transient


def test_roles_with_constraints_of_their_own(
    runner: Runner, cluster: Any, shell_app: ShellApp
) -> None:
    """Each role's metadata decides where its component runs."""
    roles = []
    for name, feature in (("first", "old"), ("second", "fast")):
        role = shell_app("echo $SLURMD_NODENAME", metadata={"slurm.constraint": feature}).roles[0]
        role.name = name
        roles.append(role)
    handle = runner.run(AppDef("pair", roles), "slurm")
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert lines(runner, handle, "first") in (["node1\n"], ["node2\n"])
    assert lines(runner, handle, "second") == ["node3\n"]


def test_our_own_settings_of_slurms_tools_stay_here(
    runner: Runner, shell_app: ShellApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How Slurm's answers are to be written here is no matter of the job, nor of what it starts."""
    for name in ("LC_ALL", "LANG", "LC_MESSAGES", "SLURM_TIME_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    script = "env | grep -E '^(LC_MESSAGES|SLURM_TIME_FORMAT)='; squeue -h -j $SLURM_JOB_ID -o %V"
    handle = runner.run(shell_app(script), "slurm", {"prologue": "export SLURM_TIME_FORMAT=%s"})
    runner.wait(handle, timeout=60)
    (own, time) = runner.log_lines(handle, "main")
    assert (own, time.strip().isdigit()) == ("SLURM_TIME_FORMAT=%s\n", True)
    monkeypatch.setenv("LC_MESSAGES", "C.UTF-8")
    handle = runner.run(shell_app("echo $LC_MESSAGES; env | grep SLURM_TIME_FORMAT"), "slurm")
    runner.wait(handle, timeout=60)
    assert list(runner.log_lines(handle, "main")) == ["C.UTF-8\n"]


def test_scancel_that_is_refused(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who may not cancel a job gets an error, and nothing is noted. Whoever may, ends it."""
    handle = runner.run(shell_app("echo up; sleep 100"), "slurm")
    eventually(lambda: lines(runner, handle) == ["up\n"], 30)
    real = shutil.which("scancel", path=cluster.env["PATH"])
    (tmp_path / "nobody").mkdir()
    fake = tmp_path / "nobody" / "scancel"
    fake.write_text(
        f'#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups {real} "$@"\n'
    )
    fake.chmod(0o755)
    (cluster.base / "munge").chmod(0o711)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{fake.parent}:{cluster.env['PATH']}")
        with pytest.raises(SchedulerUnavailable, match="was not cancelled: scancel: .*denied"):
            runner.cancel(handle)
    status = runner.status(handle)
    assert status is not None
    assert status.state is AppState.RUNNING
    assert not status.cancel_requested
    runner.cancel(handle)
    assert ended(runner, handle).state is AppState.CANCELLED
    runner.cancel(handle)


def test_unknown_options(runner: Runner, shell_app: ShellApp) -> None:
    """A misspelt option is refused with the nearest valid one, in the metadata of a role too."""
    with pytest.raises(ConfigError, match="partition"):
        runner.run(shell_app("true"), "slurm", {"partitoin": "main"})
    with pytest.raises(ConfigError, match=r"roles\[0\].metadata.*partition"):
        runner.run(shell_app("true", metadata={"slurm.partitoin": "main"}), "slurm")


def test_workspace_is_copied_once(runner: Runner, tmp_path: Path, slurm_dir: Path) -> None:
    """Local code reaches the job by a copy in its folder, one for all roles, and is the working
    directory.
    """
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "hello.sh").write_text("echo hello from $PWD; test $1 = $PWD")
    workspace = Workspace({str(tmp_path / "code"): ""})
    roles = [
        Role(name, "", entrypoint="sh", args=["hello.sh", macros.img_root], workspace=workspace)
        for name in ("a", "b")
    ]
    handle = runner.run(AppDef("code", roles), "slurm", {"job_dir": str(tmp_path / "big")})
    assert ended(runner, handle).state is AppState.SUCCEEDED
    app_id = parse_app_handle(handle).app_id
    copies = list((tmp_path / "big" / app_id / "workspace").iterdir())
    assert [copy.name for copy in copies] == ["0"]
    assert lines(runner, handle, "b") == [f"hello from {copies[0]}\n"]
    runner.delete(handle)
    assert not (tmp_path / "big" / app_id).exists()


def test_secrets_are_nowhere_to_be_read(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    slurm_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A secret is in the job's environment, but not in the script, `scontrol` or any file."""
    monkeypatch.setenv("SOURCE", "hunter2-value")
    app = shell_app(
        'test "$PASSWORD" = hunter2-value && ! env | grep -q TRANSLOAD_SECRET && sleep 1',
        secrets={"PASSWORD": "env:SOURCE"},
        num_replicas=2,
    )
    info = runner.dryrun(app, "slurm")
    assert "hunter2" not in str(info).replace(app.roles[0].args[1], "")
    handle = runner.schedule(info)
    job = job_id(runner, handle)
    shown = cluster.tool("scontrol", "show", "job", job) + cluster.tool(
        "scontrol", "write", "batch_script", job, "-"
    )
    assert "PASSWORD" not in shown.replace(app.roles[0].args[1], "")
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    for path in slurm_dir.rglob("*"):
        if path.is_file():
            text = path.read_text(errors="replace")
            assert "hunter2-value" not in text.replace("= hunter2-value &&", ""), path
    for folder in (slurm_dir, slurm_dir / parse_app_handle(handle).app_id):
        assert folder.stat().st_mode & 0o077 == 0


def test_two_submits_of_one_id_at_once(
    runner: Runner, cluster: Any, shell_app: ShellApp, tmp_path: Path
) -> None:
    """One of many submits of an id starts the job, and the others reattach.

    Another job is refused.
    """
    app = shell_app(f"echo x >> {tmp_path}/starts; sleep 0.5")
    with ThreadPoolExecutor(6) as pool:
        handles = list(pool.map(lambda _: runner.run(app, "slurm", app_id="one"), range(6)))
    assert set(handles) == {"slurm://tests/one"}
    with pytest.raises(AppExists):
        runner.run(shell_app("true"), "slurm", app_id="one")
    assert ended(runner, handles[0]).state is AppState.SUCCEEDED
    assert (tmp_path / "starts").read_text() == "x\n"
    assert len(cluster.tool("squeue", "-h", "-t", "all", "--name=one", "-o", "%i").split()) == 1


def test_dry_run_is_the_script(runner: Runner, shell_app: ShellApp) -> None:
    """The dry-run shows the batch script that sbatch will get, but for its token and who asked."""
    info = runner.dryrun(
        shell_app("echo hi", num_replicas=2), "slurm", {"partition": "main"}, app_id="shown"
    )
    text = str(info)
    assert text.startswith("#!/bin/sh\n#SBATCH --job-name=shown\n")
    assert "#SBATCH --partition=main" in text
    assert "# role main, 2 replica(s): sh -c 'echo hi'" in text
    handle = runner.schedule(info)
    folder = Path(os.environ["TRANSLOAD_SLURM_DIR"]) / "apps" / "shown"
    script = re.sub(
        r'(--comment="transload:shown) \w+ [^"]*"', r'\1 <token>"', (folder / "job.sh").read_text()
    )
    given = script.splitlines()
    assert given[:-1] == text.splitlines()[: len(given) - 1]
    assert subprocess.run(["sh", "-n", str(folder / "job.sh")], check=False).returncode == 0
    assert ended(runner, handle).state is AppState.SUCCEEDED


def test_the_comment_says_who_asked(runner: Runner, cluster: Any, shell_app: ShellApp) -> None:
    """Slurm's own tools show who asked for a job, after the user's own comment."""
    launch = Launch(app=shell_app("true"), scheduler="slurm", cfg={"comment": "mine"})
    words = {"dag": 'a "b"\n', "note": "x" * 5000}
    job = launch.plan(runner, asked={"flow": words}).submit()
    assert ended(runner, job.handle).state is AppState.SUCCEEDED
    comment = cluster.tool("scontrol", "show", "job", job_id(runner, job.handle))
    comment = comment.partition("Comment=")[2].splitlines()[0]
    assert f"{job.app_id} " in comment
    assert f" mine user={getpass.getuser()} machine={os.uname().nodename} " in comment
    assert ' flow.dag=a "b" flow.note=xxx' in comment
    assert len(comment) < 700


def test_doctor(runner: Runner) -> None:
    """The scheduler says for itself whether it can be used, as whom, and what is missing."""
    scheduler: Any = runner.scheduler("slurm")
    checks = {name: (well, text) for name, well, text in scheduler.diagnose()}
    assert all(well for well, _ in checks.values()), checks
    assert "slurm" in checks["clients"][1]
    assert "UP" in checks["controller"][1]
    assert "main*" in checks["partitions"][1]


def test_doctor_says_what_is_missing(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor has a line each for a missing controller, folder and clients."""
    text = [
        line
        for line in cluster.conf.read_text().splitlines()
        if not line.startswith("SlurmctldPort")
    ]
    (tmp_path / "file").touch()
    elsewhere = tmp_path / "slurm.conf"
    with socket.socket() as taken, monkeypatch.context() as patch:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        elsewhere.write_text(
            "\n".join([*text, f"SlurmctldPort={taken.getsockname()[1]}", "MessageTimeout=2", ""])
        )
        patch.setenv("SLURM_CONF", str(elsewhere))
        patch.setenv("TRANSLOAD_SLURM_DIR", str(tmp_path / "file"))
        scheduler = SlurmScheduler("tests")
        checks = {name: (well, text) for name, well, text in scheduler.diagnose()}
        patch.setenv("PATH", str(tmp_path))
        first = scheduler.diagnose()[0]
    assert not checks["controller"][0] and checks["controller"][1]
    assert not checks["folder"][0] and str(tmp_path / "file") in checks["folder"][1]
    assert first[:2] == ("clients", False)
    assert "sbatch" in first[2] and "squeue" in first[2]


@pytest.mark.slow  # the session everywhere compares the accuracy of all engines
def test_digits_example(runner: Runner) -> None:
    """The digits trainer runs over three tasks, finds rank 0, and learns bit for bit what it learns
    on one machine.
    """
    pytest.importorskip("sklearn")
    accuracy = {}
    for scheduler in ("slurm", "local"):
        handle = runner.run_component(
            f"{EXAMPLE}:digits", ["--epochs", "3", "--replicas", "3"], scheduler
        )
        status = ended(runner, handle)
        assert status.state is AppState.SUCCEEDED, [
            lines(runner, handle, "trainer", k) for k in range(3)
        ]
        accuracy[scheduler] = runner.results(handle).value("accuracy")
    assert accuracy["slurm"] == accuracy["local"]
    assert 0.3 < float(accuracy["slurm"]) <= 1.0


def test_prologue_runs_first(runner: Runner, shell_app: ShellApp) -> None:
    """What the prologue exports reaches every replica. The keeper's Python may come from it."""
    prologue = (
        f"export FROM_PROLOGUE='a b'\npy() {{ :; }}\nPATH={Path(sys.executable).parent}:$PATH"
    )
    handle = runner.run(
        shell_app('echo "$FROM_PROLOGUE"', num_replicas=2), "slurm", {"prologue": prologue}
    )
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert [lines(runner, handle, "main", k) for k in range(2)] == [["a b\n"], ["a b\n"]]


def test_prologue_works_in_the_workspace(runner: Runner, tmp_path: Path) -> None:
    """The prologue works with the files that travel.

    The log of the first replica has its output.
    """
    project = tmp_path / "project"
    project.mkdir()
    (project / "requirements.txt").write_text("torch\n", encoding="utf-8")
    role = Role(
        "main",
        "",
        entrypoint="sh",
        args=["-c", "cat made"],
        num_replicas=2,
        workspace=Workspace({str(project): ""}),
    )
    prologue = "cp requirements.txt made\necho said\necho complained >&2\ncd /"
    handle = runner.run(AppDef("test", [role]), "slurm", {"prologue": prologue})
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert sorted(lines(runner, handle, "main", 0)) == ["complained\n", "said\n", "torch\n"]
    assert lines(runner, handle, "main", 1) == ["torch\n"]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("slurm_script: 31: source: not found", "`. FILE`"),
        ("slurm_script: line 31: module: command not found\n", "`. /etc/profile.d/modules.sh`"),
        ("slurm_script: 3: ml: not found", "`. /etc/profile.d/modules.sh`"),
        ("slurm_script: 3: conda: not found", "`. FOLDER/etc/profile.d/conda.sh`"),
        ("slurm_script: 3: resource: not found", ""),
        ("module: no module of this name", ""),
    ],
)
def test_what_sh_does_not_know_is_said_with_what_to_write(line: str, remedy: str) -> None:
    """The words of dash and of bash about commands of a login shell of bash."""
    said = keeper.remedy_of(line)
    assert remedy in said and bool(said) == bool(remedy)


@pytest.mark.parametrize(
    ("prologue", "code", "said"),
    [
        (
            "python3 -c 'raise SystemExit(\"no distribution found\")'\nexport A=1",
            1,
            "no distribution found",
        ),
        ("echo before\n(exit 3)\necho after", 3, "before"),
        ("cd nowhere", None, "nowhere"),
    ],
    ids=["installer", "subshell", "cd"],
)
def test_a_prologue_that_fails_fails_the_job(
    runner: Runner, shell_app: ShellApp, prologue: str, code: int | None, said: str
) -> None:
    """A failed prologue's last line is the reason, and no replica is started or retried."""
    app = shell_app("echo started", num_replicas=2, max_retries=2)
    handle = runner.run(app, "slurm", {"prologue": prologue})
    status = ended(runner, handle)
    assert status.state is AppState.FAILED
    assert "the prologue failed (exit code" in status.msg and said in status.msg, status.msg
    first, second = status.roles[0].replicas
    assert first.state is AppState.FAILED and second.state is AppState.CANCELLED
    assert first.exit_code and code in (None, first.exit_code)
    assert said in "".join(lines(runner, handle, "main", 0))
    for k in range(2):
        assert not {"started\n", "after\n"} & set(lines(runner, handle, "main", k))


@pytest.mark.parametrize(
    "end", ["exit 0", "trap 'echo trapped' EXIT\nset +e\nfalse"], ids=["exit 0", "trap"]
)
def test_a_prologue_may_allow_what_fails(runner: Runner, shell_app: ShellApp, end: str) -> None:
    """A prologue may end with ``|| true`` or ``exit 0``.

    What it leaves set does not reach the job.
    """
    prologue = f"false || true\nexport SEEN=1\n{end}"
    handle = runner.run(shell_app('echo "$SEEN"', num_replicas=2), "slurm", {"prologue": prologue})
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert [lines(runner, handle, "main", k)[-1] for k in range(2)] == ["1\n", "1\n"]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("trap 'echo bye' EXIT\nexit 0", id="own trap"),
        pytest.param("exec true", id="exec", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_its_prologue_ends_has_not_succeeded(
    runner: Runner, shell_app: ShellApp, end: str
) -> None:
    """A script that never reached the program, though Slurm calls it COMPLETED, has failed."""
    handle = runner.run(shell_app("echo started", num_replicas=2), "slurm", {"prologue": end})
    status = ended(runner, handle)
    assert status.state is AppState.FAILED
    assert "ended before the program started: does the prologue call exit?" in status.msg
    assert all(replica.state is not AppState.SUCCEEDED for replica in status.roles[0].replicas)
    assert lines(runner, handle, "main") in (["bye\n"], [])


def test_a_prologue_is_cancelled(
    runner: Runner, shell_app: ShellApp, eventually: Eventually
) -> None:
    """A cancel while it runs is a cancel, and no failure of the prologue."""
    handle = runner.run(shell_app("true"), "slurm", {"prologue": "echo up\nsleep 60"})
    eventually(lambda: lines(runner, handle, "main") == ["up\n"], timeout=30)
    runner.cancel(handle)
    status = ended(runner, handle)
    assert status.state is AppState.CANCELLED
    assert status.msg.startswith("cancelled on request of ")


def _with_engine(runner: Runner, handle: str) -> dict[str, str]:
    status = runner.status(handle)
    assert status is not None
    return status.engine


@pytest.mark.parametrize("shape", ["one", "two roles"])
def test_slurms_own_names_are_kept(
    runner: Runner,
    shell_app: ShellApp,
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    shape: str,
) -> None:
    """Slurm's job id and nodes are in the status while a job waits, runs, and for ever after."""
    app = shell_app(f"until test -e {tmp_path}/go; do sleep 0.1; done")
    if shape == "two roles":
        app.roles.append(dataclasses.replace(app.roles[0], name="other"))
    cfg: dict[str, Any] = {"exclusive": True, "sbatch_args": ["--hold"]}
    handle = runner.run(app, "slurm", cfg, app_id="named")
    first = re.split(r"\D", cluster.tool("squeue", "-h", "-n", "named", "-o", "%i"))[0]
    eventually(lambda: _with_engine(runner, handle) == {"slurm_job": first}, 30)
    cluster.tool("scontrol", "release", first)
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, 60)  # type: ignore[union-attr]
    number = 1 if shape == "one" else 2

    def all_nodes() -> set[str] | None:
        found = _nodes(cluster, _with_engine(runner, handle))
        return found if len(found) == number else None

    nodes = eventually(all_nodes, 60)
    (tmp_path / "go").touch()
    runner.wait(handle, timeout=60)
    monkeypatch.setenv("PATH", str(tmp_path))  # nobody can be asked any more
    with Runner("later") as later:
        kept = _with_engine(later, handle)
    assert kept["slurm_job"] == first and _nodes(cluster, kept) == nodes
    for command in (["status", handle], ["describe", handle], ["status", handle, "--json"]):
        assert main(command) == 0
        said = capfd.readouterr().out
        assert first in said and kept["nodes"] in said


def _nodes(cluster: Any, engine: dict[str, str]) -> set[str]:
    """Return the single nodes of a list as Slurm writes it."""
    if "nodes" not in engine:
        return set()
    return set(cluster.tool("scontrol", "show", "hostnames", engine["nodes"]).split())
