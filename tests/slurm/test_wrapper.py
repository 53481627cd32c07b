"""The wrapper in the job against a full disk, a controller that is away, a component that is
cancelled, two claims.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SubmitError
from transload.runner import Runner
from transload.specs import AppDef, AppState, AppStatus, Role, parse_app_handle
from transload_slurm.job import starts

Eventually = Callable[..., Any]
ShellApp = Callable[..., AppDef]


def ended(runner: Runner, handle: str) -> AppStatus:
    """Wait for an app's end."""
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


@pytest.fixture
def small_disk(slurm_dir: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder of the apps is a file system of one megabyte."""
    home = slurm_dir.parent
    home.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(home)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield slurm_dir
    subprocess.run(["umount", "-l", str(home)], check=True)


def fill(disk: Path) -> Path:
    """Fill a file system to its last byte."""
    path = disk / ".filler"
    with pytest.raises(OSError, match="No space"), open(path, "ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return path


def test_full_disk_is_waited_for(
    small_disk: Path, runner: Runner, shell_app: ShellApp, eventually: Eventually, tmp_path: Path
) -> None:
    """Replicas outlive a full disk, and their end is written once there is room.

    A submit meanwhile is one clear error line.
    """
    go, done = tmp_path / "go", tmp_path / "done"
    app = shell_app(
        f"echo up; until test -e {go}; do sleep 0.1; done; echo x >> {done}", num_replicas=2
    )
    handle = runner.run(app, "slurm")
    eventually(lambda: list(runner.log_lines(handle, "main", 1)), 30)
    eventually(lambda: (s := runner.status(handle)) and s.state is AppState.RUNNING, 30)
    filler = fill(small_disk)
    with pytest.raises(SubmitError, match="No space left") as caught:
        runner.run(app, "slurm", app_id="another")
    assert "\n" not in str(caught.value)
    go.touch()
    eventually(lambda: done.exists() and done.read_text() == "x\nx\n", 30)
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.slurm_job(parse_app_handle(handle).app_id)
    # the wrapper has tried to write, and goes on trying
    eventually(lambda: "No space" in _trace(job), 30)
    filler.unlink()
    assert ended(runner, handle).state is AppState.SUCCEEDED


def _trace(job: str) -> str:
    """Tell ``No space`` if the wrapper of a job lives and waits."""
    mine = [words for words, environ in _living() if f"SLURM_JOB_ID={job}".encode() in environ]
    return "No space: it lives" if any(b"keeper" in words for words in mine) else ""


def _living() -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield command line and environment of every process."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (
                (entry / "cmdline").read_bytes().split(b"\0"),
                (entry / "environ").read_bytes().split(b"\0"),
            )


def _freeze(cluster: Any) -> Callable[[], None]:
    cluster.processes["slurmctld"].send_signal(signal.SIGSTOP)
    return lambda: cluster.processes["slurmctld"].send_signal(signal.SIGCONT)


def _end_controller(cluster: Any) -> Callable[[], None]:
    cluster.stop_controller()
    return cluster.start_controller


def _end_munge(cluster: Any) -> Callable[[], None]:
    cluster.kill("munged")
    return cluster.start_munge


@pytest.mark.parametrize(
    ("leave", "tried"),
    [
        pytest.param(_freeze, True, id="controller hangs"),
        # a step that is put off since no node has come forward yet: srun is asked anew after 20 s
        pytest.param(_end_controller, False, id="controller restarted", marks=pytest.mark.slow),
        pytest.param(_end_controller, True, id="controller away for long", marks=pytest.mark.slow),
        pytest.param(_end_munge, True, id="munge away", marks=pytest.mark.slow),  # srun waits 50 s
    ],
)
@pytest.mark.timeout(400)
def test_controller_is_away_while_the_replicas_start(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    tmp_path: Path,
    leave: Callable[[Any], Callable[[], None]],
    tried: bool,
) -> None:
    """A job whose step cannot be made waits, and then starts, without a retry.

    ``tried``: the controller comes back only when ``srun`` has given up once.
    """
    late = tmp_path / "python"  # the wrapper's: it comes up, and waits until the controller is gone
    wait = f"touch {tmp_path}/here; until test -e {tmp_path}/go; do sleep 0.1; done"
    late.write_text(
        f'#!/bin/sh\ncase "$*" in *" keeper "*) {wait};; esac\nexec {sys.executable} "$@"\n'
    )
    late.chmod(0o755)
    handle = runner.run(shell_app("echo up", num_replicas=2), "slurm", {"python": str(late)})
    eventually((tmp_path / "here").exists, 30)
    folder = Path(os.environ["TRANSLOAD_SLURM_DIR"]) / "apps" / parse_app_handle(handle).app_id
    come_back = leave(cluster)
    try:
        (tmp_path / "go").touch()
        if tried:
            eventually(lambda: "it is tried again" in (folder / "batch.log").read_text(), 200)
        else:
            eventually(
                lambda: any(w[0] == b"srun" and str(folder).encode() in w for w, _ in _living()), 30
            )
    finally:
        come_back()
    status = runner.wait(handle, timeout=250)
    assert status is not None
    assert status.state is AppState.SUCCEEDED, status
    assert status.num_restarts == 0
    assert [list(runner.log_lines(handle, "main", k)) for k in range(2)] == [["up\n"], ["up\n"]]


@pytest.mark.parametrize("count", [1, 2], ids=["one role", "two roles"])
def test_srun_is_killed(
    runner: Runner, shell_app: ShellApp, eventually: Eventually, tmp_path: Path, count: int
) -> None:
    """The task of an ``srun`` that was killed is ended, and then the replica is started again."""
    runs = tmp_path / "runs"
    again = f"if kill -0 $(head -n 1 {runs}); then exit 9; fi"
    app = shell_app(f"echo $$ >> {runs}; if test $TRANSLOAD_RETRY = 0; then sleep 300; fi; {again}")
    app.roles[0].max_retries = 1
    if count == 2:
        app.roles.insert(0, Role("other", "/tmp", entrypoint="sleep", args=["2"]))
    handle = runner.run(app, "slurm")
    eventually(runs.exists, 30)
    mine = parse_app_handle(handle).app_id.encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            is_ours = any(mine in word for word in words)
            if words[0] == b"srun" and is_ours and b"--job-name=main" in words:
                os.kill(int(path.parent.name), signal.SIGKILL)
    status = ended(runner, handle)
    assert status.state is AppState.SUCCEEDED, status
    assert len(runs.read_text().split()) == 2


def test_component_is_cancelled(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually
) -> None:
    """``scancel JOB+1`` ends one of two roles. The other does not run on to its natural end."""
    roles = [
        Role(name, "/tmp", entrypoint="sh", args=["-c", "echo up; sleep 300"])
        for name in ("first", "second")
    ]
    handle = runner.run(AppDef("pair", roles), "slurm")
    eventually(lambda: all(list(runner.log_lines(handle, role.name, 0)) for role in roles), 60)
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.slurm_job(parse_app_handle(handle).app_id)
    subprocess.run(["scancel", f"{job}+1"], env=cluster.env, check=True)
    status = runner.wait(handle, timeout=60)
    assert status is not None
    assert status.state is AppState.CANCELLED, status
    assert "'second'" in status.msg


def test_stale_and_right_job_claim_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job of an earlier submit and the right one, which come up at the same moment, the right
    one gets the app.
    """
    names = threading.local()
    monkeypatch.setattr(starts, "job_id", lambda: names.id)

    def race(number: int) -> dict[str, bool]:
        """Start both jobs in a folder of their own, and return which got the transload job."""
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "token").write_text("old" if number % 2 else "new")
        barrier = threading.Barrier(3 if number % 2 else 2)
        got = {}

        def come(name: str, token: str) -> None:
            names.id = name
            barrier.wait()
            got[name] = starts.claim(str(folder), token)

        def submit_again() -> None:
            barrier.wait()
            (folder / "token.tmp").write_text("new")
            os.replace(folder / "token.tmp", folder / "token")

        works = [threading.Thread(target=come, args=("1", "old"))]
        if number % 2:
            works.append(threading.Thread(target=submit_again))
        works.append(threading.Thread(target=come, args=("2", "new")))
        for work in works:
            work.start()
        for work in works:
            work.join()
        return got

    with ThreadPoolExecutor(
        10
    ) as at_once:  # the one that comes too early waits for most of the time
        found = list(at_once.map(race, range(40)))
    assert found[::2] == [{"1": False, "2": True}] * 20
    assert {(tmp_path / str(number) / "claim").read_text() for number in range(0, 40, 2)} == {"2"}
    for got in found[1::2]:  # the submitter looks for a claim after it has written the token
        assert not (got["1"] and got["2"])


def test_suspended_job_says_so(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually
) -> None:
    """A suspended job does not wait in the queue. Once resumed, it runs on to its end."""
    handle = runner.run(shell_app("echo $$; sleep 3", num_replicas=2), "slurm")

    def processes() -> list[str]:
        return [line.strip() for k in (0, 1) for line in runner.log_lines(handle, "main", k)]

    eventually(lambda: len(processes()) == 2, 30)
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.slurm_job(parse_app_handle(handle).app_id)
    subprocess.run(["scontrol", "suspend", job], env=cluster.env, check=True)
    status = eventually(
        lambda: (s := runner.status(handle)) and s.state is AppState.PENDING and s, 30
    )
    assert "suspended by Slurm" in status.msg
    # a resume that overtakes the stop on its way to the nodes would leave them stopped for ever
    for process in processes():
        stat = Path("/proc", process, "stat")
        eventually(lambda stat=stat: stat.read_text().rpartition(")")[2].split()[0] == "T", 30)
    subprocess.run(["scontrol", "resume", job], env=cluster.env, check=True)
    assert ended(runner, handle).state is AppState.SUCCEEDED


def test_renamed_job_is_still_the_app(
    runner: Runner, cluster: Any, shell_app: ShellApp, eventually: Eventually
) -> None:
    """A job whose name somebody changes is known by its id and its comment."""
    handle = runner.run(shell_app("echo up; sleep 300"), "slurm")
    eventually(lambda: list(runner.log_lines(handle, "main")), 30)
    scheduler: Any = runner.scheduler("slurm")
    job = scheduler.slurm_job(parse_app_handle(handle).app_id)
    subprocess.run(
        ["scontrol", "update", f"jobid={job}", "JobName=mine"], env=cluster.env, check=True
    )
    eventually(lambda: cluster.tool("squeue", "-h", "-o", "%j", "-j", job).strip() == "mine", 30)
    with Runner("tests") as other:
        status = other.status(handle)
        assert status is not None
        assert status.state is AppState.RUNNING


def test_stranger_of_the_same_name_is_not_adopted(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    eventually: Eventually,
    slurm_dir: Path,
    tmp_path: Path,
) -> None:
    """A submit that died before sbatch neither finds nor cancels another's job of that name."""
    (tmp_path / "app.json").write_text(shell_app("echo mine").to_json())
    code = (
        "import os, sys; from transload.runner import Runner; from transload.specs import AppDef; "
        "from transload_slurm import submission; submission._sbatch = lambda *a: os._exit(9); "
        "Runner('tests').run(AppDef.from_json(open(sys.argv[1]).read()), 'slurm', app_id='twin')"
    )
    stranger = cluster.tool(
        "sbatch", "--parsable", "-J", "twin", "-o", "/dev/null", "--wrap", "sleep 300"
    ).strip()
    died = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "app.json")], check=False, env=dict(os.environ)
    )
    assert died.returncode == 9
    assert runner.status("slurm://tests/twin") is None
    handle = runner.run(shell_app("echo mine"), "slurm", app_id="twin")
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main")) == ["mine\n"]
    assert cluster.tool("squeue", "-h", "-o", "%T", "-j", stranger).strip() in (
        "RUNNING",
        "PENDING",
    )
    cluster.tool("scancel", stranger)


def test_sbatch_that_fails_after_it_has_submitted(
    runner: Runner,
    cluster: Any,
    shell_app: ShellApp,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused submit ends its job, found by its token, so that nothing stays in the queue."""
    real = shutil.which("sbatch")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(f'#!/bin/sh\n{real} "$@"\necho broken >&2\nexit 1\n')
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(SubmitError, match="broken"):
        runner.run(shell_app("sleep 300"), "slurm", {"begin": "now+1hour"}, app_id="lying")
    assert cluster.tool("squeue", "-h", "-o", "%i", "--name=lying").strip() == ""
    assert runner.status("slurm://tests/lying") is None


def test_what_a_filter_says_before_the_id(
    runner: Runner, shell_app: ShellApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a site's own filter prints before the job's id, numbers too, hides neither the id nor a
    refusal.
    """
    real = shutil.which("sbatch")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(
        f'#!/bin/sh\necho "Welcome: 3 nodes are free"\necho\necho 12 GPUs\nexec {real} "$@"\n'
    )
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    handle = runner.run(shell_app("echo mine"), "slurm")
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main")) == ["mine\n"]
    with pytest.raises(SubmitError, match="invalid partition") as caught:
        runner.run(shell_app("true"), "slurm", {"partition": "nope"})
    assert "Welcome" not in str(caught.value)


def test_arguments_that_are_no_text(runner: Runner, shell_app: ShellApp) -> None:
    """Bytes that are no text, which Python has as lone surrogates, reach the program as they
    are.
    """
    app = shell_app('printf %s "$0" | od -An -tx1')
    app.roles[0].args.append("a\udcff\udc80z")
    handle = runner.run(app, "slurm")
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert "".join(runner.log_lines(handle, "main")).split() == ["61", "ff", "80", "7a"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_srun_args_reach_every_replica(
    runner: Runner, shell_app: ShellApp, tmp_path: Path, replicas: int
) -> None:
    """A single replica is a step with the user's options of ``srun``, too."""
    prolog = tmp_path / "prolog"
    prolog.write_text(f"#!/bin/sh\necho x >> {tmp_path}/ran\n")
    prolog.chmod(0o755)
    cfg = {"srun_args": [f"--task-prolog={prolog}"]}
    handle = runner.run(shell_app("true", num_replicas=replicas), "slurm", cfg)
    assert ended(runner, handle).state is AppState.SUCCEEDED
    assert (tmp_path / "ran").read_text().split() == ["x"] * replicas
