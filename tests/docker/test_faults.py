"""A running job meets trouble with its keeper, the engine and other people."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import AppNotFound, SchedulerUnavailable, SubmitError
from transload.runner import Runner
from transload.schedulers import Changes
from transload.schedulers.folder import start
from transload.specs import AppState, BindMount, Resource, RetryPolicy, parse_app_handle


def ends(runner: Runner, handle: str) -> Any:
    """Wait for the end of a job, and return its status."""
    status = runner.wait(handle, timeout=90)
    assert status is not None
    return status


def container(engine: Any, name: str) -> Any:
    """Return the row of a container by name."""
    return next(row for row in engine.client.containers(all=True) if row["Names"] == [f"/{name}"])


def test_keeper_is_replaced(
    runner: Runner,
    shell: Any,
    keepers: Callable[..., list[int]],
    strike: Callable[[str], None],
    eventually: Any,
) -> None:
    """A job whose keeper is killed goes on, and the next look starts another keeper."""
    app = shell(
        {"main": 'test "$TRANSLOAD_RETRY" = 1 || { sleep 3; exit 1; }', "other": "sleep 60"},
        max_retries=1,
        retry_policy=RetryPolicy.APPLICATION,
    )
    app.roles[1].min_replicas = 0
    handle = runner.run(app, "docker")
    strike(handle)
    status = runner.status(handle)
    assert status is not None and not status.is_terminal()
    eventually(
        lambda: (s := runner.status(handle)) and s.roles[0].replicas[0].restarts == 1, timeout=30
    )
    assert keepers(handle)
    runner.cancel(handle)
    assert ends(runner, handle).state is AppState.CANCELLED


@pytest.mark.parametrize("code", [0, 3])
def test_an_end_that_no_keeper_saw(
    runner: Runner,
    shell: Any,
    engine: Any,
    strike: Callable[[str], None],
    eventually: Any,
    code: int,
) -> None:
    """What ends while there is no keeper counts once, with its exit code and its own times."""
    app = shell(f"sleep 1; exit {code}", max_retries=1, retry_delay=0.0)
    handle = runner.run(app, "docker")
    strike(handle)
    eventually(lambda: not engine.client.containers(), timeout=30)
    status = ends(runner, handle)
    replica = status.roles[0].replicas[0]
    assert (replica.exit_code, replica.restarts) == (code, 1 if code else 0)
    assert len(engine.client.containers(all=True)) == replica.restarts + 1


def test_keeper_is_killed_again_and_again(
    runner: Runner, shell: Any, engine: Any, strike: Callable[[str], None], eventually: Any
) -> None:
    """However often that happens, each failure is counted once, and each attempt is made once."""
    app = shell("sleep 0.5; exit 3", max_retries=3, retry_delay=0.0)
    handle = runner.run(app, "docker")
    for attempt in range(3):
        name = f"{parse_app_handle(handle).app_id}.main.0.{attempt}"
        eventually(lambda: runner.status(handle) and has(engine, name), timeout=30)  # noqa: B023
        strike(handle)
    status = ends(runner, handle)
    assert (status.state, status.num_restarts) == (AppState.FAILED, 3)
    assert len(engine.client.containers(all=True)) == 4


def has(engine: Any, name: str) -> bool:
    """Tell whether the engine has a container of that name."""
    return any(row["Names"] == [f"/{name}"] for row in engine.client.containers(all=True))


def test_keeper_ends_with_its_job(
    runner: Runner, shell: Any, keepers: Callable[..., list[int]], eventually: Any
) -> None:
    """A keeper ends with its job, and leaves no zombie. A SIGTERM ends it without the job."""
    handle = runner.run(shell("sleep 2"), "docker")
    (first,) = keepers(handle)
    os.kill(first, signal.SIGTERM)
    eventually(lambda: first not in keepers(handle))
    assert ends(runner, handle).state is AppState.SUCCEEDED
    eventually(lambda: not keepers(), timeout=20)


_WAITS = """
import sys
from transload.runner import Runner
from transload_docker.scheduler import create_docker
with Runner("tests", {"docker": create_docker}) as runner:
    print(runner.wait(sys.argv[1], timeout=60).state)
"""


def test_a_renamed_machine(
    runner: Runner, shell: Any, tmp_path: Path, strike: Callable[[str], None]
) -> None:
    """Jobs keep their retries when their machine gets another host name."""
    command = f'test "$TRANSLOAD_RETRY" = 1 || {{ until test -e {tmp_path}/go; do sleep 0.1; done; exit 1; }}'
    app = shell(command, max_retries=1, mounts=[BindMount(str(tmp_path), str(tmp_path))])
    handle = runner.run(app, "docker")
    strike(handle)  # as a restart of the machine does
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


def test_a_pull_that_hangs_is_alone(runner: Runner, shell: Any, engine: Any) -> None:
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
    runner: Runner, shell: Any, engine: Any
) -> None:
    """A final status stays when the containers are pruned, and so does the id."""
    handle = runner.run(shell("exit 3"), "docker")
    ends(runner, handle)
    engine.client.prune_containers()
    status = runner.status(handle)
    assert status is not None and status.state is AppState.FAILED
    assert status.roles[0].replicas[0].exit_code == 3
    assert list(runner.log_lines(handle, "main", should_tail=True)) == []
    assert runner.run(shell("exit 3"), "docker", app_id=parse_app_handle(handle).app_id) == handle
    assert not engine.client.containers(all=True)


def test_containers_pruned_before_a_retry(runner: Runner, shell: Any, engine: Any) -> None:
    """A job whose failed container is pruned before its next attempt fails, and starts no other."""
    app = shell("exit 3", max_retries=1, retry_delay=4.0)
    handle = runner.run(app, "docker")
    name = f"{parse_app_handle(handle).app_id}.main.0.0"
    while container(engine, name)["State"] != "exited":
        time.sleep(0.05)
    engine.client.prune_containers()
    status = ends(runner, handle)
    assert status.state is AppState.FAILED
    assert not engine.client.containers(all=True)


def test_stopped_from_outside(runner: Runner, shell: Any, engine: Any) -> None:
    """Somebody's ``docker kill`` is a failure by that signal."""
    handle = runner.run(shell("sleep 60"), "docker")
    engine.client.kill(container(engine, f"{parse_app_handle(handle).app_id}.main.0.0")["Id"])
    status = ends(runner, handle)
    assert (status.state, status.roles[0].replicas[0].exit_code) == (AppState.FAILED, -9)


def test_gpus_of_a_submit_that_was_killed(
    runner: Runner, shell: Any, engine: Any, busybox: str
) -> None:
    """What a submit held that was killed is cleared by the next that wants it."""
    from transload_docker import names
    from transload_docker.owner import owner_of

    ends(runner, runner.run(shell("true"), "docker"))
    owner = owner_of(runner.scheduler("docker").home)  # type: ignore[attr-defined]
    labels = {names.LABEL_APP: "dead", names.LABEL_OWNER: owner, names.LABEL_GPUS: "0"}
    config = engine.client.create_container_config(busybox, "true", labels=labels)
    engine.client.create_container_from_config(config, "dead.main.0.0")
    app = shell("true", resource=Resource(cpu=1, gpu=1, memMB=64))
    # this engine has no GPUs to give: that is told once one is free
    with pytest.raises(SubmitError, match="no GPUs to give"):
        runner.run(app, "docker", {"gpu_ids": ["0"]})
    assert not has(engine, "dead.main.0.0")


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
    """A cancel works on an engine whose disk is full, though nothing can be noted there."""
    handle = runner.run(shell("sleep 60"), "docker")
    disk = str(engine.folder / "D")
    used = int(engine.run("df", "--output=iused", disk).split()[-1])
    engine.run("mount", "-o", f"remount,nr_inodes={used}", disk)
    try:
        runner.cancel(handle)
        assert ends(runner, handle).state is AppState.CANCELLED
    finally:
        engine.run("mount", "-o", "remount,nr_inodes=0", disk)


def test_engine_restarted_under_a_running_app(
    runner: Runner, shell: Any, engine: Any, eventually: Any
) -> None:
    """A job is UNKNOWN while the engine is away, then FAILED, as its containers ended, too."""
    handle = runner.run(shell("sleep 60"), "docker")
    try:
        engine.stop(signal.SIGKILL)
        eventually(lambda: runner.status(handle).state is AppState.UNKNOWN)  # type: ignore[union-attr]
        status = runner.status(handle)
        assert status is not None and "cannot be reached" in status.msg
    finally:
        engine.start()
    status = ends(runner, handle)
    assert status.state is AppState.FAILED
    assert status.roles[0].replicas[0].exit_code in (-9, -15, 255)
    assert "the engine went away" in status.msg


@pytest.mark.parametrize("retries", [0, 1])
def test_engine_restarted_without_a_keeper(
    runner: Runner, shell: Any, engine: Any, strike: Callable[[str], None], retries: int
) -> None:
    """What an engine's restart has ended is seen by the next keeper, which starts it again."""
    again = 'test "$TRANSLOAD_RETRY" = 1 || sleep 60'
    app = shell(again, max_retries=retries, retry_delay=0.0)
    handle = runner.run(app, "docker")
    strike(handle)
    try:
        engine.stop(signal.SIGKILL)
    finally:
        engine.start()
    status = ends(runner, handle)
    assert status.state is (AppState.SUCCEEDED if retries else AppState.FAILED), status
    if not retries:
        assert "the engine went away" in status.msg


def test_a_keeper_does_not_spin_while_the_engine_is_away(
    runner: Runner, shell: Any, engine: Any, keepers: Callable[..., list[int]]
) -> None:
    """A keeper asks an absent engine again each second, even after a job's time limit."""

    def used() -> float:
        """Return the processor seconds of the keeper."""
        fields = Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    handle = runner.run(shell("sleep 60", timeout=4.0), "docker")
    (keeper,) = keepers(handle)
    try:
        engine.stop(signal.SIGKILL)
        time.sleep(4.0)
        before = used()
        time.sleep(3.0)
        assert used() - before < 0.5
        assert keepers(handle) == [keeper]
    finally:
        engine.start()
    assert ends(runner, handle).state is AppState.FAILED


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
    assert threading.active_count() == before + 1
    for handle in handles:
        ends(runner, handle)
    watch.close()
    watch.close()
    eventually(lambda: threading.active_count() == before)  # also the thread that followed the apps


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
    """A job whose containers a hanging engine makes after the submit was refused does not run."""
    app = shell(f"echo once >> {tmp_path}/ran; sleep 60")
    app.roles[0].mounts = [BindMount(str(tmp_path), str(tmp_path))]
    real = start._receive
    frozen = threading.Thread(target=engine.freeze, args=(6.0,))

    def hang(fd: int, deadline: float) -> bytes:
        start._receive = real
        frozen.start()
        return real(fd, time.monotonic() + 2.0)

    with monkeypatch.context() as patch:
        patch.setattr(start, "_receive", hang)
        with pytest.raises(SchedulerUnavailable):
            runner.run(app, "docker", app_id="late")
    frozen.join()
    assert runner.status("docker://tests/late") is None
    scheduler = runner.scheduler("docker")
    eventually(lambda: scheduler.prune() == [] and not engine.client.containers(all=True), 60)
    assert not (tmp_path / "ran").exists()
    handle = runner.run(app, "docker", app_id="late")  # its id is free
    eventually((tmp_path / "ran").exists, timeout=30)
    runner.cancel(handle)
    assert ends(runner, handle).state is AppState.CANCELLED
    assert (tmp_path / "ran").read_text() == "once\n"
