"""GPUs are assigned disjointly over all local jobs, waited for, or refused if too few."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from transload.errors import UnsupportedFeature
from transload.keeper.gpus import amd_gpus, in_use
from transload.specs import AppState, Resource, SpecError


@pytest.fixture(autouse=True)
def _four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "4")


def holder(
    local, gpus: int, replicas: int = 1, script: str = "echo [$CUDA_VISIBLE_DEVICES]; sleep 300"
):
    """Return a role whose replicas hold GPUs and say which."""
    return local.sh(script, num_replicas=replicas, resource=Resource(1, gpus, 100))


def seen(local, app_id: str, k: int = 0) -> set[str]:
    """Return the GPUs that a replica has said it has."""
    return set(local.line(app_id, "[", k=k).strip("[]\n").split(","))


def test_disjoint_and_waited_for(local) -> None:
    """Two jobs get different GPUs. A third is PENDING until some are free, and then starts."""
    first, second = local.run(holder(local, 1, 2)), local.run(holder(local, 2))
    assert len(seen(local, first) | seen(local, first, 1) | seen(local, second)) == 4
    third = local.run(holder(local, 1))
    status = local.wait(third, lambda status: status.state is AppState.PENDING)
    assert status.msg.startswith("waiting for 1 of 4 GPUs: ")
    for app_id in (first, second):
        assert f"{app_id} has " in status.msg
    expected = seen(local, first) | seen(local, first, 1)
    local.scheduler.cancel([first])
    assert seen(local, third) < expected
    local.wait(third, lambda status: status.state is AppState.RUNNING)


def test_killed_keeper_frees_its_gpus(local) -> None:
    """What a killed keeper held is given to the next one."""
    first = local.run(holder(local, 4))
    seen(local, first)
    second = local.run(holder(local, 4))
    local.wait(second, lambda status: status.state is AppState.PENDING)
    os.kill(local.keeper(first), signal.SIGKILL)
    local.wait(second, lambda status: status.state is AppState.RUNNING, timeout=5)
    assert len(seen(local, second)) == 4


def test_first_come_first_served(local) -> None:
    """A large app that waits is not overtaken for ever by small ones."""
    first = local.run(holder(local, 2))
    seen(local, first)
    large = local.run(holder(local, 4))
    local.wait(large, lambda status: status.state is AppState.PENDING)
    small = local.run(holder(local, 1))
    local.wait(small, lambda status: status.msg.endswith("; 1 job waits before it"))
    local.scheduler.cancel([first])
    local.wait(large, lambda status: status.state is AppState.RUNNING)
    assert local.status(small).state is AppState.PENDING
    local.wait(small, lambda status: f"{large} has 0, 1, 2, 3" in status.msg)
    local.scheduler.cancel([small])
    assert local.wait(small).state is AppState.CANCELLED


def test_more_than_there_are(local) -> None:
    """More GPUs than the machine has are refused, naming the field."""
    with pytest.raises(UnsupportedFeature, match="this machine has 4") as caught:
        local.run(holder(local, 3, 2))
    assert caught.value.field == "roles[0].resource.gpu"
    assert local.scheduler.list() == []


def test_switched_off(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the option nothing is assigned, waited for or refused."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    role = holder(local, 9, script="echo [$CUDA_VISIBLE_DEVICES]")
    assert seen(local, local.run(role, cfg={"auto_set_cuda_visible_devices": False})) == {"7"}


def test_only_those_that_the_submitter_may_use(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the submitter itself has been given some, as by a batch system, its apps share
    those.
    """
    monkeypatch.delenv("TRANSLOAD_LOCAL_GPUS")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert seen(local, local.run(holder(local, 2))) == {"1", "3"}
    with pytest.raises(UnsupportedFeature, match="this machine has 2"):
        local.run(holder(local, 3))


def test_what_others_use_is_not_given_away(
    local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU on which somebody computes, by a stub of nvidia-smi, is waited for."""
    busy, tool = tmp_path / "busy", tmp_path / "nvidia-smi"
    busy.write_text("GPU-b, 4711\n")
    gpus = "".join(f"{number}, GPU-{letter}\\n" for number, letter in enumerate("abcd"))
    tool.write_text(f"#!/bin/sh\ncase $1 in *compute*) cat {busy};; *) printf '{gpus}';; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert seen(local, local.run(holder(local, 3))) == {"0", "2", "3"}
    last = local.run(holder(local, 1))
    words = "a process outside of transload computes on 1"
    local.wait(last, lambda status: words in status.msg)
    busy.write_text("")
    assert seen(local, last) == {"1"}


def test_what_amds_driver_tells(tmp_path: Path) -> None:
    """GPUs of AMD are found by files of sysfs, which are made here."""
    for node, gpu in enumerate(("0", "4098", "51")):
        (tmp_path / "topology" / "nodes" / str(node)).mkdir(parents=True)
        (tmp_path / "topology" / "nodes" / str(node) / "gpu_id").write_text(f"{gpu}\n")
    (tmp_path / "proc" / "77").mkdir(parents=True)
    (tmp_path / "proc" / "77" / "vram_51").write_text("4096\n")
    (tmp_path / "proc" / "77" / "vram_4098").write_text("0\n")
    assert amd_gpus(str(tmp_path)) == ["4098", "51"]
    assert in_use("", str(tmp_path)) == {"1"}


def test_named_gpus(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRANSLOAD_LOCAL_GPUS may name the GPUs, and nonsense in it is refused."""
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "2,5")
    assert seen(local, local.run(holder(local, 2))) == {"2", "5"}
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "2,5,2")
    with pytest.raises(UnsupportedFeature, match="this machine has 2"):
        local.run(holder(local, 3))  # one that is named twice is one
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "many")
    with pytest.raises(SpecError, match="TRANSLOAD_LOCAL_GPUS"):
        local.run(holder(local, 1))


def test_trouble_after_the_end_does_not_change_it(local) -> None:
    """What goes wrong after the final state is written, as with GPUs, rewrites nothing."""
    os.mkfifo(local.home / "go")
    role = local.sh(f"read x < {local.home}/go", resource=Resource(1, 1, 100))
    app_id = local.run(role)
    local.wait(app_id, lambda status: status.state is AppState.RUNNING)
    keeper = local.keeper(app_id)
    os.unlink(local.home / "gpus" / "gpus.lock")
    os.mkdir(local.home / "gpus" / "gpus.lock")
    (local.home / "go").write_text("x\n")
    local.wait(app_id)
    deadline = time.monotonic() + 30
    while local.alive(keeper):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    status = local.status(app_id)
    assert status.state is AppState.SUCCEEDED and status.msg == ""
    assert "GPUs" in (local.folder(app_id) / "keeper.log").read_text()
