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
from transload.specs import AppDef, AppState, Role, parse_app_handle


def ends(runner: Runner, handle: str) -> AppState:
    """Wait for the end of a job, and return its state."""
    status = runner.wait(handle, timeout=60)
    assert status is not None
    return status.state


def nothing_left(engine: Any) -> bool:
    """Tell whether the engine holds neither a container nor a volume nor a network of ours."""
    volumes = engine.client.volumes().get("Volumes") or []
    networks = [n for n in engine.client.networks() if n["Name"].startswith("transload.")]
    return not engine.client.containers(all=True) and not volumes and not networks


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


@pytest.mark.parametrize("step", ["_make_one", "_start_one"])
def test_an_interrupted_submit_leaves_nothing(
    runner: Runner, shell: Any, engine: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A Ctrl-C in the middle of a submit leaves nothing of the job."""
    from transload_docker import submit

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(submit._Submit, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run(shell({"one": "sleep 60", "two": "sleep 60"}), "docker")
    assert nothing_left(engine)


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


def test_cancel_leaves_nothing_behind(
    runner: Runner, shell: Any, engine: Any, eventually: Any
) -> None:
    """A cancelled job keeps only its logs, and once deleted it leaves no trace."""
    handle = runner.run(shell("echo up; sleep 300", replicas=3), "docker")
    runner.cancel(handle)
    assert ends(runner, handle) is AppState.CANCELLED
    assert engine.client.containers() == []
    eventually(lambda: not engine.client.networks(names=["transload."]), timeout=30)
    runner.delete(handle)
    assert nothing_left(engine)


_DIES = """
import os, sys
import transload_docker.submit as submit
from transload.runner import Cluster, Runner
from transload.specs import AppDef, Role
from transload_docker.scheduler import create_docker
setattr(submit._Submit, sys.argv[2], lambda self: os._exit(9))
app = AppDef("test", [Role("main", sys.argv[1], entrypoint="sh", args=["-c", "echo once"], num_replicas=3)])
Runner("tests", {"docker": create_docker}).run(app, "docker", app_id="dies-1")
"""


def _submit_and_die(busybox: str, where: str) -> None:
    done = subprocess.run([sys.executable, "-c", _DIES, busybox, where], timeout=60, check=False)
    assert done.returncode == 9


def test_submitter_dies_before_the_record(
    runner: Runner, shell: Any, busybox: str, engine: Any
) -> None:
    """Containers without a record are no job, and submitting again works."""
    _submit_and_die(busybox, "_record")
    assert len(engine.client.containers(all=True)) == 3
    assert runner.status("docker://tests/dies-1") is None
    assert not runner.scheduler("docker").existed("dies-1")
    handle = runner.run(shell("echo once", replicas=3), "docker", app_id="dies-1")
    assert ends(runner, handle) is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main", 2)) == ["once\n"]


def test_submitter_dies_after_the_network(
    runner: Runner, shell: Any, busybox: str, engine: Any, eventually: Any
) -> None:
    """A network without a container is removed by the supervisor of another job."""
    _submit_and_die(busybox, "_make")
    assert engine.client.networks(names=["transload.dies-1"])
    assert not engine.client.containers(all=True)
    ends(runner, runner.run(shell("true"), "docker"))
    eventually(lambda: not engine.client.networks(names=["transload."]), timeout=20)


def test_a_submit_that_is_interrupted_at_its_network(
    runner: Runner, shell: Any, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ctrl-C just after the engine has made the network removes that, too."""
    from transload_docker import submit

    create = submit.networks.create

    def interrupted(*arguments: Any) -> None:
        create(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(submit.networks, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run(shell("true", replicas=2), "docker")
    assert nothing_left(engine)


def test_submitter_dies_after_the_record(
    runner: Runner, shell: Any, busybox: str, engine: Any
) -> None:
    """A job exists once its record does. Whoever looks next starts a supervisor, which starts it.

    Submitting it again reattaches.
    """
    _submit_and_die(busybox, "_start")
    assert {row["State"] for row in engine.client.containers(all=True)} == {"created"}
    handle = runner.run(shell("echo once", replicas=3), "docker", app_id="dies-1")
    assert ends(runner, handle) is AppState.SUCCEEDED
    for k in range(3):
        assert list(runner.log_lines(handle, "main", k)) == ["once\n"]


def test_rubbish_is_cleared_by_the_supervisor(
    runner: Runner, shell: Any, busybox: str, engine: Any, eventually: Any
) -> None:
    """What a dead submitter left is removed when a supervisor comes by for another app."""
    _submit_and_die(busybox, "_record")
    handle = runner.run(shell("sleep 0.2"), "docker")
    ends(runner, handle)
    app_id = parse_app_handle(handle).app_id
    eventually(
        lambda: all(app_id in row["Names"][0] for row in engine.client.containers(all=True)),
        timeout=20,
    )


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
