"""A launcher needs an image, which the Dockerfile makes."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import search_jobs

from transload.errors import TransloadError
from transload.specs import AppDef, Role
from transload_kfp import launcher_from_app, pipeline_text, search_component, search_pipeline
from transload_search import Objective, Parameter, Search

ROOT = Path(__file__).parents[2]


def _app() -> AppDef:
    return AppDef(
        "hello", [Role("main", "", entrypoint="sh", args=["-c", "echo hello from inside"])]
    )


def test_no_image_is_refused_when_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public image, or that of the built-in components, is refused as a launcher's."""
    monkeypatch.setenv("TRANSLOAD_IMAGE", "of-the-jobs:1")
    search = Search(
        search_jobs.parabola, [Parameter("x", "float", -2, 4)], Objective("loss"), trials=2
    )
    refused: dict[str, Callable[[], Any]] = {
        "image: must be given: .*image='my/launcher:1'.*Dockerfile": lambda: launcher_from_app(
            _app()
        ),
        "image: must be given: .*the scheduler": lambda: search_pipeline(
            search, "s3://bucket/searches"
        ),
        "image: must be given: .*transload": lambda: search_component(
            search, "s3://bucket/searches"
        ),
        "image: must be given .transload-kfp is not in packages=.'pandas'": lambda: (
            launcher_from_app(_app(), packages=["pandas"])
        ),
        "image: must be given .transload-kfp is not in packages=.'transload'": lambda: (
            launcher_from_app(_app(), packages=["transload"])
        ),
        "image: must be given .transload-search is not in": lambda: search_pipeline(
            search, "s3://bucket/searches", packages=["transload-kfp"]
        ),
    }
    for message, make in refused.items():
        with pytest.raises(TransloadError, match=message):
            make()


@pytest.mark.parametrize(
    "packages",
    [
        ["transload_kfp[search]>=0.1"],
        ["numpy", "transload-kfp", "https://host/transload_search.whl"],
    ],
)
def test_packages_make_an_image(packages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that installs this adapter needs an image with Python only.

    A given image goes first.
    """
    monkeypatch.setenv("TRANSLOAD_IMAGE", "of-the-jobs:1")
    search = Search(
        search_jobs.parabola, [Parameter("x", "float", -2, 4)], Objective("loss"), trials=2
    )
    for image, wanted in {None: "python:3.11-slim", "mine:1": "mine:1"}.items():
        found: list[Any] = [
            launcher_from_app(_app(), packages=packages, image=image),
            search_component(search, "s3://bucket/searches", packages=packages, image=image),
        ]
        assert [each.component_spec.implementation.container.image for each in found] == [
            wanted,
            wanted,
        ]
        text = pipeline_text(
            search_pipeline(search, "s3://bucket/searches", packages=packages, image=image)
        )
        assert set(re.findall("image: (.*)", text)) == {wanted}


def _wheel(source: Path, folder: Path) -> None:
    """Pack a distribution of this repository as a wheel that requires those of this repository
    alone.
    """
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    module, version = project["name"].replace("-", "_"), project["version"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}"]
    for extra, needs in {
        "": project["dependencies"],
        **project.get("optional-dependencies", {}),
    }.items():
        lines += [f"Provides-Extra: {extra}"] if extra else []
        own = [each for each in needs if each.startswith("transload")]
        lines += [
            f"Requires-Dist: {each}" + (f" ; extra == {extra!r}" if extra else "") for each in own
        ]
    points = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    told = [
        line
        for group, names in points.items()
        for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))
    ]
    info = f"{module}-{version}.dist-info"
    files = {
        str(path.relative_to(source / "src")): path.read_bytes()
        for path in (source / "src").rglob("*.*")
    }
    files |= {
        f"{info}/METADATA": "\n".join(lines).encode(),
        f"{info}/entry_points.txt": "\n".join(told).encode(),
    }
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    rows = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(content)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheels_of_the_page(tmp_path: Path) -> None:
    """The page's line makes the wheels of all that the image has of this project."""
    page = (ROOT / "docs" / "orchestrators" / "kfp.md").read_text()
    (line,) = [line[2:] for line in page.splitlines() if line.startswith("$ pip wheel")]
    folders = [word.removeprefix("./") for word in line.split() if word.startswith("./")]
    for folder in folders:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    said = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    made = {path.name.partition("-")[0] for path in (tmp_path / "plugins" / "kfp").glob("*.whl")}
    dockerfile = (ROOT / "plugins" / "kfp" / "Dockerfile").read_text()
    wanted = re.findall(r"transload-\w+", dockerfile.partition('ARG PACKAGES="')[2].split('"')[0])
    assert made == {"transload", "transload_search", *(name.replace("-", "_") for name in wanted)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_dockerfile_makes_an_image_that_launches(
    engine: Any, docker_kfp: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The page's line, on an image with Python and libraries alone, with wheels of this project and
    no index.
    """
    base = engine.python_image(
        "transload-test/base:1",
        packages=("pip", "fsspec", "pluggy", "click"),
        applets="sh mkdir rm echo mktemp",
    )
    context = tmp_path / "plugins" / "kfp"
    context.mkdir(parents=True)
    shutil.copy(ROOT / "plugins" / "kfp" / "Dockerfile", context)
    for name in ("core", "plugins/kfp", "plugins/kubernetes", "plugins/search"):
        _wheel(ROOT / name, context)
    page = (ROOT / "docs" / "orchestrators" / "kfp.md").read_text()
    begin = "$ docker build -t my/launcher"
    (line,) = [line[2:] for line in page.splitlines() if line.startswith(begin)]
    command = [*shlex.split(line), "--build-arg", f"BASE={base}", "--build-arg", "PIP_NO_INDEX=1"]
    environment = {**os.environ, "DOCKER_HOST": engine.url, "DOCKER_BUILDKIT": "0"}
    said = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "transload-kubernetes" in said.stdout and "transload-search" in said.stdout
    made = launcher_from_app(_app(), scheduler="local", image=command[command.index("-t") + 1])
    made()
    assert "main/0 hello from inside" in capfd.readouterr().out
    _make_the_job_s_image(tmp_path / "own", environment)


def _make_the_job_s_image(folder: Path, environment: dict[str, str]) -> None:
    """Do what the page says in a reader's own folder, and run the program in the image."""
    page = (ROOT / "docs" / "orchestrators" / "kfp.md").read_text()
    program = page.partition("```python\n# train.py\n")[2].partition("```")[0]
    lines = page.partition("$ cat > Dockerfile <<'END'\n")[2].partition("```")[0]
    script = f"cat > Dockerfile <<'END'\n{lines.replace('$ docker', 'docker')}"
    run = "docker run --rm my/train:1 python3 train.py 0.5\n"
    folder.mkdir()
    (folder / "train.py").write_text(program, encoding="utf-8")
    said = subprocess.run(
        ["sh", "-e", "-c", script + run],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.endswith("weight 3.000\n")
