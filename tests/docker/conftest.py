"""Start an engine once for the tests that need one. What a test leaves on it fails that test."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.keeper.processes import start_time
from transload.runner import Runner
from transload.specs import AppDef, Role, parse_app_handle


@pytest.fixture(scope="session")
def busybox(private_engine: Any) -> str:
    """Name of a small image with a shell."""
    name: str = private_engine.busybox_image()
    return name


@pytest.fixture(scope="session")
def python_image(private_engine: Any) -> str:
    """Name of an image with this Python, and nothing that is installed here."""
    name: str = private_engine.python_image(packages=())
    return name


@pytest.fixture
def engine(
    private_engine: Any, busybox: str, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Return the engine with DOCKER_HOST set, and fail if the test leaves something on it.

    Images of workspaces are removed afterwards.
    """
    monkeypatch.setenv("DOCKER_HOST", private_engine.url)
    import docker  # noqa: TID251 - the tests of the plugin may

    client = docker.APIClient(base_url=private_engine.url)
    private_engine.client = client
    yield private_engine
    left = private_engine.sweep()
    for tag in [
        tag for row in client.images(name="transload-workspace") for tag in row["RepoTags"] or ()
    ]:
        client.remove_image(tag, force=True)
    client.close()
    assert not left, f"left on the engine by this test (now removed): {left}"


@pytest.fixture
def runner(engine: Any) -> Iterator[Runner]:
    """Make a runner with the docker scheduler.

    All jobs on the engine are deleted after the test.
    """
    from transload_docker.scheduler import create_docker, create_local_docker

    with Runner("tests", {"docker": create_docker, "local_docker": create_local_docker}) as made:
        yield made
        for row in made.list("docker"):
            made.delete(row.app_handle)


@pytest.fixture
def shell(busybox: str) -> Any:
    """``shell(role=command, …, **fields of the first role)`` → an app of shell commands."""

    def make(
        commands: dict[str, str] | str,
        replicas: int = 1,
        timeout: float | None = None,
        **fields: Any,
    ) -> AppDef:
        if isinstance(commands, str):
            commands = {"main": commands}
        roles = [
            Role(name, busybox, entrypoint="sh", args=["-c", text], num_replicas=replicas)
            for name, text in commands.items()
        ]
        for name, value in fields.items():
            setattr(roles[0], name, value)
        return AppDef("test", roles, timeout=timeout)

    return make


@pytest.fixture
def keepers(transload_home: Path) -> Callable[..., list[int]]:
    """``keepers()`` → the pids of the keepers of all jobs, ``keepers(handle)`` of one."""

    def find(handle: str = "*") -> list[int]:
        app_id = parse_app_handle(handle).app_id if "://" in handle else handle
        found = []
        for file in transload_home.glob(f"docker-*/apps/{app_id}/states.jsonl"):
            pid, started = json.loads(file.read_text().splitlines()[-1])["keeper"]
            if start_time(pid) == started:
                found.append(pid)
        return found

    return find


@pytest.fixture
def strike(keepers: Callable[..., list[int]], eventually: Any) -> Callable[[str], None]:
    """``strike(handle)`` kills the keeper of a job, and waits until it is gone."""

    def kill(handle: str) -> None:
        for pid in keepers(handle):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not keepers(handle))

    return kill
