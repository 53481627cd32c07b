"""Another machine with the same engine finds a job, and never starts it a second time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.errors import AppExists, SubmitError
from transload.runner import Runner
from transload.schedulers import Changes
from transload.specs import AppState, Notice, RetryPolicy, parse_app_handle
from transload_docker import names


@pytest.fixture
def elsewhere(
    runner: Runner, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    """A runner with a state folder of its own, as on another machine."""
    from transload_docker.scheduler import create_docker

    other = transload_home / "elsewhere"
    with monkeypatch.context() as patch:
        patch.setenv("TRANSLOAD_HOME", str(other))
        with Runner("tests", {"docker": create_docker}) as made:
            made.list("docker")
            patch.undo()
            yield made
            for row in made.list("docker"):
                made.delete(row.app_handle)


def ends(runner: Runner, handle: str) -> Any:
    """Wait for the end of a job, and return its status."""
    status = runner.wait(handle, timeout=60)
    assert status is not None
    return status


def state_of(runner: Runner, handle: str) -> AppState | None:
    """Return the state of a job."""
    status = runner.status(handle)
    return status and status.state


def test_it_is_seen(runner: Runner, elsewhere: Runner, shell: Any, eventually: Any) -> None:
    """Another machine sees that a job runs and has ended, what it was, and its log."""
    handle = runner.run(shell("echo up; sleep 2; exit 3", env={"TOKEN": "hunter2"}), "docker")
    eventually(lambda: state_of(elsewhere, handle) is AppState.RUNNING)
    description = elsewhere.job(handle).description()
    assert description is not None and description.app is not None
    assert description.app.name == "test" and "hunter2" not in description.app.to_json()
    assert description.asked["machine"] == os.uname().nodename
    assert [row.app_handle for row in elsewhere.list("docker")] == [handle]
    status = ends(elsewhere, handle)
    assert (status.state, status.roles[0].replicas[0].exit_code) == (AppState.FAILED, 3)
    assert list(elsewhere.log_lines(handle, "main")) == ["up\n"]
    assert ends(runner, handle).state is AppState.FAILED


def test_it_is_not_started_again(
    runner: Runner, elsewhere: Runner, shell: Any, engine: Any, eventually: Any
) -> None:
    """A submit from another machine attaches, while the job runs and after its end."""
    app = shell("echo once; sleep 2", replicas=2)
    handle = runner.run(app, "docker", app_id="once-1")
    assert elsewhere.run(app, "docker", app_id="once-1") == handle
    with pytest.raises(AppExists):
        elsewhere.run(shell("true"), "docker", app_id="once-1")
    assert ends(elsewhere, handle).state is AppState.SUCCEEDED
    assert elsewhere.run(app, "docker", app_id="once-1") == handle
    assert ends(runner, handle).state is AppState.SUCCEEDED
    assert elsewhere.run(app, "docker", app_id="once-1") == handle
    assert len(engine.client.containers(all=True)) == 2
    assert list(elsewhere.log_lines(handle, "main", 1)) == ["once\n"]


def test_two_machines_submit_at_once(
    runner: Runner, elsewhere: Runner, shell: Any, engine: Any
) -> None:
    """Of submits of one id at once from two machines one starts the job."""
    app = shell("sleep 3", replicas=2)
    results: list[Any] = []

    def submit(mine: Runner, app_id: str) -> None:
        while True:
            try:
                results.append(mine.run(app, "docker", app_id=app_id))
                return
            except SubmitError as exc:  # it is being submitted there
                results.extend([] if exc.transient else [exc])

    for number in range(3):
        threads = [
            threading.Thread(target=submit, args=(each, f"both-{number}"))
            for each in (runner, elsewhere) * 2
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(set(results)) == 1
        assert len(engine.client.containers(all=True)) == 2
        assert ends(runner, results[0]).state is AppState.SUCCEEDED
        assert ends(elsewhere, results[0]).state is AppState.SUCCEEDED
        runner.delete(results[0])
        elsewhere.delete(results.pop())
        results.clear()


@pytest.mark.parametrize("keeper_lives", [True, False])
def test_cancel(
    runner: Runner,
    elsewhere: Runner,
    shell: Any,
    engine: Any,
    eventually: Any,
    strike: Callable[[str], None],
    keeper_lives: bool,
) -> None:
    """Another machine's cancel is one notice, and ends the job, with or without its keeper."""
    program = "trap 'echo warned' TERM; echo up; while :; do sleep 0.1; done"
    app = shell(program, notice=Notice(3), max_retries=2)
    handle = runner.run(app, "docker")
    eventually(lambda: "up\n" in elsewhere.log_lines(handle, "main", 0))
    if not keeper_lives:
        strike(handle)
    elsewhere.cancel(handle)
    assert ends(elsewhere, handle).state is AppState.CANCELLED
    status = ends(runner, handle)
    assert status.state is AppState.CANCELLED
    assert list(runner.log_lines(handle, "main", 0)).count("warned\n") == 1
    assert len(engine.client.containers(all=True)) == 1


def test_between_two_attempts(runner: Runner, elsewhere: Runner, shell: Any) -> None:
    """A failed attempt is no end elsewhere as long as another may follow."""
    app = shell("exit 3", max_retries=1, retry_delay=3.0, retry_policy=RetryPolicy.REPLICA)
    handle = runner.run(app, "docker")
    seen: list[AppState | None] = []
    while state_of(runner, handle) is not AppState.FAILED:
        seen.append(state_of(elsewhere, handle))
    assert AppState.UNKNOWN in seen
    ends_at = seen.index(AppState.FAILED) if AppState.FAILED in seen else len(seen)
    assert set(seen[ends_at:]) <= {AppState.FAILED}
    status = ends(elsewhere, handle)
    assert (status.state, status.roles[0].replicas[0].restarts) == (AppState.FAILED, 1)


def test_success_needs_no_keeper(
    runner: Runner, elsewhere: Runner, shell: Any, strike: Callable[[str], None]
) -> None:
    """Where the machine that submitted is gone for good, a success is seen all the same."""
    handle = runner.run(shell("sleep 1", max_retries=3, replicas=2), "docker")
    strike(handle)
    assert ends(elsewhere, handle).state is AppState.SUCCEEDED


def test_pruned(runner: Runner, elsewhere: Runner, shell: Any, engine: Any) -> None:
    """Once the containers are pruned, another machine knows nothing, and this one all."""
    handle = runner.run(shell("exit 4"), "docker")
    assert ends(elsewhere, handle).state is AppState.FAILED
    ends(runner, handle)
    engine.client.prune_containers()
    assert elsewhere.status(handle) is None
    assert state_of(runner, handle) is AppState.FAILED


def test_delete(runner: Runner, elsewhere: Runner, shell: Any, engine: Any) -> None:
    """Another machine can delete a job that runs. Here its end is still known."""
    handle = runner.run(shell("exec sleep 300", notice=Notice(2)), "docker")
    elsewhere.delete(handle)
    assert not engine.client.containers(all=True)
    assert elsewhere.status(handle) is None
    assert ends(runner, handle).state in (AppState.CANCELLED, AppState.FAILED)


def test_chain(runner: Runner, elsewhere: Runner, shell: Any) -> None:
    """The jobs of a chain are found wherever they were submitted."""
    for number, each in enumerate((runner, elsewhere, runner)):
        ends(each, each.run(shell("true"), "docker", app_id=f"chain-{number}"))
    for each in (runner, elsewhere):
        found = each.scheduler("docker").chain("chain")
        assert [(number, known and known.status.state) for number, known in found] == [
            (number, AppState.SUCCEEDED) for number in range(3)
        ]


def test_watch(runner: Runner, elsewhere: Runner, shell: Any) -> None:
    """A wait for another machine's job is woken by the engine."""
    app_id = parse_app_handle(runner.run(shell("sleep 1"), "docker")).app_id
    changes = Changes()
    scheduler = elsewhere.scheduler("docker")
    watch: Any = scheduler.watch(changes.add)
    try:
        watch.update([app_id])
        looks = 0
        while not (found := scheduler.describe([app_id])[app_id]) or not found.status.is_terminal():
            assert changes.wait(60) == {app_id}
            looks += 1
        assert looks < 20
    finally:
        watch.close()


_SUBMITS = """
import os, sys
from transload.runner import Runner
from transload.specs import AppDef, Role
from transload_docker.scheduler import create_docker
role = Role("main", sys.argv[1], entrypoint="sh", args=["-c", "echo once; sleep 3"])
with Runner("tests", {"docker": create_docker}) as runner:
    handle = runner.run(AppDef("test", [role]), "docker", app_id=sys.argv[2])
    print(runner.wait(handle, timeout=60).state, os.uname().nodename, runner.job(handle).description().asked["machine"])
"""


def test_another_host_name(
    runner: Runner, engine: Any, busybox: str, transload_home: Path, shell: Any
) -> None:
    """A retry on a worker with another name and another home finds the job of the first."""
    app = shell("echo once; sleep 3")
    app.roles[0].args = ["-c", "echo once; sleep 3"]
    handle = runner.run(app, "docker", app_id="worker-0")
    renamed = ["unshare", "--uts", "sh", "-c", 'hostname worker-2 && exec "$0" "$@"']
    done = subprocess.run(
        [*renamed, sys.executable, "-c", _SUBMITS, busybox, "worker-0"],
        env={**os.environ, "TRANSLOAD_HOME": str(transload_home / "second")},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.split() == ["SUCCEEDED", "worker-2", os.uname().nodename], done.stderr
    assert ends(runner, handle).state is AppState.SUCCEEDED
    assert len(engine.client.containers(all=True)) == 1


def test_what_was_never_started_elsewhere(
    runner: Runner, engine: Any, busybox: str, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another machine made long ago and never started keeps nobody from the id."""
    monkeypatch.setattr("transload_docker.scheduler._STALE_S", -60.0)
    labels = {names.LABEL_APP: "stale", names.LABEL_OWNER: "another"}
    config = engine.client.create_container_config(busybox, "true", labels=labels)
    engine.client.create_container_from_config(config, "stale.main.0.0")
    handle = runner.run(shell("true"), "docker", app_id="stale")
    assert ends(runner, handle).state is AppState.SUCCEEDED
