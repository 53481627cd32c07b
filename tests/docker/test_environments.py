"""A role's packages are installed once in its image, kept as an image, and later removed."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker  # noqa: TID251 - the tests of the plugin may
import pytest

from transload.cli import main
from transload.errors import SubmitError
from transload.runner import Job, Launch, Runner
from transload.specs import AppDef, Role
from transload_docker import convert, environments

REPOSITORY = "transload-environment"
PRINT = "import sys, tiny; print(tiny.VERSION, sys.prefix)\n"
HEADER = f'# /// script\n# dependencies = ["tiny"]\n# ///\n{PRINT}'
SERVE = """\
import json, sys
from pathlib import Path
from transload_testing.packages import package_index
with package_index(Path(sys.argv[1])) as index:
    index.add("tiny", "1.0")
    print(index.url, flush=True)
    for word in sys.stdin:
        if word == "hang\\n":
            index.answers.clear()
        if word == "answer\\n":
            index.answers.set()
        print(json.dumps(index.requests), flush=True)
"""
UV = "import os; print(os.environ['UV'])"


class Index:
    """An index on the loopback interface that the engine's containers see.

    Args:
        engine: the engine.
        folder: of the index.
    """

    def __init__(self, engine: Any, folder: Path) -> None:
        self._process = subprocess.Popen(
            engine.enter(sys.executable, "-c", SERVE, str(folder)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, word: str = "") -> list[str]:
        """Have the index ``hang`` or ``answer``, and return the paths that it was asked for."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        found: list[str] = json.loads(self._read())
        return found

    def times_resolved(self) -> int:
        """Return how often an installer asked which versions of ``tiny`` there are."""
        return self.ask().count("/simple/tiny/")

    def close(self) -> None:
        """End it."""
        self.ask("answer")
        self._process.communicate()


@pytest.fixture(scope="module")
def uv() -> str:
    """The folder of the program uv."""
    found = shutil.which("uv")
    if found is None:
        pytest.skip("no uv is on PATH")
    words = [found, "run", "--no-project", "--offline", "--python", sys.executable, "python"]
    done = subprocess.run([*words, "-c", UV], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image(private_engine: Any, python_image: str, uv: str) -> str:
    """Name of an image with this Python, and the libraries that uv is linked to."""
    linked = subprocess.run(["ldd", uv], capture_output=True, text=True, check=True).stdout
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in [word for word in linked.split() if word.startswith("/lib/")]:
            tar.add(os.path.realpath(path), path.lstrip("/"))
    client = docker.APIClient(base_url=private_engine.url)
    made = client.create_container_from_config({"Image": python_image, "Cmd": ["x"]})["Id"]
    client.put_archive(made, "/", buffer.getvalue())
    client.commit(made, repository="transload-test/installs", tag="1")
    client.remove_container(made)
    client.close()
    return "transload-test/installs:1"


@pytest.fixture
def index(engine: Any, tmp_path: Path) -> Iterator[Index]:
    """Make an index with the package ``tiny``, and remove the images of this test afterwards."""
    served = Index(engine, tmp_path / "index")
    yield served
    served.close()
    for name in images(engine):
        engine.client.remove_image(name, force=True)
    left = engine.client.images(filters={"dangling": True})
    for row in left:
        engine.client.remove_image(row["Id"], force=True)
    assert left == []


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a script that needs a package."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(HEADER)
    return folder


@pytest.fixture
def submit(runner: Runner, image: str, index: Index, scripts: Path) -> Callable[..., Job]:
    """``submit(environment=…, image=…, **cfg)`` → the job of ``python train.py``."""

    def start(environment: str | None = None, image: str = image, **cfg: Any) -> Job:
        return launch(image, index.url, environment, cfg).plan(runner).submit()

    return start


def launch(image: str, url: str, environment: str | None, cfg: dict[str, Any]) -> Launch:
    """Return what submits ``python train.py``."""
    variables = {"UV_DEFAULT_INDEX": url, "PIP_INDEX_URL": url, "UV_HTTP_TIMEOUT": "30"}
    variables["PATH"] = os.path.dirname(sys.executable)
    role = Role("main", image, entrypoint="python", args=["train.py"], env=variables)
    return Launch(
        app=AppDef("train", [role]),
        scheduler="docker",
        cfg={"network": "host", **cfg},
        environment=environment,
        workspace=".",
    )


def output_of(job: Job) -> list[str]:
    """Wait until a job has succeeded, and return its log."""
    status = job.wait(60)
    lines = [line.rstrip() for line in job.logs("main", 0)]
    assert status.state.name == "SUCCEEDED", (status, lines)
    return lines


def images(engine: Any) -> list[str]:
    """Return the names of the images that carry packages."""
    rows = engine.client.images(name=REPOSITORY)
    return [name for row in rows for name in row["RepoTags"] or ()]


def builders(engine: Any) -> list[str]:
    """Return the names of the containers in which packages are installed."""
    rows = engine.client.containers(all=True, filters={"name": REPOSITORY})
    return [row["Names"][0] for row in rows]


def test_made_once_and_used_by_the_next(
    submit: Callable[..., Job],
    engine: Any,
    index: Index,
    scripts: Path,
    image: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first job installs its packages in an image, and the next one fetches nothing.

    It is shown how the image is made. The script finds its package, as another user too, and so
    does other code. Nothing of the tools is in the image, which starts as the one below it.
    """
    caplog.set_level("INFO", "transload")
    first = output_of(submit())
    assert first[0].startswith("1.0 /opt/transload/")
    made = images(engine)
    assert "made in " in caplog.text and f"kept as image {made[0]}" in caplog.text
    assert len(made) == 1 and builders(engine) == []
    asked = index.ask()
    (scripts / "train.py").write_text(f"{HEADER}print('more')\n")
    assert output_of(submit(user="1000:1000")) == [*first, "more"]
    assert index.ask() == asked and images(engine) == made
    monkeypatch.setattr(convert, "IMAGE", image)
    assert output_of(submit(image=""))[0] == first[0], "a role without an image has the public one"
    assert images(engine) == made
    found = engine.client.inspect_image(made[0])["Config"]
    below = engine.client.inspect_image(image)["Config"]
    assert found["Env"] == below["Env"] and found["User"] == below["User"]
    assert found["Entrypoint"] == below["Entrypoint"]
    assert index.url not in json.dumps(engine.client.inspect_image(made[0]))
    changed = engine.client.create_container_from_config({"Image": made[0], "Cmd": ["x"]})["Id"]
    try:
        with pytest.raises(Exception, match="404"):
            engine.client.get_archive(changed, "/opt/transload-builder")
        with pytest.raises(Exception, match="404"):
            engine.client.get_archive(changed, "/root/.cache")
    finally:
        engine.client.remove_container(changed)


def test_an_image_with_its_own_settings(
    submit: Callable[..., Job], engine: Any, image: str
) -> None:
    """Entrypoint, command and user of the image below stay, though root installs by another."""
    made = engine.client.create_container_from_config({"Image": image, "Cmd": ["sh"]})["Id"]
    changes = ['ENTRYPOINT ["/own", "$HOME \\\\"]', 'CMD ["a b"]', "USER 1000:1000"]
    own = "transload-test/own:1"
    engine.client.commit(made, repository="transload-test/own", tag="1", changes=changes)
    engine.client.remove_container(made)
    try:
        job = submit(image=own)
        assert output_of(job)[0].startswith("1.0 ")
        job.delete()
        found = engine.client.inspect_image(images(engine)[0])["Config"]
        below = engine.client.inspect_image(own)["Config"]
        for key in ("Entrypoint", "Cmd", "User", "WorkingDir"):
            assert found[key] == below[key]
    finally:
        engine.client.remove_image(own, force=True)


def test_a_folder_in_place_of_an_image(
    runner: Runner, image: str, index: Index, scripts: Path
) -> None:
    """A folder is mounted over the image with the packages."""
    made = launch("", index.url, None, {"image": image})
    role = made.app.roles[0]  # type: ignore[union-attr]
    role.image = str(scripts)
    job = Launch(app=made.app, scheduler="docker", cfg=made.cfg).plan(runner).submit()
    assert output_of(job)[0].startswith("1.0 /opt/transload/")


def test_a_killed_maker_leaves_nothing(
    submit: Callable[..., Job],
    engine: Any,
    index: Index,
    image: str,
    eventually: Any,
) -> None:
    """A maker killed early leaves no container and nothing that is trusted.

    The next one makes it anew.
    """
    index.ask("hang")
    code = (
        "import sys\n"
        "from test_environments import launch, Runner\n"
        "with Runner('t') as runner:\n"
        "    launch(sys.argv[1], sys.argv[2], None, {}).plan(runner).submit()\n"
    )
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    maker = subprocess.Popen(
        [sys.executable, "-c", code, image, index.url], env={**os.environ, "PYTHONPATH": path}
    )
    eventually(lambda: index.times_resolved() >= 1)
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    eventually(lambda: builders(engine) == [])
    assert images(engine) == []
    index.ask("answer")
    assert output_of(submit())[0].startswith("1.0 ")
    assert len(images(engine)) == 1 and builders(engine) == []


@pytest.mark.parametrize(
    "moment",
    [pytest.param("before it is kept", marks=pytest.mark.slow), "before it has a name"],
)
def test_a_maker_killed_at_the_end(
    submit: Callable[..., Job],
    engine: Any,
    index: Index,
    image: str,
    eventually: Any,
    moment: str,
) -> None:
    """What a maker killed at the end kept without a name is not used, and is removed."""
    code = (
        "import os, signal, sys\n"
        "from test_environments import launch, Runner\n"
        "from transload_docker.engine import Engine\n"
        "commit = Engine.commit\n"
        "def commit_and_die(*args):\n"
        "    if sys.argv[3] == 'before it has a name':\n"
        "        commit(*args)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Engine.commit = commit_and_die\n"
        "with Runner('t') as runner:\n"
        "    launch(sys.argv[1], sys.argv[2], None, {}).plan(runner).submit()\n"
    )
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, image, index.url, moment],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    nameless = engine.client.images(filters={"dangling": True})
    assert len(nameless) == int(moment == "before it has a name")
    eventually(lambda: builders(engine) == [])
    assert images(engine) == []
    assert output_of(submit())[0].startswith("1.0 ")
    assert index.times_resolved() == 2 and len(images(engine)) == 1
    assert engine.client.images(filters={"dangling": True}) == []


def test_what_cannot_be_made(
    submit: Callable[..., Job],
    engine: Any,
    busybox: str,
    scripts: Path,
    runner: Runner,
) -> None:
    """A missing package and an image without Python are refused by name, with nothing left."""
    (scripts / "needs.txt").write_text("nowhere\n")
    with pytest.raises(SubmitError, match=r"needs\.txt.*cannot be (?s:.)*nowhere"):
        submit(environment="needs.txt")
    with pytest.raises(SubmitError, match=f"image '{busybox}' has no Python"):
        submit(image=busybox)
    assert images(engine) == [] and builders(engine) == []
    assert runner.list("docker") == []


def test_uv_that_does_not_run_there(
    submit: Callable[..., Job], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a uv that runs in the image Python's own tools are used, and say what they lack."""
    monkeypatch.setattr(environments, "_MACHINES", {})
    with pytest.raises(SubmitError, match="(?s)cannot be.*ensurepip"):
        submit()
    assert images(engine) == [] and builders(engine) == []


def test_listed_and_deleted(
    submit: Callable[..., Job],
    engine: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An image is listed with its size, and deleted by age once no job uses it or begins to."""
    job = submit()
    output_of(job)
    assert main(["list", "--environments", "-s", "docker", "--json"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert "train.py" in json.dumps(row)
    found = job.runner.scheduler("docker").environments()
    assert [each.path for each in found] == images(engine)
    assert found[0].in_use and found[0].size and found[0].name == "train.py"
    delete = job.runner.scheduler("docker").delete_environments
    monkeypatch.setattr(environments, "_IDLE_S", 0.0)
    assert list(delete()) == [] and len(images(engine)) == 1
    job.delete()
    assert list(delete(3600.0)) == []
    monkeypatch.undo()
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    assert list(delete()) == []  # somebody may be submitting
    monkeypatch.setattr(environments, "_IDLE_S", 0.0)
    assert [each.key for each in delete(dry_run=True)] == [found[0].key]
    assert len(images(engine)) == 1
    assert [each.key for each in delete()] == [found[0].key]
    assert images(engine) == []
