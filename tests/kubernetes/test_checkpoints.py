"""Checkpoints are kept in a claim, which an option names."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from transload.cli import main
from transload.errors import ConfigError, UnsupportedFeature
from transload.runner import Runner
from transload.specs import AppDef, AppState, Role
from transload_kubernetes.checkpoints import folder_of

PAGE = Path(__file__).parents[2] / "docs" / "schedulers" / "kubernetes.md"
_CLAIMS = ("", "persistentvolumeclaims", "get")


def _app(command: str = "true", replicas: int = 1) -> AppDef:
    role = Role(
        "main",
        "registry.example/shell:1",
        entrypoint="sh",
        args=["-c", command],
        num_replicas=replicas,
        checkpoints=True,
    )
    return AppDef("kept", [role])


@pytest.mark.usefixtures("transload_home")
def test_the_command_of_the_page(fake: Any) -> None:
    """It runs, and the file is in the claim."""
    (line,) = [
        each for each in PAGE.read_text().splitlines() if "checkpoint_claim=training" in each
    ]
    fake.cluster.add_claim("default", "training", "ReadWriteMany")
    assert main(shlex.split(line.removeprefix("$ transload "))) == 0
    kept = fake.cluster.claim("training") / "transload-checkpoints"
    assert len([*kept.glob("*/*/starts")]) == 1


def test_without_a_claim_they_are_refused(runner: Runner) -> None:
    """The field is named, and the option."""
    with pytest.raises(UnsupportedFeature, match=r"checkpoints.*checkpoint_claim") as caught:
        runner.run(_app(), "kubernetes")
    assert "checkpoints" in str(caught.value.field)


@pytest.mark.parametrize(
    ("claim", "modes", "replicas", "error", "words"),
    [
        ("other", [], 1, ConfigError, "no such claim"),
        ("own", ["ReadWriteOnce"], 2, UnsupportedFeature, "one node's"),
        ("own", ["ReadOnlyMany"], 1, UnsupportedFeature, "cannot be written"),
    ],
)
def test_a_claim_that_does_not_fit(
    fake: Any,
    runner: Runner,
    claim: str,
    modes: list[str],
    replicas: int,
    error: type[Exception],
    words: str,
) -> None:
    """It is refused before anything starts, and nothing is left on the cluster."""
    fake.cluster.rights.add(_CLAIMS)
    if modes:
        fake.cluster.add_claim("default", claim, *modes)
    with pytest.raises(error, match=words):
        runner.run(_app(replicas=replicas), "kubernetes", {"checkpoint_claim": claim})
    assert not fake.cluster.items("configmaps")
    assert not fake.cluster.items("jobs")


def test_a_claim_that_is_mounted_here(fake: Any, runner: Runner, claim: str) -> None:
    """Size, age and files are read from the disk. They are the claim's, so `delete` leaves them."""
    cfg = {
        "jobset": "never",
        "checkpoint_claim": claim,
        "checkpoint_mount": str(fake.cluster.claim(claim)),
    }
    command = 'echo step > "$TRANSLOAD_CHECKPOINT_DIR/kept"'
    job = runner.job(runner.run(_app(command), "kubernetes", cfg))
    assert job.wait(timeout=60).state is AppState.SUCCEEDED
    scheduler, app_id = job.scheduler, job.app_id
    (folder,) = scheduler.checkpoints(app_id)
    description = job.description()
    assert description is not None and description.checkpoints is not None
    assert folder.path == folder_of(description.checkpoints, "main")
    assert folder.size and folder.changed
    store = scheduler.checkpoint_store(app_id, "main")
    assert store is not None and store.read("kept") == b"step\n"
    kept = fake.cluster.claim(claim) / "transload-checkpoints" / description.checkpoints
    assert (kept / "main" / "kept").exists()
    job.delete()
    assert (kept / "main" / "kept").exists()
