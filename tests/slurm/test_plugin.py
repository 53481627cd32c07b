"""The plugin: one name, no cluster asked until an app is run, and what goes wrong without Slurm's
clients.
"""

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
    assert (made.name, made.capabilities.reachable_from) == ("slurm", "network")


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
            (SubmitError, SchedulerUnavailable), match="sbatch is not installed here"
        ) as caught:
            runner.run(app, "slurm", app_id="mine")
        assert "\n" not in str(caught.value)
        assert runner.status("slurm://tests/mine") is None
        assert runner.list("slurm") == []
    assert not (tmp_path / "apps" / "mine").exists()
