"""Option ``image_repo``: a real engine builds images with workspaces and pushes them to a real registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, SubmitError
from transload.runner import Runner
from transload.specs import AppDef, Role, Workspace
from transload_kubernetes.convert import convert, format_request
from transload_kubernetes.options import run_opts
from transload_kubernetes.workspace import with_images


def workspace_app(folder: Path, image: str) -> AppDef:
    """Return an app of two roles, one of which has a workspace."""
    folder.mkdir(exist_ok=True)
    (folder / "train.sh").write_text("echo trained\n")
    (folder / "train.sh").chmod(0o600)
    one = Role("main", image, entrypoint="sh", args=["train.sh"], workspace=Workspace({str(folder): "code"}))
    return AppDef("a", [one, Role("other", image, entrypoint="true")])


@pytest.fixture(scope="module")
def engine(private_engine: Any) -> Any:
    """A private engine with a registry."""
    private_engine.start_registry()
    return private_engine


@pytest.fixture(scope="module")
def base(engine: Any) -> str:
    """Name of an image that is in the registry, and not on the engine."""
    import docker

    name = f"{engine.registry}/base:1"
    engine.busybox_image(name)
    api = docker.APIClient(base_url=engine.url)
    api.push(name)
    api.remove_image(name, force=True)
    api.close()
    return name


@pytest.fixture
def api(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The engine's client; DOCKER_HOST names the engine."""
    import docker

    monkeypatch.setenv("DOCKER_HOST", engine.url)
    client = docker.APIClient(base_url=engine.url)
    yield client
    client.close()


def output(api: Any, image: str, *command: str) -> str:
    """Run a command in an image as some user; return what it prints."""
    made = api.create_container(image, list(command), user="1000")["Id"]
    try:
        api.start(made)
        assert api.wait(made)["StatusCode"] == 0
        text: bytes = api.logs(made)
        return text.decode()
    finally:
        api.remove_container(made, force=True)


@pytest.mark.engine("docker")
@pytest.mark.engine("registry")
def test_built_pushed_and_used_again(engine: Any, base: str, api: Any, tmp_path: Path) -> None:
    """The base is pulled, the workspace laid over it, the result pushed: whoever pulls it has the code. Once."""
    app = workspace_app(tmp_path / "code", base)
    repository = f"{engine.registry}/team/code"
    prepared = with_images(app, repository, False)
    image = prepared.roles[0].image
    assert image.startswith(f"{repository}:") and prepared.roles[0].workspace is None
    assert prepared.roles[1].image == base and app.roles[0].workspace is not None
    api.remove_image(image, force=True)
    api.pull(*image.rsplit(":", 1))
    assert output(api, image, "sh", "-c", "pwd; sh code/train.sh") == "/workspace\ntrained\n"
    api.remove_image(image, force=True)
    assert with_images(app, repository, True).roles[0].image == image
    with pytest.raises(Exception, match="(?i)no such image"):
        api.inspect_image(image)  # it is in the registry: not built again, even with the base pulled anew
    (tmp_path / "code" / "train.sh").write_text("echo changed\n")
    assert with_images(app, repository, False).roles[0].image != image
    assert api.containers(all=True) == []


@pytest.mark.engine("docker")
@pytest.mark.engine("registry")
def test_a_submit_uses_the_image(engine: Any, base: str, api: Any, fake: Any, runner: Runner, tmp_path: Path) -> None:
    """The Job names the image that was pushed; there is no init container; a dry-run has built nothing."""
    folder = tmp_path / "code"
    app = workspace_app(folder, base)
    app.roles[0].workspace, app.roles = None, app.roles[:1]
    cfg = {"image_repo": f"{engine.registry}/mine"}
    before = {row["Id"] for row in api.images()}
    shown = str(runner.dryrun(app, "kubernetes", cfg, workspace=str(folder)))
    assert f"{engine.registry}/mine:<content hash>" in shown
    assert {row["Id"] for row in api.images()} == before
    handle = runner.run(app, "kubernetes", cfg, workspace=str(folder))
    pod = fake.cluster.items("jobs")[0]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith(f"{engine.registry}/mine:") and "initContainers" not in pod
    api.inspect_distribution(pod["containers"][0]["image"])
    runner.delete(handle)


@pytest.mark.engine("docker")
@pytest.mark.engine("registry")
def test_what_goes_wrong_is_named(engine: Any, base: str, api: Any, tmp_path: Path) -> None:
    """A base that is nowhere, and a registry that is not there: a failed submit that says which."""
    app = workspace_app(tmp_path / "code", f"{engine.registry}/nothing:1")
    with pytest.raises(SubmitError, match="nothing:1"):
        with_images(app, f"{engine.registry}/code", False)
    with pytest.raises(SubmitError, match=r"127\.0\.0\.1:9/code:\w+ cannot be pushed"):
        with_images(workspace_app(tmp_path / "code", base), "127.0.0.1:9/code", False)


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an engine nothing can be built, and the line says what else there is."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/S")
    with pytest.raises(SubmitError, match="cannot be reached.*workspace_url") as caught:
        with_images(workspace_app(tmp_path / "code", "a:1"), "registry.example/code", False)
    assert caught.value.transient


def test_a_dry_run_shows_the_place_of_the_hash(tmp_path: Path) -> None:
    """Nothing is asked of anybody; the role without a workspace keeps its image."""
    cfg = run_opts().resolve({"image_repo": "registry.example:5000/team/code"})
    text = format_request(convert(workspace_app(tmp_path / "code", "a:1"), cfg, "kubernetes", "x"))
    assert "image: registry.example:5000/team/code:<content hash>" in text and "image: a:1" in text
    assert "initContainers" not in text


@pytest.mark.parametrize("text", ["registry.example/a:1", "a@sha256:0", "/a", "registry.example:5000/a:b"])
def test_a_repository_has_no_tag(text: str) -> None:
    """The tag is the content's; two ways for one workspace are refused too."""
    app = AppDef("a", [Role("r", "i", entrypoint="e")])
    with pytest.raises(ConfigError, match="image_repo"):
        convert(app, run_opts().resolve({"image_repo": text}), "kubernetes", "x")
    with pytest.raises(ConfigError, match="only one"):
        both = {"image_repo": "registry.example:5000/a", "workspace_url": "s3://b/c"}
        convert(app, run_opts().resolve(both), "kubernetes", "x")
