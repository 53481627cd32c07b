"""Start an engine once for the tests that need one. What a test leaves on it fails that test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, Role


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
def renote(engine: Any) -> Any:
    """``renote(app_id, kind, data)`` → what is noted of an app becomes another text, as nothing of
    ours would do it.
    """
    from transload_docker import names

    def replace(app_id: str, kind: str, data: str) -> str:
        name = names.volume_name(app_id, kind)
        labels = {names.LABEL_APP: app_id, names.LABEL_KIND: kind, names.LABEL_UID: "test"}
        before = ""
        if any(row["Name"] == name for row in engine.client.volumes()["Volumes"] or ()):
            labels = engine.client.inspect_volume(name)["Labels"]
            before = labels[names.LABEL_DATA]
            engine.client.remove_volume(name)
        engine.client.create_volume(name, labels={**labels, names.LABEL_DATA: data})
        return before

    return replace
