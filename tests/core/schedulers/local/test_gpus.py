"""GPUs: assigned disjointly over all local apps, waited for, refused where there are too few."""

from __future__ import annotations

import os
import signal
import time

import pytest

from transload.errors import UnsupportedFeature
from transload.specs import AppState, Resource, SpecError

CFG = {"auto_set_cuda_visible_devices": True}


@pytest.fixture(autouse=True)
def _four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "4")


def holder(local, gpus: int, replicas: int = 1, script: str = "echo [$CUDA_VISIBLE_DEVICES]; sleep 300"):
    """Return a role whose replicas hold GPUs and say which."""
    return local.sh(script, num_replicas=replicas, resource=Resource(1, gpus, 100))


def seen(local, app_id: str, k: int = 0) -> set[str]:
    """Return the GPUs that a replica has said it has."""
    return set(local.line(app_id, "[", k=k).strip("[]\n").split(","))


def test_disjoint_and_waited_for(local) -> None:
    """Two apps get different GPUs; a third is PENDING until some are free, and then starts by itself."""
    first, second = local.run(holder(local, 1, 2), cfg=CFG), local.run(holder(local, 2), cfg=CFG)
    assert len(seen(local, first) | seen(local, first, 1) | seen(local, second)) == 4
    third = local.run(holder(local, 1), cfg=CFG)
    status = local.wait(third, lambda status: status.state is AppState.PENDING)
    assert "waiting for 1 of 4 GPUs" in status.msg
    expected = seen(local, first) | seen(local, first, 1)
    local.scheduler.cancel(first)
    assert seen(local, third) < expected
    local.wait(third, lambda status: status.state is AppState.RUNNING)


def test_killed_keeper_frees_its_gpus(local) -> None:
    """What a killed keeper held is given to the next one."""
    first = local.run(holder(local, 4), cfg=CFG)
    seen(local, first)
    second = local.run(holder(local, 4), cfg=CFG)
    local.wait(second, lambda status: status.state is AppState.PENDING)
    os.kill(local.keeper(first), signal.SIGKILL)
    local.wait(second, lambda status: status.state is AppState.RUNNING, timeout=5)
    assert len(seen(local, second)) == 4


def test_first_come_first_served(local) -> None:
    """A large app that waits is not overtaken for ever by small ones."""
    first = local.run(holder(local, 2), cfg=CFG)
    seen(local, first)
    large = local.run(holder(local, 4), cfg=CFG)
    local.wait(large, lambda status: status.state is AppState.PENDING)
    small = local.run(holder(local, 1), cfg=CFG)
    local.wait(small, lambda status: status.state is AppState.PENDING)
    local.scheduler.cancel(first)
    local.wait(large, lambda status: status.state is AppState.RUNNING)
    assert local.status(small).state is AppState.PENDING
    local.scheduler.cancel(small)
    assert local.wait(small).state is AppState.CANCELLED


def test_more_than_there_are(local) -> None:
    """More GPUs than the machine has: refused, naming the field."""
    with pytest.raises(UnsupportedFeature, match="this machine has 4") as caught:
        local.run(holder(local, 3, 2), cfg=CFG)
    assert caught.value.field == "roles[0].resource.gpu"
    assert local.scheduler.list() == []


def test_off_by_default(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the option nothing is assigned, waited for or refused."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    app_id = local.run(holder(local, 9, script="echo [$CUDA_VISIBLE_DEVICES]"))
    assert seen(local, app_id) == {"7"}


def test_named_gpus(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRANSLOAD_LOCAL_GPUS may name the GPUs; nonsense in it is refused."""
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "2,5")
    assert seen(local, local.run(holder(local, 2), cfg=CFG)) == {"2", "5"}
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "many")
    with pytest.raises(SpecError, match="TRANSLOAD_LOCAL_GPUS"):
        local.run(holder(local, 1), cfg=CFG)


def test_trouble_after_the_end_does_not_change_it(local) -> None:
    """What goes wrong once the final state is written (here: GPUs cannot be given back) rewrites nothing."""
    os.mkfifo(local.home / "go")
    role = local.sh(f"read x < {local.home}/go", resource=Resource(1, 1, 100))
    app_id = local.run(role, cfg=CFG)
    local.wait(app_id, lambda status: status.state is AppState.RUNNING)
    keeper = local.keeper(app_id)
    os.unlink(local.home / "local" / "gpus.lock")
    os.mkdir(local.home / "local" / "gpus.lock")
    (local.home / "go").write_text("x\n")
    local.wait(app_id)
    deadline = time.monotonic() + 30
    while local.alive(keeper):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    status = local.status(app_id)
    assert status.state is AppState.SUCCEEDED and status.msg == ""
    assert "GPUs" in (local.folder(app_id) / "keeper.log").read_text()
