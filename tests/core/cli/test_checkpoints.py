"""The command line keeps, shows and copies checkpoints, and another job continues from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.pipelines import ExecutionOptions, Identity, Launch
from transload.runner import get_runner
from transload.specs import AppDef, AppState, Role
from transload_testing.steps import PlainStep

SAVE = 'cd "$TRANSLOAD_CHECKPOINT_DIR"; ls; mkdir -p step-1; echo x >> step-1/weights'


def test_checkpoints_of_an_ended_job(invoke: Any, tmp_path: Path) -> None:
    """They are shown with size, age and path, copied by pattern, and another job begins from
    them.
    """
    first = invoke("run", "--app-id", "first", "--checkpoints", "--", "sh", "-c", SAVE)
    assert first.code == 0, first.err
    shown = invoke("describe", "first").out
    (line,) = [line for line in shown.splitlines() if line.startswith("checkpoints")]
    assert "/local/checkpoints/first/main (" in line
    assert "B, changed " in line
    (folder,) = invoke("describe", "first", "--json").json["checkpoints"]
    assert folder["role"] == "main"
    assert folder["size"] > 0

    copied = invoke("get", "first", "--checkpoints", "*/weights", "-o", str(tmp_path))
    assert copied.lines == [str(tmp_path / "step-1" / "weights")]
    assert (tmp_path / "step-1" / "weights").read_text() == "x\n"
    refused = invoke("get", "first", "--checkpoints", "-o", str(tmp_path))
    assert refused.code == 2
    assert "--force" in refused.err

    handle = "local://transload/first"
    second = invoke("run", "--app-id", "second", "--checkpoints", handle, "--", "sh", "-c", SAVE)
    assert second.lines == ["main/0 step-1"]
    assert invoke("delete", "first").code == 0
    assert invoke("get", "second", "--checkpoints", "--force", "-o", str(tmp_path)).code == 0
    assert (tmp_path / "step-1" / "weights").read_text() == "x\nx\n"


@pytest.mark.parametrize(
    ("options", "arguments", "words"),
    [
        ((), (), "did not ask for checkpoints"),
        (("--checkpoints",), (), "has kept no checkpoint '*'"),
        (("--checkpoints",), ("*.pt",), "has kept no checkpoint '*.pt'"),
    ],
)
def test_nothing_to_copy(
    invoke: Any, tmp_path: Path, options: tuple[str, ...], arguments: tuple[str, ...], words: str
) -> None:
    """A job without checkpoints, or with none that match, is one clear line."""
    assert invoke("run", "--app-id", "job", *options, "--", "true").code == 0
    refused = invoke("get", "job", "--checkpoints", *arguments, "-o", str(tmp_path))
    assert refused.code == 2
    assert words in refused.err
    assert list(tmp_path.iterdir()) == []


def test_several_roles_have_folders_of_their_own(transload_home: Path, tmp_path: Path) -> None:
    """Each role's checkpoints are copied into a folder that is named like it."""
    roles = [
        Role(name, "", entrypoint="sh", args=["-c", SAVE], checkpoints=True) for name in ("a", "b")
    ]
    from transload.runner.results import fetch_checkpoints

    with get_runner("tests") as runner:
        job = runner.job(runner.run(AppDef("two", roles), "local"))
        assert job.wait(timeout=60).state is AppState.SUCCEEDED
        app_id = job.need_description().app_id
        copied = fetch_checkpoints(job.scheduler, app_id, "*", str(tmp_path))
    assert copied == [str(tmp_path / name / "step-1" / "weights") for name in ("a", "b")]


@pytest.mark.parametrize(("checkpoints", "found"), [("keep", True), ("new", False)])
def test_second_try_of_an_orchestrator(transload_home: Path, checkpoints: str, found: bool) -> None:
    """The second try finds what the first one kept, unless it wants to begin anew."""
    script = 'cd "$TRANSLOAD_CHECKPOINT_DIR"; [ -e kept ] && exit 0; touch kept; exit 3'
    app = AppDef("a", [Role("r", "", entrypoint="sh", args=["-c", script], checkpoints=True)])
    launch = Launch(app=app, scheduler="local")
    identity = Identity("tests", (checkpoints,), ("task",))
    options = ExecutionOptions(checkpoints=checkpoints)  # type: ignore[arg-type]
    ends = []
    with get_runner("tests") as runner:
        for _ in range(2):
            execution = PlainStep(runner, launch, identity, options)
            execution.start()
            assert execution.handle is not None
            ends.append(runner.wait(execution.handle, timeout=60).state)
    second = AppState.SUCCEEDED if found else AppState.FAILED
    assert ends == [AppState.FAILED, second]


def test_the_id_of_a_wandb_run(invoke: Any) -> None:
    """A job that asks for one W&B run over all attempts finds the id of that run."""
    words = ["run", "--app-id", "mine", "--checkpoints", "--env", "WANDB_RESUME=allow", "--"]
    done = invoke(*words, "sh", "-c", 'echo "$WANDB_RESUME $WANDB_RUN_ID"')
    assert done.lines == ["main/0 allow mine"]
