"""The plugin has one name, asks no cluster until a job is run, and needs Slurm's clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from transload.errors import SchedulerUnavailable, SubmitError
from transload.plugins import Plugins
from transload.runner import Runner
from transload.specs import AppDef, Role
from transload_slurm import create_slurm


def test_name_and_reach() -> None:
    """The entry point registers ``slurm``, whose jobs are reached from every machine."""
    plugins = Plugins([("slurm", "transload_slurm.plugin", "transload-slurm", "0")])
    assert "slurm" in plugins.names("schedulers")
    assert plugins.get("schedulers", "slurm")("session", name="hpc").name == "hpc"
    made = plugins.get("schedulers", "slurm")("session")
    assert (made.name, made.reach) == ("slurm", "network")


def test_clients_that_are_missing(
    tmp_path: Path, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``sbatch`` a dry-run works, and a submit is one clear line that leaves nothing."""
    monkeypatch.setenv("TRANSLOAD_SLURM_DIR", str(tmp_path / "apps"))
    monkeypatch.setenv("PATH", str(tmp_path))
    app = AppDef("a", [Role("r", "/tmp", entrypoint="true")])
    with Runner("tests", {"slurm": create_slurm}) as runner:
        assert "#SBATCH" in str(runner.dryrun(app, "slurm"))
        with pytest.raises(
            (SubmitError, SchedulerUnavailable),
            match="sbatch is not installed here; .*name its login node",
        ) as caught:
            runner.run(app, "slurm", app_id="mine")
        assert "\n" not in str(caught.value)
        assert runner.status("slurm://tests/mine") is None
        assert runner.list("slurm") == []
    assert not (tmp_path / "apps" / "mine").exists()


def test_clients_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools without a configuration are no Slurm to submit to, and the check says what to write."""
    line = "sbatch: fatal: Could not establish a configuration source"
    for name in ("sbatch", "squeue", "scancel", "scontrol", "srun"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{line}' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("TRANSLOAD_SLURM_DIR", str(tmp_path / "apps"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    checks = {what: (well, found) for what, well, found in create_slurm("tests").diagnose()}
    assert not checks["clients"][0] and "name its login node" in checks["clients"][1]
    assert list(checks) == ["clients", "folder"]
