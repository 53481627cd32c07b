"""A role's packages are installed by uv in its container, and kept in a volume."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker  # noqa: TID251 - the tests of the plugin may
import pytest

from transload.errors import SubmitError
from transload.runner import Job, Launch, Runner
from transload.schedulers.environments import uv_here
from transload.specs import AppDef, AppState, Role

VOLUMES = ("transload-uv", "transload-uv-cache")
PRINT = "import sys, tiny; print(tiny.VERSION)\n"
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

    def wheels(self) -> int:
        """Return how many wheels were fetched."""
        return len([path for path in self.ask() if path.endswith(".whl")])

    def close(self) -> None:
        """End it."""
        self.ask("answer")
        self._process.communicate()


@pytest.fixture(scope="module")
def image(private_engine: Any, python_image: str) -> str:
    """Name of an image with this Python, and the libraries that uv is linked to."""
    linked = subprocess.run(["ldd", uv_here()], capture_output=True, text=True, check=True).stdout
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
def volumes(engine: Any) -> Iterator[None]:
    """Remove the volumes of uv afterwards, when the jobs of the test are gone."""
    yield
    for name in VOLUMES:
        engine.client.remove_volume(name)


@pytest.fixture
def index(volumes: None, runner: Runner, engine: Any, tmp_path: Path) -> Iterator[Index]:
    """An index with the package ``tiny``."""
    served = Index(engine, tmp_path / "index")
    yield served
    served.close()


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a script that needs a package."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(HEADER)
    return folder


@pytest.fixture
def submit(index: Index, runner: Runner, image: str, scripts: Path) -> Callable[..., Job]:
    """``submit(*command, image=…, **cfg)`` → the job of ``python train.py`` or another command."""
    variables = {
        "UV_DEFAULT_INDEX": index.url,
        "UV_HTTP_TIMEOUT": "30",
        "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin",
    }

    def start(*command: str, image: str = image, **cfg: Any) -> Job:
        program, *args = command or ("python", "train.py")
        role = Role("main", image, entrypoint=program, args=args, env=variables)
        launch = Launch(
            app=AppDef("train", [role]),
            scheduler="docker",
            cfg={"network": "host", **cfg},
            environment="train.py",
            workspace=".",
        )
        return launch.plan(runner).submit()

    return start


def output_of(job: Job) -> list[str]:
    """Wait until a job has succeeded, and return its log, without what uv says of its installing."""
    status = job.wait(60)
    lines = [line.rstrip() for line in job.logs("main", 0)]
    assert status.state is AppState.SUCCEEDED, (status, lines)
    return [line for line in lines if not line.startswith("Installed ")]


def test_installed_once_and_used_by_the_next(
    submit: Callable[..., Job], index: Index, scripts: Path
) -> None:
    """A first job installs its packages, and the next one, with other code, fetches none."""
    assert output_of(submit()) == ["1.0"]
    fetched = index.wheels()
    (scripts / "train.py").write_text(f"{HEADER}print('more')\n")
    assert output_of(submit()) == ["1.0", "more"]
    assert index.wheels() == fetched


def test_another_user(submit: Callable[..., Job]) -> None:
    """A program of another user than root has its packages, too."""
    assert output_of(submit()) == ["1.0"]
    assert output_of(submit(user="1000:1000")) == ["1.0"]


def test_a_folder_in_place_of_an_image(
    index: Index, runner: Runner, image: str, scripts: Path
) -> None:
    """A folder is mounted into the image, and its script finds its packages."""
    variables = {"UV_DEFAULT_INDEX": index.url, "PATH": os.path.dirname(sys.executable)}
    role = Role("main", str(scripts), entrypoint="python", args=["train.py"], env=variables)
    cfg = {"network": "host", "image": image}
    job = Launch(app=AppDef("train", [role]), scheduler="docker", cfg=cfg).plan(runner).submit()
    assert output_of(job) == ["1.0"]


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("import sys; sys.exit(75)", 75),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
    ],
    ids=["code", "fault"],
)
def test_a_job_ends_as_its_program_does(
    submit: Callable[..., Job], scripts: Path, code: str, ends: int
) -> None:
    """Its exit code, or the signal that has ended it, is the replica's."""
    (scripts / "train.py").write_text(f"{HEADER}{code}\n")
    status = submit().wait(60)
    assert status.state is AppState.FAILED
    assert status.roles[0].replicas[0].exit_code == ends


def test_a_cancelled_job(submit: Callable[..., Job], scripts: Path) -> None:
    """The program gets the signal, and the job is CANCELLED."""
    (scripts / "train.py").write_text(f"{HEADER}import time; sys.stdout.flush(); time.sleep(200)\n")
    job = submit()
    assert next(job.logs("main", 0, regex="1.0")).rstrip() == "1.0"
    job.cancel()
    assert job.wait(60).state is AppState.CANCELLED


def test_an_image_in_which_uv_does_not_run(
    submit: Callable[..., Job], busybox: str, runner: Runner
) -> None:
    """It is refused by name before anything starts."""
    with pytest.raises(SubmitError, match=busybox):
        submit(image=busybox)
    assert runner.list("docker") == []
