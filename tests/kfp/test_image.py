"""The image of a launcher: there must be one, and the Dockerfile makes it."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import search_jobs

from transload.errors import SpecError
from transload.specs import AppDef, Role
from transload_kfp import launcher_from_app, search_component, search_pipeline
from transload_search import Objective, Parameter, Search

ROOT = Path(__file__).parents[2]


def _app() -> AppDef:
    return AppDef("hello", [Role("main", "", entrypoint="sh", args=["-c", "echo hello from inside"])])


def test_no_image_is_refused_when_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual image holds no transload: a launcher in it would fail when the pipeline runs."""
    monkeypatch.delenv("TRANSLOAD_IMAGE")
    search = Search(search_jobs.parabola, [Parameter("x", "float", -2, 4)], Objective("loss"), trials=2)
    for make in (
        lambda: launcher_from_app(_app()),
        lambda: launcher_from_app(_app(), packages=["transload-kfp"]),  # of the Python form alone
        lambda: search_pipeline(search, "s3://bucket/searches"),
        lambda: search_component(search, "s3://bucket/searches"),
    ):
        with pytest.raises(SpecError, match="image: must be given .or TRANSLOAD_IMAGE be set.*Dockerfile"):
            make()
    packages = ["transload-kfp[search]"]
    assert launcher_from_app(_app(), form="python", packages=packages).name == "hello"
    assert search_pipeline(search, "s3://bucket/searches", packages=packages).name
    monkeypatch.setenv("TRANSLOAD_IMAGE", "launcher:2")
    made = launcher_from_app(_app())
    assert made.component_spec.implementation.container.image == "launcher:2"


def _wheel(name: str, folder: Path) -> None:
    """Pack a distribution as it is installed here, editable or not, into a wheel."""
    found = importlib.metadata.distribution(name)
    module = name.replace("-", "_")
    source = Path(__import__(module).__file__ or "").parent
    info = f"{module}-{found.version}.dist-info"
    files = {str(Path(module, path.relative_to(source))): path.read_bytes() for path in source.rglob("*.py")}
    files |= {f"{info}/{each}": (found.read_text(each) or "").encode() for each in ("METADATA", "entry_points.txt")}
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(content)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / f"{module}-{found.version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)


@pytest.mark.slow
@pytest.mark.engine("docker")
@pytest.mark.timeout(300)
def test_the_dockerfile_makes_an_image_that_launches(
    engine: Any, docker_kfp: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Built on an image with Python and libraries alone, with wheels of this project and no index, it runs an app."""
    import docker

    base = engine.python_image(
        "transload-test/base:1", packages=("pip", "fsspec", "pluggy", "click"), applets="sh mkdir rm echo mktemp"
    )
    context = tmp_path / "context"
    context.mkdir()
    shutil.copy(ROOT / "plugins" / "kfp" / "Dockerfile", context)
    for name in ("transload", "transload-kfp"):
        _wheel(name, context)
    client = docker.APIClient(base_url=engine.url, timeout=120)
    arguments = {"BASE": base, "PACKAGES": "transload transload-kfp", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1"}
    said = list(client.build(path=str(context), tag="transload-test/launcher:1", buildargs=arguments, decode=True))
    client.close()
    assert not [each for each in said if "error" in each], said
    made = launcher_from_app(_app(), scheduler="local", image="transload-test/launcher:1")
    made()
    assert "main/0 hello from inside" in capfd.readouterr().out
