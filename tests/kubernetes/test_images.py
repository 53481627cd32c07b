"""Push images with workspaces to a real registry by option ``image_repo``, without an engine."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, SubmitError
from transload.runner import Runner
from transload.specs import AppDef, Role, Workspace
from transload_kubernetes.convert import convert, format_request
from transload_kubernetes.options import KubernetesOptions
from transload_kubernetes.workspace import with_images

TESTER = "tester:$2y$05$abcdefghijklmnopqrstuukXI.FDsUVyLfLupaVLpyibfIDoS0jhe"
sys.path.insert(0, str(Path(__file__).parent))

from loopback_registry import Registry  # type: ignore[import-not-found]  # noqa: E402


def workspace_app(folder: Path, image: str) -> AppDef:
    """Return an app of two roles, one of which has a workspace."""
    folder.mkdir(exist_ok=True)
    (folder / "train.sh").write_text("echo trained\n")
    (folder / "train.sh").chmod(0o600)
    one = Role(
        "main",
        image,
        entrypoint="sh",
        args=["train.sh"],
        workspace=Workspace({str(folder): "code"}),
    )
    return AppDef("a", [one, Role("other", image, entrypoint="true")])


@pytest.fixture
def registry(needs_registry: None, tmp_path: Path, eventually: Any) -> Iterator[Any]:
    """A registry."""
    made = Registry(tmp_path)
    made.wait(eventually)
    yield made
    made.close()


def test_pushed_and_used_again(registry: Any, tmp_path: Path) -> None:
    """The workspace lies over the base, in its working directory, and is pushed once."""
    base = registry.image(folder="/srv")
    app = workspace_app(tmp_path / "code", base)
    repository = f"{registry.name}/team/code"
    prepared = with_images(app, repository)
    image = prepared.roles[0].image
    assert image.startswith(f"{repository}:") and prepared.roles[0].workspace is None
    assert prepared.roles[1].image == base and app.roles[0].workspace is not None
    config, layers = registry.found(image)
    assert layers == [{"there": b""}, {"srv/code/train.sh": b"echo trained\n"}]
    assert config["config"]["WorkingDir"] == "/srv" and len(config["rootfs"]["diff_ids"]) == 2
    before = registry.ask("team/code/tags/list").read()
    assert with_images(app, repository).roles[0].image == image
    assert registry.ask("team/code/tags/list").read() == before
    (tmp_path / "code" / "train.sh").write_text("echo changed\n")
    assert with_images(app, repository).roles[0].image != image


def test_an_image_for_several_machines(registry: Any, tmp_path: Path) -> None:
    """The image for the nodes' architecture is taken.

    A missing one is named, with those there are.
    """
    app = workspace_app(tmp_path / "code", registry.image(architectures=("arm64", "amd64")))
    for architecture in ("amd64", "arm64"):
        image = with_images(app, f"{registry.name}/code", "", architecture).roles[0].image
        assert registry.found(image)[0]["architecture"] == architecture
    with pytest.raises(SubmitError, match=r"base:1: has no riscv64 version, only amd64, arm64"):
        with_images(app, f"{registry.name}/code", "", "riscv64")


def test_a_submit_uses_the_image(registry: Any, fake: Any, runner: Runner, tmp_path: Path) -> None:
    """The Job names the pushed image, without an init container. A dry-run has pushed nothing."""
    folder = tmp_path / "code"
    app = workspace_app(folder, "")
    app.roles[0].args = ["${img_root}/train.sh"]
    app.roles[0].workspace, app.roles = None, app.roles[:1]
    cfg = {"image_repo": f"{registry.name}/mine", "image": registry.image()}
    shown = str(runner.dryrun(app, "kubernetes", cfg, workspace=str(folder)))
    assert f"{registry.name}/mine:<content hash>" in shown
    assert "mine" not in registry.ask("_catalog").read().decode()
    handle = runner.run(app, "kubernetes", cfg, workspace=str(folder))
    pod = fake.cluster.items("jobs")[0]["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"] == ["/workspace/train.sh"]
    assert (
        pod["containers"][0]["image"].startswith(f"{registry.name}/mine:")
        and "initContainers" not in pod
    )
    assert (
        registry.found(pod["containers"][0]["image"])[1][1]["workspace/train.sh"]
        == b"echo trained\n"
    )
    runner.delete(handle)


def test_a_registry_that_asks_who_one_is(
    needs_registry: None, tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry over TLS takes the login of ``docker login`` or of Docker's helper alone."""
    key, certificate, users = tmp_path / "key.pem", tmp_path / "cert.pem", tmp_path / "users"
    subject = ("-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.2")
    files = ("-keyout", str(key), "-out", str(certificate))
    made = [
        "openssl",
        "req",
        "-x509",
        "-nodes",
        "-newkey",
        "rsa:2048",
        "-days",
        "2",
        *subject,
        *files,
    ]
    subprocess.run(made, check=True, capture_output=True)
    users.write_text(TESTER)
    tls = f", tls: {{certificate: {certificate}, key: {key}}}"
    closed = Registry(
        tmp_path, f"auth: {{htpasswd: {{realm: here, path: {users}}}}}\n", tls, "127.0.0.2"
    )
    (tmp_path / "O").mkdir()
    open_to_all = Registry(tmp_path / "O")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        """#!/bin/sh\nread host; echo '{"Username": "tester", "Secret": "tester"}'\n"""
    )
    helper.chmod(0o755)
    try:
        closed.wait(eventually)
        open_to_all.wait(eventually)
        app = workspace_app(tmp_path / "code", open_to_all.image())
        with pytest.raises(SubmitError, match=rf"to {closed.name}/code: .*docker login"):
            with_images(app, f"{closed.name}/code")
        entry = {"auth": base64.b64encode(b"tester:tester").decode()}
        settings = (
            {"auths": {closed.name: entry}},
            {"credHelpers": {closed.name: "test"}},
            {"credsStore": "test"},
        )
        images = set()
        for noted in settings:
            (tmp_path / "config.json").write_text(json.dumps(noted))
            images.add(with_images(app, f"{closed.name}/code").roles[0].image)
        assert len(images) == 1
    finally:
        closed.close()
        open_to_all.close()


def test_what_goes_wrong_is_named(registry: Any, tmp_path: Path) -> None:
    """A missing base or registry is a failed submit that names it."""
    app = workspace_app(tmp_path / "code", f"{registry.name}/nothing:1")
    with pytest.raises(SubmitError, match="nothing:1.*404") as caught:
        with_images(app, f"{registry.name}/code")
    assert not caught.value.transient
    with pytest.raises(SubmitError, match=r"to 127\.0\.0\.1:9/code: .*refused") as caught:
        with_images(workspace_app(tmp_path / "code", registry.image()), "127.0.0.1:9/code")
    assert caught.value.transient


def test_a_client_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a client of registries nothing can be pushed, and the line says what to install."""
    monkeypatch.setitem(sys.modules, "dxf.exceptions", None)
    with pytest.raises(SubmitError, match="pip install python-dxf"):
        with_images(workspace_app(tmp_path / "code", "a:1"), "registry.example/code")


def test_a_dry_run_shows_the_place_of_the_hash(tmp_path: Path) -> None:
    """A dry-run asks no registry, and a role without a workspace keeps its image."""
    cfg = KubernetesOptions.read({"image_repo": "registry.example:5000/team/code"})
    text = format_request(convert(workspace_app(tmp_path / "code", "a:1"), cfg, "kubernetes", "x"))
    assert "image: registry.example:5000/team/code:<content hash>" in text and "image: a:1" in text
    assert "initContainers" not in text


@pytest.mark.parametrize(
    "text", ["registry.example/a:1", "a@sha256:0", "/a", "registry.example:5000/a:b"]
)
def test_a_repository_has_no_tag(text: str) -> None:
    """The tag is the content's, and two ways for one workspace are refused too."""
    app = AppDef("a", [Role("r", "i", entrypoint="e")])
    with pytest.raises(ConfigError, match="image_repo"):
        convert(app, KubernetesOptions.read({"image_repo": text}), "kubernetes", "x")
    with pytest.raises(ConfigError, match="only one"):
        both = {"image_repo": "registry.example:5000/a", "workspace_url": "s3://b/c"}
        convert(app, KubernetesOptions.read(both), "kubernetes", "x")
