"""A submit starts all or nothing, once, whoever dies in between."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import threading
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, SubmitError
from transload.runner import Cluster, Runner
from transload.schedulers.folder import start
from transload.specs import AppDef, AppState, Role
from transload_docker.scheduler import DockerScheduler


def ends(runner: Runner, handle: str) -> AppState:
    """Wait for the end of a job, and return its state."""
    status = runner.wait(handle, timeout=60)
    assert status is not None
    return status.state


def nothing_left(engine: Any) -> bool:
    """Tell whether the engine holds neither a container nor a volume of ours."""
    volumes = engine.client.volumes().get("Volumes") or []
    return not engine.client.containers(all=True) and not volumes


def test_missing_image_is_never_pulled(runner: Runner, shell: Any, engine: Any) -> None:
    """An image that the engine lacks is one clear error line, and no role has been started."""
    app = shell({"one": "sleep 60", "two": "sleep 60"})
    app.roles[1].image = "no.such.registry.invalid/img:1"
    with pytest.raises(SubmitError, match="pull=never"):
        runner.run(app, "docker")
    assert nothing_left(engine)


def test_pull_that_fails(runner: Runner, engine: Any) -> None:
    """With pull=missing it is tried, and the registry's refusal is told."""
    app = AppDef("x", [Role("r", "no.such.registry.invalid/img:1", entrypoint="true")])
    with pytest.raises(SubmitError, match="cannot be pulled"):
        runner.run(app, "docker", {"pull": "missing"})
    assert nothing_left(engine)


def test_pull_missing_takes_what_is_there(runner: Runner, shell: Any) -> None:
    """An image that is there is not asked of a registry."""
    assert (
        ends(runner, runner.run(shell("true"), "docker", {"pull": "missing"})) is AppState.SUCCEEDED
    )


def test_name_clash_with_a_stranger(runner: Runner, shell: Any, engine: Any, busybox: str) -> None:
    """A container of somebody else with that name makes a submit fail, and stays untouched."""
    body = {"Image": busybox, "Entrypoint": ["sleep", "60"]}
    stranger = engine.client.create_container_from_config(body, "clash-1.main.1.0")["Id"]
    with pytest.raises(SubmitError, match=r"clash-1\.main\.1\.0.*already in use"):
        runner.run(shell("sleep 60", replicas=3), "docker", app_id="clash-1")
    (left,) = engine.client.containers(all=True)
    assert left["Id"] == stranger
    assert not engine.client.volumes().get("Volumes")
    engine.client.remove_container(stranger)
    assert (
        ends(runner, runner.run(shell("true", replicas=3), "docker", app_id="clash-1"))
        is AppState.SUCCEEDED
    )


def test_role_that_cannot_start_takes_the_others_along(
    runner: Runner, shell: Any, engine: Any
) -> None:
    """If the last container cannot be started, those that run already are removed."""
    app = shell({"one": "sleep 60", "two": "sleep 60"})
    app.roles[1].metadata = {"docker.container": {"HostConfig": {"Runtime": "no-such-runtime"}}}
    with pytest.raises(SubmitError, match="no-such-runtime"):
        runner.run(app, "docker")
    assert nothing_left(engine)


def dies_at(step: str, times: int = 1) -> str:
    """Return code for a keeper's process that ends without a word at the n-th call of a method."""
    return (
        f"import itertools, os; from transload_docker import launcher; kind = launcher.Containers; "
        f"real = kind.{step}; calls = itertools.count(1); "
        f"kind.{step} = lambda *a: os._exit(9) if next(calls) >= {times} else real(*a); "
        "from transload_docker import process; process"
    )


DEATHS = pytest.mark.parametrize("times", [1, 3])
"""At which container a keeper dies, of three."""


@DEATHS
def test_a_keeper_that_dies_in_a_submit_leaves_nothing(
    runner: Runner,
    shell: Any,
    engine: Any,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
    times: int,
) -> None:
    """A submit whose keeper dies before it has made all containers is refused as passing."""
    app = shell("sleep 60", replicas=3)
    real = DockerScheduler.program
    with monkeypatch.context() as patch:
        patch.setattr(
            DockerScheduler,
            "program",
            lambda self: real(self)._replace(module=dies_at("_make", times)),
        )
        with pytest.raises(SubmitError) as caught:
            runner.run(app, "docker", app_id="dies-1")
    assert caught.value.transient
    assert runner.status("docker://tests/dies-1") is None
    assert not runner.scheduler("docker").existed("dies-1")
    eventually(lambda: nothing_left(engine))


@DEATHS
def test_a_keeper_that_dies_before_all_are_started(
    runner: Runner, shell: Any, engine: Any, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Once all containers are made the job is there. The next keeper starts what is missing."""
    app = shell("echo once", replicas=3)
    real = DockerScheduler.program
    with monkeypatch.context() as patch:
        patch.setattr(
            DockerScheduler,
            "program",
            lambda self: real(self)._replace(module=dies_at("_start_made", times)),
        )
        handle = runner.run(app, "docker", app_id="dies-1")
    assert ends(runner, handle) is AppState.SUCCEEDED
    for k in range(3):
        assert list(runner.log_lines(handle, "main", k)) == ["once\n"]
    assert len(engine.client.containers(all=True)) == 3


def test_an_interrupted_submit_leaves_nothing(
    runner: Runner, shell: Any, engine: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """A Ctrl-C while the containers are made leaves nothing of the job."""
    real = start._receive

    def interrupted(fd: int, deadline: float) -> bytes:
        start._receive = real
        eventually(lambda: engine.client.containers(all=True), 30)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(start, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runner.run(shell("sleep 60", replicas=4), "docker", app_id="c-1")
    assert runner.status("docker://tests/c-1") is None
    eventually(lambda: runner.scheduler("docker").prune() == [] and nothing_left(engine), 30)


def test_no_engine(runner: Runner, shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing engine makes a submit fail as unavailable, and a status UNKNOWN."""
    with Runner(
        "x", clusters=[Cluster("docker", connection={"docker_host": "unix:///no/S"})]
    ) as other:
        with pytest.raises(SchedulerUnavailable, match="/no/S: cannot be reached"):
            other.run(shell("true"), "docker")
        status = other.status("docker://x/app-1")
        assert status is not None and status.state is AppState.UNKNOWN
        scheduler: Any = other.scheduler("docker")
        checks = {name: (ok, text) for name, ok, text in scheduler.diagnose()}
        assert checks["engine"][0] is False and "there is no /no/S" in checks["engine"][1]


def test_doctor_on_a_living_engine(runner: Runner) -> None:
    """All checks pass, and it is said which engine and as whom."""
    scheduler: Any = runner.scheduler("docker")
    checks = {name: (ok, text) for name, ok, text in scheduler.diagnose()}
    assert all(ok for ok, _ in checks.values()), checks
    assert {"client", "state folder", "engine", "user", "limits", "logs"} <= set(checks)


def test_many_submits_of_one_id(runner: Runner, shell: Any, engine: Any) -> None:
    """Of ten submits of one id at once one starts the job, and nine reattach."""
    from transload_docker.scheduler import create_docker

    app = shell("sleep 1", replicas=2)
    results: list[Any] = []

    def submit() -> None:
        with Runner("tests", {"docker": create_docker}) as mine:
            results.append(mine.run(app, "docker", app_id="many-1"))

    threads = [threading.Thread(target=submit) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 10 and len(set(results)) == 1
    assert len(engine.client.containers(all=True)) == 2
    assert ends(runner, results[0]) is AppState.SUCCEEDED


def test_own_id_leaves_nothing(runner: Runner, shell: Any, engine: Any) -> None:
    """An app with an id of our making is forgotten altogether."""
    handle = runner.run(shell("true"), "docker")
    ends(runner, handle)
    runner.delete(handle)
    assert nothing_left(engine)


def test_cancel_leaves_nothing_behind(runner: Runner, shell: Any, engine: Any) -> None:
    """A cancelled job keeps only its logs, and once deleted it leaves no trace."""
    handle = runner.run(shell("echo up; sleep 300", replicas=3), "docker")
    runner.cancel(handle)
    assert ends(runner, handle) is AppState.CANCELLED
    assert engine.client.containers() == []
    runner.delete(handle)
    assert nothing_left(engine)


_DIES = """
import os, sys
from transload.runner import Runner
from transload.schedulers.folder import start
from transload.specs import AppDef, Role
from transload_docker.scheduler import DockerScheduler, create_docker
busybox, module = sys.argv[1:]
program = DockerScheduler.program
DockerScheduler.program = lambda self: program(self)._replace(module=module)
receive = start._receive
start._receive = lambda *arguments: receive(*arguments) or os._exit(9)
app = AppDef("test", [Role("main", busybox, entrypoint="sh", args=["-c", "echo once"], num_replicas=3)])
Runner("tests", {"docker": create_docker}).run(app, "docker", app_id="dies-1")
"""


def submit_and_die(busybox: str, step: str, times: int) -> None:
    """Kill a submitter, and its keeper at the n-th call of a method."""
    command = [sys.executable, "-c", _DIES, busybox, dies_at(step, times)]
    done = subprocess.run(command, timeout=60, check=False)
    assert done.returncode == 9


@DEATHS
@pytest.mark.parametrize("step", ["_make", "_start_made"])
def test_submitter_and_keeper_die(
    runner: Runner, shell: Any, busybox: str, engine: Any, step: str, times: int
) -> None:
    """Whenever that happens, submitting again leads to the one job."""
    submit_and_die(busybox, step, times)
    handle = runner.run(shell("echo once", replicas=3), "docker", app_id="dies-1")
    assert ends(runner, handle) is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main", 2)) == ["once\n"]
    assert len(engine.client.containers(all=True)) == 3


def test_whoever_looks_next_takes_it_back(
    runner: Runner, shell: Any, busybox: str, engine: Any
) -> None:
    """What a dead submit has left is removed when somebody looks, or another job is submitted."""
    submit_and_die(busybox, "_make", 3)
    assert engine.client.containers(all=True)
    assert runner.status("docker://tests/dies-1") is None
    assert nothing_left(engine)
    submit_and_die(busybox, "_make", 3)
    assert runner.list("docker") == []
    assert nothing_left(engine)


def test_submitter_dies_after_its_keeper_has_the_request(
    runner: Runner, busybox: str, engine: Any, shell: Any
) -> None:
    """The job is there, once, whether anybody waits for the answer or not."""
    script = _DIES.replace("receive(*arguments) or os._exit(9)", "os._exit(9)")
    module = "from transload_docker import process; process"
    done = subprocess.run([sys.executable, "-c", script, busybox, module], timeout=60, check=False)
    assert done.returncode == 9
    handle = runner.run(shell("echo once", replicas=3), "docker", app_id="dies-1")
    assert ends(runner, handle) is AppState.SUCCEEDED
    assert len(engine.client.containers(all=True)) == 3


def test_python_is_python3_where_only_that_is(
    runner: Runner, shell: Any, busybox: str, engine: Any
) -> None:
    """The entrypoint ``python`` is found as ``python3`` in an image that has no other, and as
    itself where it is.
    """
    for names in (("python3",), ("python", "python3")):
        with io.BytesIO() as archive:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for name in names:
                    script = f"#!/bin/sh\necho {name} $1\n".encode()
                    member = tarfile.TarInfo(f"bin/{name}")
                    member.size, member.mode = len(script), 0o755
                    tar.addfile(member, io.BytesIO(script))
            made = engine.client.create_container(busybox, "true")["Id"]
            engine.client.put_archive(made, "/", archive.getvalue())
        image = engine.client.commit(made)["Id"]
        engine.client.remove_container(made)
        handle = runner.run(
            shell("", image=image, entrypoint="python", args=["-V"], num_replicas=2), "docker"
        )
        status = runner.wait(handle, timeout=60)
        assert status is not None and status.state is AppState.SUCCEEDED, status
        assert list(runner.log_lines(handle, "main", 1)) == [f"{names[0]} -V\n"]
        runner.delete(handle)
        engine.client.remove_image(image, force=True)
