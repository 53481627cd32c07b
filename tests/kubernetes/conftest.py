"""A fake cluster for each test that wants one, a runner on it, and what both leave behind is looked
at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, Role
from transload_kubernetes.names import QUEUE

FOLDER = str(Path(__file__).parent)


@pytest.fixture
def fake(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Start a fake cluster, named by KUBECONFIG, whose user has only the rights asked for."""
    monkeypatch.syspath_prepend(FOLDER)
    from fake_server import FakeServer

    from transload_kubernetes.diagnose import OBSERVE, QUEUE, SUBMIT

    server = FakeServer(tmp_path_factory.mktemp("kube"))
    server.cluster.rights = {
        (*what, verb)
        for rights in (OBSERVE, QUEUE, SUBMIT)
        for what, verbs in rights.items()
        for verb in verbs
    }
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def claim(fake: Any) -> str:
    """The name of a claim that all nodes of the fake cluster can write to."""
    fake.cluster.add_claim("default", "kept", "ReadWriteMany")
    return "kept"


@pytest.fixture
def default_queue(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kueue's webhook puts what names no queue into the queue ``default`` of its namespace."""
    create = fake.cluster.create

    def put(plural: str, namespace: str, item: Any, **options: Any) -> Any:
        owners = item["metadata"].get("ownerReferences") or ()
        is_of_set = any(each["kind"] == "JobSet" for each in owners)
        labels = item["metadata"].setdefault("labels", {})
        if plural in ("jobs", "jobsets") and not is_of_set and QUEUE not in labels:
            labels[QUEUE] = "default"
            item["spec"]["suspend"] = True
        return create(plural, namespace, item, **options)

    monkeypatch.setattr(fake.cluster, "create", put)


@pytest.fixture
def scheduler(fake: Any) -> Iterator[Any]:
    """A scheduler on the fake cluster."""
    from transload_kubernetes.scheduler import create_scheduler

    made = create_scheduler("tests")
    yield made
    made.close()


@pytest.fixture
def runner(fake: Any, transload_home: Path) -> Iterator[Runner]:
    """A runner with the kubernetes scheduler on the fake cluster."""
    from transload_kubernetes.scheduler import create_scheduler

    with Runner("tests", {"kubernetes": create_scheduler}) as made:
        yield made


@pytest.fixture
def shell() -> Any:
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
            Role(
                name,
                "registry.example/shell:1",
                entrypoint="sh",
                args=["-c", text],
                num_replicas=replicas,
            )
            for name, text in commands.items()
        ]
        for name, value in fields.items():
            setattr(roles[0], name, value)
        return AppDef("test", roles, timeout=timeout)

    return make
