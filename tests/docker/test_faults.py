"""A running job meets trouble with its supervisor, the engine and other people."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from transload.errors import AppNotFound, SchedulerUnavailable, SubmitError
from transload.runner import Runner
from transload.schedulers import Changes
from transload.specs import AppState, BindMount, Resource, RetryPolicy, parse_app_handle


def ends(runner: Runner, handle: str) -> Any:
    """Wait for the end of a job, and return its status."""
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


def supervisors(home: Path) -> list[int]:
    """Return the pids of the supervisors of a state folder."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes()
            environ = Path(f"/proc/{entry}/environ").read_bytes()
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if (
            b"transload_docker.supervisor" in command
            and str(home).encode() in environ
            and state != "Z"
        ):
            found.append(int(entry))
    return found


def container(engine: Any, name: str) -> Any:
    """Return the row of a container by name."""
    return next(row for row in engine.client.containers(all=True) if row["Names"] == [f"/{name}"])


def test_supervisor_is_replaced(
    runner: Runner, shell: Any, transload_home: Path, eventually: Any
) -> None:
    """A job whose supervisor is killed goes on, and the next look starts another supervisor."""
    app = shell(
        {"main": 'test "$TRANSLOAD_RETRY" = 1 || { sleep 3; exit 1; }', "other": "sleep 60"},
        max_retries=1,
        retry_policy=RetryPolicy.APPLICATION,
    )
    app.roles[1].min_replicas = 0
    handle = runner.run(app, "docker")
    (supervisor,) = eventually(lambda: supervisors(transload_home))
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: supervisor not in supervisors(transload_home))
    status = runner.status(handle)
    assert (
        status is not None and not status.is_terminal()
    )  # on a busy machine it may be between its two attempts
    eventually(
        lambda: (s := runner.status(handle)) and s.roles[0].replicas[0].restarts == 1, timeout=30
    )
    assert supervisors(transload_home)
    runner.cancel(handle)
    assert ends(runner, handle).state is AppState.CANCELLED


def test_supervisor_ends_when_idle(
    runner: Runner, shell: Any, transload_home: Path, eventually: Any
) -> None:
    """A supervisor with nothing to keep ends after a few seconds, and leaves no zombie."""
    ends(runner, runner.run(shell("true"), "docker"))
    eventually(lambda: not supervisors(transload_home), timeout=20)


def test_one_supervisor_for_many_apps(
    runner: Runner, shell: Any, transload_home: Path, eventually: Any
) -> None:
    """There is one supervisor process for many jobs."""
    handles = [runner.run(shell("sleep 2"), "docker") for _ in range(4)]
    eventually(lambda: len(supervisors(transload_home)) == 1)
    for handle in handles:
        assert ends(runner, handle).state is AppState.SUCCEEDED


_WAITS = """
import sys
from transload.runner import Runner
from transload_docker.scheduler import create_docker
with Runner("tests", {"docker": create_docker}) as runner:
    print(runner.wait(sys.argv[1], timeout=60).state)
"""


def test_a_renamed_machine(
    runner: Runner, shell: Any, transload_home: Path, tmp_path: Path, eventually: Any
) -> None:
    """Jobs keep their retries when their machine gets another host name."""
    command = f'test "$TRANSLOAD_RETRY" = 1 || {{ until test -e {tmp_path}/go; do sleep 0.1; done; exit 1; }}'
    app = shell(command, max_retries=1, mounts=[BindMount(str(tmp_path), str(tmp_path))])
    handle = runner.run(app, "docker")
    (supervisor,) = eventually(lambda: supervisors(transload_home))
    os.kill(supervisor, signal.SIGKILL)  # as a restart of the machine does
    eventually(lambda: supervisor not in supervisors(transload_home))
    (tmp_path / "go").touch()
    renamed = 'hostname renamed.example && exec "$0" -c "$1" "$2"'
    done = subprocess.run(
        ["unshare", "--uts", "sh", "-c", renamed, sys.executable, _WAITS, handle],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.strip() == "SUCCEEDED", done.stderr


_NEVER_ANSWERS = """
import sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Registry(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/v2/":
            print("asked", flush=True)
            threading.Event().wait()
        self.send_response(200)
        self.end_headers()
    do_HEAD = do_GET
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
"""


def test_a_pull_that_hangs_is_alone(
    runner: Runner, shell: Any, engine: Any, transload_home: Path
) -> None:
    """While a submit waits for a registry, every other job can be cancelled."""
    registry = subprocess.Popen(
        engine.enter(sys.executable, "-c", _NEVER_ANSWERS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert registry.stdin is not None and registry.stdout is not None
    app = shell("true")
    errors = []

    def submit() -> None:
        try:
            runner.run(app, "docker", {"pull": "missing"})
        except SubmitError as exc:
            errors.append(exc)

    with registry:
        app.roles[0].image = f"127.0.0.1:{registry.stdout.readline().strip()}/tools:1"
        thread = threading.Thread(target=submit)
        thread.start()
        try:
            assert registry.stdout.readline().strip() == "asked"
            for number in range(300):
                with contextlib.suppress(AppNotFound):
                    runner.cancel(f"docker://tests/another-{number}")
            assert not errors  # none of them has waited for it
        finally:
            registry.stdin.close()
            thread.join(60)
    assert errors
    assert [*(transload_home / "docker").glob("lock-*")] == []


def test_container_removed_behind_our_back(runner: Runner, shell: Any, engine: Any) -> None:
    """A replica that somebody removed is lost.

    The job is FAILED, and its other replicas are ended.
    """
    handle = runner.run(shell("sleep 60", replicas=2), "docker")
    name = f"{parse_app_handle(handle).app_id}.main.1.0"
    engine.client.remove_container(container(engine, name)["Id"], force=True)
    status = ends(runner, handle)
    assert status.state is AppState.FAILED
    assert "replica 1 failed (lost" in status.msg
    assert [r.state for r in status.roles[0].replicas] == [AppState.CANCELLED, AppState.FAILED]


def test_ended_app_is_remembered_without_its_containers(
    runner: Runner, shell: Any, engine: Any, eventually: Any
) -> None:
    """A final status that was noted stays when the containers are pruned."""
    handle = runner.run(shell("exit 3"), "docker")
    ends(runner, handle)
    name = f"transload.{parse_app_handle(handle).app_id}.ended"
    eventually(lambda: name in [v["Name"] for v in engine.client.volumes()["Volumes"]])
    engine.client.prune_containers()
    status = runner.status(handle)
    assert status is not None and status.state is AppState.FAILED
    assert status.roles[0].replicas[0].exit_code == 3
    assert list(runner.log_lines(handle, "main", should_tail=True)) == []


def test_stopped_from_outside(runner: Runner, shell: Any, engine: Any) -> None:
    """Somebody's ``docker kill`` is a failure by that signal."""
    handle = runner.run(shell("sleep 60"), "docker")
    engine.client.kill(container(engine, f"{parse_app_handle(handle).app_id}.main.0.0")["Id"])
    status = ends(runner, handle)
    assert (status.state, status.roles[0].replicas[0].exit_code) == (AppState.FAILED, -9)


def test_gpus_of_a_submit_that_was_killed(
    runner: Runner, shell: Any, engine: Any, busybox: str, transload_home: Path, eventually: Any
) -> None:
    """What a submit killed before its record holds is cleared, though no other job is there."""
    from transload_docker import names
    from transload_docker.home import Home

    home = Home(engine.url)
    home.ensure()
    labels = {
        names.LABEL_APP: "dead",
        names.LABEL_OWNER: home.owner,
        names.LABEL_GPUS: "0",
    }
    config = engine.client.create_container_config(busybox, "true", labels=labels)
    engine.client.create_container_from_config(config, "dead.main.0.0")
    app = shell("true", resource=Resource(cpu=1, gpu=1, memMB=64))

    def refused() -> str:
        with pytest.raises(SubmitError) as caught:
            runner.run(app, "docker", {"gpu_ids": ["0"]})
        return str(caught.value)

    assert "0 of 1 are free" in refused()
    # this engine has no GPUs to give: that is told once one is free
    eventually(lambda: "are free" not in refused(), 30)
    assert not engine.client.containers(all=True)


@pytest.mark.parametrize("ahead", [0, 600])
def test_a_submit_from_another_machine(
    runner: Runner,
    shell: Any,
    engine: Any,
    busybox: str,
    monkeypatch: pytest.MonkeyPatch,
    ahead: int,
) -> None:
    """What another machine is submitting is left alone, whatever the time is here."""
    from transload_docker import names

    labels = {names.LABEL_APP: "busy", names.LABEL_OWNER: "another"}
    config = engine.client.create_container_config(busybox, "true", labels=labels)
    made = engine.client.create_container_from_config(config, "busy.main.0.0")["Id"]
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + ahead)
    with pytest.raises(SubmitError) as caught:
        runner.run(shell("true"), "docker", app_id="busy")
    assert caught.value.transient
    assert container(engine, "busy.main.0.0")["Id"] == made
    engine.client.remove_container(made)


def test_cancel_on_an_engine_without_room(runner: Runner, shell: Any, engine: Any) -> None:
    """On a full disk a cancel cannot be noted and fails, and works once there is room."""
    handle = runner.run(shell("sleep 60"), "docker")
    disk = str(engine.folder / "D")
    used = int(engine.run("df", "--output=iused", disk).split()[-1])
    engine.run("mount", "-o", f"remount,nr_inodes={used}", disk)
    try:
        with pytest.raises(SchedulerUnavailable, match="no space left"):
            runner.cancel(handle)
    finally:
        engine.run("mount", "-o", "remount,nr_inodes=0", disk)
    runner.cancel(handle)
    assert ends(runner, handle).state is AppState.CANCELLED


def test_engine_restarted_under_a_running_app(runner: Runner, shell: Any, engine: Any) -> None:
    """A job is UNKNOWN while the engine is away, then FAILED, as its containers ended, too."""
    handle = runner.run(shell("sleep 60"), "docker")
    try:
        engine.stop(signal.SIGKILL)
        status = runner.status(handle)
        assert status is not None and status.state is AppState.UNKNOWN
        assert "cannot be reached" in status.msg
    finally:
        engine.start()
    status = ends(runner, handle)
    assert status.state is AppState.FAILED
    assert status.roles[0].replicas[0].exit_code in (-9, -15, 255)
    assert "the engine went away" in status.msg


@pytest.mark.slow
def test_a_supervisor_does_not_spin_while_the_engine_is_away(
    runner: Runner, shell: Any, engine: Any, transload_home: Path, eventually: Any
) -> None:
    """A supervisor asks an absent engine again each second, even after a job's time limit."""

    def used() -> float:
        """Return the processor seconds of the supervisor."""
        fields = Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    first = parse_app_handle(runner.run(shell("true"), "docker")).app_id
    eventually(lambda: engine.client.volumes({"name": f"transload.{first}.ended"})["Volumes"])
    (supervisor,) = supervisors(transload_home)
    handle = runner.run(shell("sleep 60", timeout=4.0), "docker")
    time.sleep(1.0)  # it has been told of this app by then
    try:
        engine.stop(signal.SIGKILL)
        time.sleep(4.0)
        before = used()
        time.sleep(3.0)
        assert used() - before < 0.5
    finally:
        engine.start()
    assert ends(runner, handle).state is AppState.FAILED
    assert supervisors(transload_home) == [supervisor]


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL]
)
def test_network_of_an_app_that_ended_with_the_engine(
    runner: Runner, shell: Any, engine: Any, eventually: Any, number: int
) -> None:
    """The network goes even if the containers were not ended by the engine's rules."""
    handle = runner.run(shell("sleep 60", replicas=2), "docker")
    try:
        engine.stop(number)
    finally:
        engine.start()
    assert ends(runner, handle).state is AppState.FAILED
    eventually(lambda: not engine.client.networks(names=["transload."]), timeout=30)


def test_network_of_an_app_whose_supervisor_was_killed_at_its_end(
    runner: Runner, shell: Any, engine: Any, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network is removed before the job's end is noted, since nobody looks after it then."""
    from transload_docker import supervisor as module
    from transload_docker.engine import Engine
    from transload_docker.home import Home
    from transload_docker.plan import ENDED

    class Killed(BaseException):
        """What ends this supervisor."""

    def killed(self: Engine, app_id: str, kind: str, *arguments: Any) -> bool:
        found = note(self, app_id, kind, *arguments)
        if kind == ENDED:
            raise Killed
        return found

    home = Home(engine.url)
    home.ensure()
    lock = home.supervisor_lock()
    assert lock is not None
    note = Engine.note
    try:
        runner.run(shell("true", replicas=2), "docker")
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Engine, "note", killed)
            module.Supervisor(Engine(engine.url), home).run()
    finally:
        os.close(lock)
    assert not engine.client.networks(names=["transload."])


def test_a_retry_runs_the_image_that_the_first_try_ran(
    runner: Runner, shell: Any, busybox: str, engine: Any
) -> None:
    """A retry runs the first try's image, though the tag leads to a newer one."""
    made = engine.client.create_container(busybox, "true")["Id"]
    newer = engine.client.commit(made, changes=["ENV WHICH=newer"])["Id"]
    engine.client.remove_container(made)
    engine.client.tag(busybox, "tl-test-moves", "1")
    try:
        command = 'echo "try ${WHICH:-older}"; sleep 2; test "$TRANSLOAD_RETRY" = 1'
        handle = runner.run(shell(command, image="tl-test-moves:1", max_retries=1), "docker")
        tail = runner.log_lines(handle, "main", should_tail=True)
        assert next(tail) == "try older\n"
        engine.client.tag(newer, "tl-test-moves", "1")
        assert ends(runner, handle).state is AppState.SUCCEEDED
        assert list(tail) == ["try older\n"]
        runner.delete(handle)
    finally:
        engine.client.remove_image("tl-test-moves:1", force=True)


def test_engine_restarted_under_an_app_with_retries(
    runner: Runner, shell: Any, engine: Any, eventually: Any
) -> None:
    """With retries a job is started again when the engine is back, and its readers see no break."""
    app = shell(
        'echo "try $TRANSLOAD_RETRY"; test "$TRANSLOAD_RETRY" = 1 || sleep 60',
        max_retries=1,
        retry_policy=RetryPolicy.REPLICA,
    )
    handle = runner.run(app, "docker")
    tail = runner.log_lines(handle, "main", should_tail=True)
    assert next(tail) == "try 0\n"
    try:
        engine.stop(signal.SIGTERM)
    finally:
        engine.start()
    assert ends(runner, handle).state is AppState.SUCCEEDED
    assert list(tail) == ["try 1\n"]


def test_watch_survives_a_restart_of_the_engine(
    runner: Runner, shell: Any, engine: Any, eventually: Any
) -> None:
    """A watch tells of the loss and of what happens once the engine is back."""
    changes = Changes()
    watch: Any = runner.scheduler("docker").watch(changes.add)
    try:
        handle = runner.run(shell("sleep 60"), "docker")
        app_id = parse_app_handle(handle).app_id
        watch.update([app_id])
        try:
            engine.stop(signal.SIGTERM)
        finally:
            engine.start()
        seen = time.monotonic() + 30
        status = runner.status(handle)
        while status is None or not status.is_terminal():
            assert time.monotonic() < seen
            changes.wait(5)
            status = runner.status(handle)
    finally:
        watch.close()


def test_watch_has_few_threads(runner: Runner, shell: Any, eventually: Any) -> None:
    """A watch has as many threads for any number of jobs, and closing it ends them."""
    import threading

    before = threading.active_count()
    changes = Changes()
    watch: Any = runner.scheduler("docker").watch(changes.add)
    handles = [runner.run(shell("sleep 0.2"), "docker") for _ in range(3)]
    ids = {parse_app_handle(handle).app_id for handle in handles}
    watch.update(ids)
    assert threading.active_count() == before + 2
    for handle in handles:
        ends(runner, handle)
    watch.close()
    watch.close()
    eventually(lambda: threading.active_count() == before)  # also the thread that followed the apps


def test_a_watch_that_is_closed_at_once_leaves_nothing_open(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed before its thread came to read, it closes the connection all the same."""
    import transload_docker.watch as module

    class NeverReads:
        """A feeder whose thread is not given any time."""

        def __init__(self, *arguments: Any) -> None:
            pass

        def stop(self) -> None:
            """Stop what has not begun."""

    scheduler: Any = runner.scheduler("docker")
    scheduler.list()
    monkeypatch.setattr(module, "Feeder", NeverReads)
    watch = scheduler.watch(lambda app_ids: None)
    stream = watch._first  # held, so that nothing but closing closes it
    assert not stream._response.raw.closed
    watch.close()
    assert stream._response.raw.closed


def test_waiting_is_woken(runner: Runner, shell: Any) -> None:
    """Waiting ends by the engine's event alone, without another reason to look."""
    app_id = parse_app_handle(runner.run(shell("sleep 1"), "docker")).app_id
    changes = Changes()
    watch: Any = runner.scheduler("docker").watch(changes.add)
    try:
        watch.update([app_id])
        scheduler, looks = runner.scheduler("docker"), 0
        while not (found := scheduler.describe([app_id])[app_id]) or not found.status.is_terminal():
            assert changes.wait(60) == {app_id}  # told, not timed out
            looks += 1
        assert looks < 20  # and not told of nothing again and again
    finally:
        watch.close()


def test_submit_that_gave_up_is_withdrawn(
    runner: Runner,
    engine: Any,
    shell: Any,
    tmp_path: Path,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job whose record a hanging engine makes after the submit was refused does not run."""
    from transload_docker import submit

    monkeypatch.setattr("transload_docker.engine._TIMEOUT_S", 2)
    record = submit._Submit._record
    frozen = threading.Thread(target=engine.freeze, args=(10.0,))

    def hang(self: Any) -> bool:
        frozen.start()
        state = Path(f"/proc/{engine._daemon.pid}/stat")  # it stops with the daemon
        eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
        return record(self)

    monkeypatch.setattr(submit._Submit, "_record", hang)
    app = shell(f"echo once >> {tmp_path}/ran; sleep 60")
    app.roles[0].mounts = [BindMount(str(tmp_path), str(tmp_path))]
    try:
        with pytest.raises(SchedulerUnavailable):
            runner.run(app, "docker", app_id="late")
    finally:
        monkeypatch.setattr(submit._Submit, "_record", record)
        assert frozen.is_alive()  # still when the submit gave up
        frozen.join()
        monkeypatch.setattr("transload_docker.engine._TIMEOUT_S", 60)

    def cleared() -> bool:
        """Look, which starts a supervisor if there is something to keep, until nothing is left."""
        row = runner.status("docker://tests/late")
        return (
            row is None
            and not engine.client.containers(all=True)
            and not engine.client.volumes()["Volumes"]
        )

    eventually(cleared, timeout=60)
    assert not (tmp_path / "ran").exists()
    handle = runner.run(app, "docker", app_id="late")  # its id is free
    eventually((tmp_path / "ran").exists, timeout=30)
    runner.cancel(handle)
    assert ends(runner, handle).state is AppState.CANCELLED
    assert (tmp_path / "ran").read_text() == "once\n"
