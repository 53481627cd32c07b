"""An engine for the tests that need one, started once; what is left on it by a test is that test's failure."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, Role


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"transload_docker_tests_{name}", Path(__file__).parents[1] / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def private_engine() -> Iterator[Any]:
    """The engine of this test process."""
    engine = _load("private_engine").PrivateEngine(in_memory=True)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def busybox(private_engine: Any) -> str:
    """Name of a small image with a shell."""
    name: str = private_engine.busybox_image()
    return name


@pytest.fixture(scope="session")
def python_image(private_engine: Any) -> str:
    """Name of an image with this Python, NumPy and scikit-learn."""
    name: str = private_engine.python_image()
    return name


@pytest.fixture
def engine(private_engine: Any, busybox: str, transload_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The engine as a test uses it: DOCKER_HOST set, and nothing but images left on it afterwards."""
    monkeypatch.setenv("DOCKER_HOST", private_engine.url)
    import docker  # noqa: TID251 - the tests of the plugin may

    client = docker.APIClient(base_url=private_engine.url)
    private_engine.client = client
    yield private_engine
    left = _sweep(client)
    client.close()
    assert not left, f"left on the engine by this test (now removed): {left}"


def _sweep(client: Any) -> list[str]:
    """Remove what is on an engine apart from images; return its names. Records of deleted apps are meant to stay."""
    left = []
    for row in client.containers(all=True):
        left.append(f"container {row['Names']}")
        client.remove_container(row["Id"], force=True, v=True)
    for row in client.networks():
        if row["Name"] not in ("bridge", "host", "none"):
            left.append(f"network {row['Name']}")
            client.remove_network(row["Id"])
    for row in client.volumes().get("Volumes") or ():
        if not row["Name"].endswith(".deleted"):
            left.append(f"volume {row['Name']}")
        client.remove_volume(row["Name"], force=True)
    return left


@pytest.fixture
def runner(engine: Any) -> Iterator[Runner]:
    """A runner with the docker scheduler; every app on the engine is deleted when the test is over."""
    from transload_docker.scheduler import create_docker, create_local_docker

    with Runner("tests", {"docker": create_docker, "local_docker": create_local_docker}) as made:
        yield made
        for row in made.list("docker"):
            made.delete(row.app_handle)


@pytest.fixture
def shell(busybox: str) -> Any:
    """``shell(role=command, …, **fields of the first role)`` → an app of shell commands."""

    def make(commands: dict[str, str] | str, replicas: int = 1, timeout: float | None = None, **fields: Any) -> AppDef:
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
