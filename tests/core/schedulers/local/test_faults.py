"""Local jobs meet real kills, reboots, recycled pids and stubborn processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest

from transload.errors import AppExists, SpecError, SubmitError
from transload.keeper import layout, processes
from transload.schedulers import Changes
from transload.schedulers.local import LocalScheduler
from transload.specs import AppState, Notice, Role

CLIENT = """
import sys, time
from transload.schedulers import Changes, Submission
from transload.schedulers.local import LocalScheduler
from transload.specs import AppDef, Role
scheduler = LocalScheduler("client")
app = AppDef("demo", [Role("main", "", entrypoint="sh", args=["-c", sys.argv[2]])])
cfg = scheduler.options.read({})
submission = Submission(app, app.digest(), "client", cfg.cfg(), id_given=True)
started = scheduler.submit(scheduler.convert(app, cfg), sys.argv[1], submission)
print("submitted", started, flush=True)
time.sleep(60)
"""


def client(app_id: str, script: str) -> subprocess.Popen[str]:
    """Start another program that submits an app and stays."""
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, app_id, script], stdout=subprocess.PIPE, text=True
    )


GRANDCHILDREN = (
    "setsid sh -c 'echo inner $$; sleep 300' & "
    "setsid setsid sh -c 'echo deep $$; sleep 300' & echo outer $$; sleep 300"
)


def pids_of(local, app_id: str) -> list[int]:
    """Return the pids that GRANDCHILDREN has printed, once all three are there."""
    return [int(local.line(app_id, word).split()[1]) for word in ("inner", "deep", "outer")]


def test_keeper_killed(local, eventually) -> None:
    """Whoever looks next ends what is left of the job, in other sessions too, and says FAILED.

    Another job is untouched.
    """
    other = local.run(local.sh("sleep 300"))
    victim = local.run(local.sh(GRANDCHILDREN))
    pids = pids_of(local, victim)
    os.kill(local.keeper(victim), signal.SIGKILL)
    status = local.wait(victim, timeout=5)
    assert status.state is AppState.FAILED
    assert "keeper died" in status.msg
    eventually(lambda: not any(map(local.alive, pids)), timeout=5)
    assert local.status(other).state is AppState.RUNNING


def test_keeper_killed_and_nobody_looks(local, eventually) -> None:
    """The replica ends with its keeper, before anybody looks."""
    victim = local.run(local.sh(GRANDCHILDREN))
    *_, outer = pids_of(local, victim)
    os.kill(local.keeper(victim), signal.SIGKILL)
    eventually(lambda: not local.alive(outer), timeout=5)
    state = local.folder(victim) / "states.jsonl"
    assert layout.read_json(str(state))["state"] == "RUNNING"


def test_reboot(local) -> None:
    """An app of an earlier boot is FAILED with that reason, and no pid of it is believed."""
    app_id = local.run(local.sh("sleep 300"))
    local.wait(app_id, lambda status: status.state is AppState.RUNNING)
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        make_stale(local, app_id, stranger.pid, boot_id="an earlier boot")
        status = local.wait(app_id)
        assert status.state is AppState.FAILED and "rebooted" in status.msg
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def make_stale(local, app_id: str, pid: int, **record: str) -> None:
    """Leave an ended job as a crash would, not ended, without keeper, with another's pid."""
    before = layout.read_json(str(local.folder(app_id) / "states.jsonl"))
    local.scheduler.cancel([app_id])
    local.wait(app_id)
    before["processes"] = [[pid, 12345]]
    (local.folder(app_id) / "cancel").unlink()
    (local.folder(app_id) / "states.jsonl").write_text(json.dumps(before))
    path = local.folder(app_id) / "record.json"
    fresh = local.folder(app_id) / "record.new"
    fresh.write_text(json.dumps(json.loads(path.read_text()) | record))
    fresh.rename(path)


def test_recycled_pid_is_never_signalled(local) -> None:
    """A recorded pid that belongs to a stranger now (another start time) is left alone, by
    finalising and by cancel.
    """
    app_id = local.run(local.sh("sleep 300"))
    local.wait(app_id, lambda status: status.state is AppState.RUNNING)
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        make_stale(local, app_id, stranger.pid)
        local.scheduler.cancel([app_id])
        assert "keeper died" in local.wait(app_id).msg
        local.scheduler.delete(app_id)
        assert stranger.poll() is None
        assert not processes.send(
            stranger.pid, processes.start_time(stranger.pid) + 1, signal.SIGKILL
        )
        assert stranger.poll() is None
        assert processes.send(stranger.pid, processes.start_time(stranger.pid), signal.SIGKILL)
        assert stranger.wait(5) == -signal.SIGKILL
    finally:
        stranger.kill()
        stranger.wait()


def test_really_recycled_pid(local) -> None:
    """Asking, cancelling and deleting spare a stranger with the pid of a dead replica."""
    knob = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(knob, os.W_OK):
        pytest.skip("not run: the kernel does not let us choose a pid here")
    app_id = local.run(local.sh("echo $$"))
    local.wait(app_id)
    pid = int(local.log(app_id)[0])
    stranger = None
    for _ in range(200):
        try:
            knob.write_text(str(pid - 1))
        except OSError:
            pytest.skip("not run: the kernel does not let us choose a pid here")
        process = subprocess.Popen(["sleep", "300"], start_new_session=True)
        if process.pid == pid:
            stranger = process
            break
        process.kill()
        process.wait()
    if stranger is None:
        pytest.skip("not run: the pid went to others each time")
    try:
        assert local.status(app_id).state is AppState.SUCCEEDED
        local.scheduler.cancel([app_id])
        local.scheduler.delete(app_id)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("kind", ["missing", "not executable", "bad interpreter", "folder"])
def test_second_role_cannot_start(local, tmp_path: Path, kind: str) -> None:
    """A program that cannot run is found before a start, and the error names role and file."""
    program = tmp_path / "program"
    if kind == "folder":
        program.mkdir()
    elif kind != "missing":
        program.write_text(
            "#!/no/such/interpreter\n" if kind == "bad interpreter" else "#!/bin/sh\n"
        )
        program.chmod(0o755 if kind == "bad interpreter" else 0o644)
    ran = tmp_path / "ran"
    with pytest.raises(SpecError) as caught:
        local.run(
            local.app(
                local.sh(f"touch {ran}; sleep 300", "first"),
                Role("second", "", entrypoint=str(program)),
            )
        )
    assert "'second'" in str(caught.value) and str(program) in str(caught.value)
    assert not ran.exists() and local.scheduler.list() == []


def test_exec_fails_late(local, tmp_path: Path, eventually) -> None:
    """A program that only the kernel finds unfit fails the job, by role and file.

    The first role is ended.
    """
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    app_id = local.run(
        local.app(
            local.sh("echo $$; sleep 300", "first"), Role("second", "", entrypoint=str(program))
        )
    )
    status = local.wait(app_id)
    assert status.state is AppState.FAILED
    assert "'second'" in status.msg and str(program) in status.msg
    assert [role.replicas[0].state for role in status.roles] == [
        AppState.CANCELLED,
        AppState.FAILED,
    ]


def test_stubborn_replica_and_grandchild(local, eventually) -> None:
    """Cancel returns at once. After the grace period what ignores SIGTERM is killed everywhere."""
    inner = "setsid sh -c 'trap \"\" TERM; echo inner $$; while :; do sleep 1; done'"
    script = f"trap '' TERM; {inner} & echo outer $$; while :; do sleep 1; done"
    app_id = local.run(local.sh(script))
    pids = [int(local.line(app_id, word).split()[1]) for word in ("inner", "outer")]
    started = time.monotonic()
    local.scheduler.cancel([app_id])
    assert time.monotonic() - started < 3  # well before the grace period is over
    assert local.status(app_id).cancel_requested
    assert not local.status(app_id).is_terminal()
    assert local.wait(app_id, timeout=30).state is AppState.CANCELLED
    assert not any(map(local.alive, pids))


def test_leftovers_of_a_finished_app_are_ended(local) -> None:
    """A replica that leaves a daemon behind has not left it for long."""
    app_id = local.run(local.sh("setsid sleep 300 & echo $!"))
    assert local.wait(app_id).state is AppState.SUCCEEDED
    assert not local.alive(int(local.log(app_id)[0]))


def test_same_id_at_once(local) -> None:
    """Two processes that submit the same id at once have one job."""
    clients = [client("twin", "echo started; sleep 300") for _ in range(4)]
    try:
        answers = sorted(one.stdout.readline() for one in clients if one.stdout is not None)
        assert answers == ["submitted False\n"] * 3 + ["submitted True\n"]
        local.line("twin", "started")
        assert local.log("twin") == ["started\n"]
    finally:
        for one in clients:
            one.kill()
            one.communicate()


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_hundreds_of_apps(local, count: int) -> None:
    """Many apps at once from one client, whose threads and descriptors do not grow with them."""
    local.wait(local.run(local.sh("exit 0")))
    fds = len(os.listdir("/proc/self/fd"))
    apps = {local.run(local.sh("sleep 0.2; exit 0")) for _ in range(count)}
    changes = Changes()
    watch = local.scheduler.watch(changes.add)
    watch.update(apps)
    changes.add(apps)
    ahead = 4 * 2  # the pipes of keepers that were started ahead
    assert len(os.listdir("/proc/self/fd")) <= fds + 2 + 64 + ahead
    assert threading.active_count() < 10
    left, deadline = set(apps), time.monotonic() + 30
    while left:
        assert time.monotonic() < deadline
        for app_id in changes.wait(1) & left:
            if local.status(app_id).is_terminal():
                assert local.status(app_id).state is AppState.SUCCEEDED
                left.discard(app_id)
    watch.close()


def test_keepers_killed_as_they_start(local) -> None:
    """However often keepers die during submits, each job runs at most once, with no remains."""
    marks = local.home / "marks"
    marks.touch()
    stop = threading.Event()

    def killer() -> None:
        while not stop.wait(0.05):
            for pid in local.keepers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=killer)
    thread.start()
    submitted = []
    try:
        for number in range(25):
            with contextlib.suppress(SubmitError):
                submitted.append(
                    local.run(
                        local.sh(f"echo $TRANSLOAD_APP_ID >> {marks}; sleep 0.1"), f"hit-{number}"
                    )
                )
    finally:
        stop.set()
        thread.join()
    for app_id in submitted:
        assert local.wait(app_id).is_terminal()
    ran = marks.read_text().split()
    assert len(ran) == len(set(ran)) and set(ran) <= set(submitted)
    assert sorted(os.listdir(local.home / "local" / "apps")) == sorted(submitted)


def test_many_clients_come_and_go(local) -> None:
    """The jobs of clients that come and go at once all run."""
    script = CLIENT.replace("time.sleep(60)", "scheduler.close()")
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", script, f"c-{n}", "exit 0"], stdout=subprocess.PIPE, text=True
        )
        for n in range(12)
    ]
    assert [one.communicate(timeout=60)[0] for one in clients] == ["submitted True\n"] * 12
    for n in range(12):
        assert local.wait(f"c-{n}").state is AppState.SUCCEEDED


def test_signal_handlers_untouched(local) -> None:
    """The host program's handlers, wakeup descriptor, working directory and umask stay as they
    are.
    """
    numbers = [n for n in signal.valid_signals() if n not in (signal.SIGKILL, signal.SIGSTOP)]
    before = [signal.getsignal(n) for n in numbers]
    wakeup = signal.set_wakeup_fd(-1)
    cwd, mask = os.getcwd(), os.umask(0o022)
    os.umask(mask)
    local.wait(local.run(local.sh("exit 0")))
    assert [signal.getsignal(n) for n in numbers] == before
    assert signal.set_wakeup_fd(-1) == wakeup == -1
    assert os.getcwd() == cwd and os.umask(mask) == mask


def test_nothing_left_after_the_last_app(local, eventually) -> None:
    """When a job has ended, no process of ours is left a moment later, and no thread."""
    threads = threading.active_count()
    for _ in range(3):
        assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    local.scheduler.close()
    eventually(lambda: not local.keepers())
    assert threading.active_count() == threads
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED


def test_zombies_are_dead(local) -> None:
    """A process that has ended but is not reaped by its parent is not taken for living."""
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert processes.stat_of(zombie.pid) is None
        assert zombie.pid not in processes.snapshot()
        script = "import os, time\nif os.fork() == 0: os._exit(0)\nprint('up', flush=True)\ntime.sleep(300)"
        app_id = local.run(Role("main", "", entrypoint=sys.executable, args=["-c", script]))
        local.line(app_id, "up")
        local.scheduler.cancel([app_id])
        assert local.wait(app_id, timeout=4).state is AppState.CANCELLED
    finally:
        zombie.wait()


def test_full_disk(transload_home: Path) -> None:
    """A state folder without room is a clear error, and nothing is started."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(transload_home)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("not run: no file system of limited size can be mounted here")
    try:
        scheduler = LocalScheduler("tests")
        scheduler.ensure_home()
        with open(transload_home / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
            while True:
                filler.write(b"x" * 4096)
        from transload.schedulers import Submission
        from transload.specs import AppDef

        ran = transload_home.with_name(transload_home.name + ".ran")
        app = AppDef("demo", [Role("main", "", entrypoint="touch", args=[str(ran)])])
        cfg = scheduler.options.read({})
        with pytest.raises(SubmitError, match="No space left"):
            scheduler.submit(
                scheduler.convert(app, cfg), "a", Submission(app, app.digest(), "t", cfg.cfg())
            )
        assert scheduler.list() == [] and not ran.exists()
        scheduler.close()
    finally:
        subprocess.run(["umount", "-l", str(transload_home)], check=True)


@pytest.mark.parametrize("replicas", [1, 32])
def test_cancel_on_a_full_disk(local, eventually, replicas: int) -> None:
    """The processes end at once all the same, and so does the app.

    The end of a small app finds room beside its earlier states. Of a large one exit codes follow
    once there is room.
    """
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(local.home)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("not run: no file system of limited size can be mounted here")
    try:
        app_id = local.run(local.sh("echo $$; exec sleep 300", num_replicas=replicas))
        pid = int(local.line(app_id, ""))
        local.wait(
            app_id,
            lambda status: all(each.state is AppState.RUNNING for each in status.roles[0].replicas),
        )
        filler = local.home / "filler"
        with open(filler, "wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)
        local.scheduler.cancel([app_id])
        eventually(lambda: not local.alive(pid), timeout=5)
        assert local.status(app_id).cancel_requested
        status = local.wait(app_id)
        assert (
            status.state is AppState.CANCELLED
            and status.roles[0].replicas[0].state is AppState.CANCELLED
        )
        assert ("no room" in status.msg) is (replicas > 1)
        assert [row.state for row in local.scheduler.list()] == [AppState.CANCELLED]
        filler.unlink()
        eventually(lambda: local.status(app_id).msg == "cancelled on request", timeout=30)
        status = local.status(app_id)
        assert status.state is AppState.CANCELLED and {
            each.exit_code for each in status.roles[0].replicas
        } == {-15}
        local.scheduler.close()
    finally:
        subprocess.run(["umount", "-l", str(local.home)], check=True)


def test_python_removed_under_a_running_app(local, tmp_path: Path, monkeypatch) -> None:
    """A job outlives the Python that keeps it. Its failure is named, and tried again."""
    library, link, python = sysconfig.get_path("stdlib"), tmp_path / "library", tmp_path / "python"
    link.symlink_to(library)
    python.write_text(
        f"""#!/bin/sh
        for code in "$@"; do :; done
        exec {sys.executable} -I -S -X utf8 -c "import sys
sys.path[:] = [each.replace({library!r}, '{link}') for each in sys.path]
$code"
        """
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    script = (
        f"while test -e {link}; do sleep 0.05; done; echo '[1]' > $TRANSLOAD_ERROR_FILE; kill -9 $$"
    )
    app_id = local.run(local.sh(script, max_retries=1, retry_delay=0.0))
    local.wait(app_id, lambda status: status.state is AppState.RUNNING)
    time.sleep(7)  # until its keeper has loaded what it may need
    link.unlink()
    status = local.wait(app_id)
    assert status.num_restarts == 1
    assert "(killed by SIGKILL" in status.msg and status.msg.endswith(": [1]")


def test_folder_removed_under_a_running_app(local, eventually) -> None:
    """A running job whose state somebody removes has its processes ended, not orphaned."""
    import shutil

    app_id = local.run(local.sh("echo $$; sleep 300"))
    pid = int(local.line(app_id, ""))
    keeper = local.keeper(app_id)

    def removed() -> bool:
        """Remove it, again if the keeper has just written into it."""
        shutil.rmtree(local.folder(app_id), ignore_errors=True)
        return not local.folder(app_id).exists()

    eventually(removed)
    eventually(lambda: not local.alive(pid) and not local.alive(keeper))
    assert local.scheduler.describe([app_id])[app_id] is None


def test_keeper_sigterm_is_no_cancel(local) -> None:
    """A SIGTERM of the keeper is nobody's cancel, but FAILED with that reason."""
    app_id = local.run(local.sh("sleep 300", max_retries=3))
    local.wait(app_id, lambda status: status.state is AppState.RUNNING)
    os.kill(local.keeper(app_id), signal.SIGTERM)
    status = local.wait(app_id)
    assert status.state is AppState.FAILED and not status.cancel_requested
    assert "SIGTERM" in status.msg and status.roles[0].replicas[0].state is AppState.CANCELLED


def test_cancel_before_the_keepers_sigterm(local) -> None:
    """A cancelled job that is caught by a shutdown stays CANCELLED."""
    app_id = local.run(
        local.sh("trap '' TERM; echo up; while :; do sleep 0.05; done", notice=Notice(0.5))
    )
    local.line(app_id, "up")
    local.scheduler.cancel([app_id])
    os.kill(local.keeper(app_id), signal.SIGTERM)
    status = local.wait(app_id)
    assert (
        status.state is AppState.CANCELLED
        and status.cancel_requested
        and status.msg == "cancelled on request"
    )


def test_fork_of_the_host_program(local) -> None:
    """A forked child of the host submits, and does not disturb its parent."""
    local.wait(local.run(local.sh("exit 0")))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            local.run(local.sh("exit 0"), "from-child")
            local.scheduler.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert local.wait("from-child").state is AppState.SUCCEEDED
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED


def test_out_of_memory_is_named(local, tmp_path: Path, eventually) -> None:
    """A kill by the kernel in a full control group is named, and a kill by somebody is not."""
    name = f"transload-test-{os.getpid()}"
    group = Path("/sys/fs/cgroup/memory", name)
    limit = group / "memory.limit_in_bytes"
    if not group.parent.is_dir():
        group = Path("/sys/fs/cgroup", name)
        limit = group / "memory.max"
    try:
        group.mkdir()
        limit.write_text(str(100 << 20), encoding="ascii")
    except OSError as exc:
        group.is_dir() and group.rmdir()
        pytest.skip(f"control groups are not ours to make here: {exc}")
    enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
    hog = [
        sys.executable,
        "-c",
        CLIENT,
        "hog",
        "dd if=/dev/zero of=/dev/null bs=300M count=1; exit $?",
    ]
    with subprocess.Popen(
        ["sh", "-c", enter, "sh", *hog], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "submitted True\n"
        assert "out of memory: the kernel killed it" in local.wait("hog").msg
        other.kill()
    killed = local.run(local.sh("kill -9 $$"))
    assert "out of memory:" not in local.wait(killed).msg

    def is_removed() -> bool:
        """Remove the group, which the last of its processes may hold while it ends."""
        for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                (group.parent / "cgroup.procs").write_text(pid, encoding="ascii")
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.is_dir()

    eventually(is_removed)


def test_cancel_as_soon_as_an_app_can_be_seen(local) -> None:
    """There is no moment between a job's appearance and its keeper's first look in which a cancel
    is lost.
    """
    for number in range(10):
        app_id = f"early-{number}"
        stop = threading.Event()

        def cancel(app_id: str = app_id, stop: threading.Event = stop) -> None:
            while not stop.is_set() and not local.scheduler.cancel([app_id]):
                pass

        thread = threading.Thread(target=cancel)
        thread.start()
        try:
            local.run(local.sh("sleep 300"), app_id)
        finally:
            stop.set()
            thread.join()
        local.scheduler.cancel([app_id])
        assert local.wait(app_id, timeout=20).state is AppState.CANCELLED


def test_interrupted_submit_does_not_answer_the_next(local) -> None:
    """After a signal's exception during a submit the next one gets its own answer."""

    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    local.wait(local.run(local.sh("exit 0"), "taken", given=True))
    local.scheduler.delete("taken")
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(Alarm):
            local.run(local.sh("exit 0"), "interrupted", given=True)
            time.sleep(1)  # a machine that is faster than the alarm
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(AppExists):
        local.run(local.sh("exit 0"), "taken", given=True)


def test_retry_on_a_disk_that_the_log_has_filled(local, tmp_path: Path) -> None:
    """A job whose log filled the disk in the middle of a line is started again."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k,mode=700", "tmpfs", str(local.home)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("not run: no file system of limited size can be mounted here")
    try:
        fill = "[ $TRANSLOAD_RETRY = 1 ] || { head -c 1000000 /dev/zero | tr '\\0' x; exit 1; }"
        app_id = local.run(local.sh(fill, max_retries=1, retry_delay=0.0))
        status = local.wait(app_id)
        assert status.state is AppState.SUCCEEDED
        local.scheduler.close()
    finally:
        subprocess.run(["umount", "-l", str(local.home)], check=True)
