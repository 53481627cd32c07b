"""An image with a workspace is built once per content at a submit, never in a dry-run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.errors import SpecError, SubmitError
from transload.runner import Runner
from transload.specs import AppState


def images(engine: Any) -> dict[str, str]:
    """Return the id of each patched image by name."""
    rows = engine.client.images(name="transload-workspace")
    return {tag: row["Id"] for row in rows for tag in row["RepoTags"] or ()}


def run(runner: Runner, app: Any, folder: Path, **cfg: Any) -> list[str]:
    """Run a job with a workspace, and return its log."""
    handle = runner.run(app, "docker", cfg, workspace=str(folder))
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED, list(
        runner.log_lines(handle, "main")
    )
    return list(runner.log_lines(handle, "main"))


def test_code_travels_and_is_cached(
    runner: Runner, shell: Any, engine: Any, tmp_path: Path
) -> None:
    """The workspace is the working directory.

    Equal content gives the same image, a change another.
    """
    (tmp_path / "code.sh").write_text("echo one\n")
    (tmp_path / "code.sh").chmod(0o600)
    (tmp_path / ".transloadignore").write_text("*.log\n")
    (tmp_path / "big.log").write_text("x")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link").symlink_to("../code.sh")
    app = shell("pwd; sh sub/link; ls")
    assert run(runner, app, tmp_path, user="1000") == [
        "/workspace\n",
        "one\n",
        "code.sh\n",
        "sub\n",
    ]
    first = images(engine)
    assert len(first) == 1
    run(runner, app, tmp_path)
    assert images(engine) == first
    (tmp_path / "code.sh").write_text("echo two\n")
    assert run(runner, app, tmp_path)[1] == "two\n"
    assert len(images(engine)) == 2
    assert all("transload.app-id" in row["Labels"] for row in engine.client.containers(all=True))


def test_an_app_without_an_image(
    runner: Runner, shell: Any, busybox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job without an image runs in the scheduler's default one.

    Without that, an error says what to set.
    """
    (tmp_path / "code.sh").write_text("echo mine\n")
    monkeypatch.chdir(tmp_path)
    app = shell("sh code.sh", image="")
    handle = runner.run(app, "docker", {"image": busybox})
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main")) == ["mine\n"]
    with pytest.raises(
        SpecError, match=r"roles\[0\]\.image=''.*run option image, \[schedulers\.docker\] image"
    ):
        runner.run(app, "docker")


def test_dry_run_builds_nothing(runner: Runner, shell: Any, engine: Any, tmp_path: Path) -> None:
    """A dry-run shows a placeholder."""
    info = runner.dryrun(shell("true"), "docker", workspace=str(tmp_path))
    assert "transload-workspace:<content hash>" in str(info)
    assert images(engine) == {}


def test_image_missing(runner: Runner, shell: Any, engine: Any, tmp_path: Path) -> None:
    """A missing base image is refused, and nothing is built."""
    app = shell("true")
    app.roles[0].image = "no.such.registry.invalid/img:1"
    with pytest.raises(SubmitError, match="pull=never"):
        runner.run(app, "docker", workspace=str(tmp_path))
    assert images(engine) == {} and engine.client.containers(all=True) == []


def test_image_keeps_its_own_settings(
    runner: Runner, shell: Any, engine: Any, tmp_path: Path
) -> None:
    """The base's working directory takes the workspace, its entrypoint stays."""
    (tmp_path / "f").write_text("")
    made = engine.client.create_container_from_config(
        {"Image": shell("x").roles[0].image, "Cmd": ["sh"]}
    )["Id"]
    changes = ["WORKDIR /srv/app", 'ENTRYPOINT ["sh", "-c"]']
    engine.client.commit(made, repository="tl-test-based", tag="1", changes=changes)
    engine.client.remove_container(made)
    app = shell("x")
    app.roles[0].image, app.roles[0].entrypoint, app.roles[0].args = (
        "tl-test-based:1",
        "pwd; ls",
        [],
    )
    try:
        assert run(runner, app, tmp_path, image_entrypoint=True) == ["/srv/app\n", "f\n"]
    finally:
        for row in runner.list("docker"):
            runner.delete(row.app_handle)
        for name in images(engine):
            engine.client.remove_image(name, force=True)
        engine.client.remove_image("tl-test-based:1", force=True)


def test_image_without_a_program_gets_none(
    runner: Runner, shell: Any, engine: Any, tmp_path: Path
) -> None:
    """A base without an entrypoint has none afterwards.

    With ``image_entrypoint`` the role's program is what runs.
    """
    (tmp_path / "f").write_text("")
    app = shell("ls")
    assert run(runner, app, tmp_path, image_entrypoint=True) == ["f\n"]
