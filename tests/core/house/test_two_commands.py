"""The two commands of the README, on machines that lack this or that."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def quickstart() -> ModuleType:
    """The module `quickstart.py`, loaded by path."""
    spec = importlib.util.spec_from_file_location("transload_quickstart", ROOT / "quickstart.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lacking(quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Hide standard modules, as some distributions' Pythons do, and the program uv."""

    def hide(*names: str) -> None:
        found = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: None if name in names else found(name)
        )
        monkeypatch.setattr(shutil, "which", lambda name: None)

    return hide


def test_old_python_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version found, the version needed, and three ways to get it."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "quickstart.py"))
    said = str(caught.value)
    assert "needs Python 3.11 or newer" in said and "\n" not in said
    for way in ("module load python", "uv run --no-project --python 3.12", "conda create"):
        assert way in said


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9", "3.10"])
@pytest.mark.parametrize("file", ["quickstart.py", "run_tests.py"])
def test_old_pythons_read_as_far_as_that_line(tmp_path: Path, version: str, file: str) -> None:
    """A real Python of that version, where there is one, says it too, and makes no folder."""
    text = (ROOT / file).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, int(version[2:])))
    assert "from __future__" not in text, "annotations are from 3.7 on"
    for name in ("quickstart.py", "run_tests.py"):
        shutil.copy(ROOT / name, tmp_path)
    for python in _pythons(version):
        command = [python, "-B", file, "--with", "slurm"]
        said = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert said.returncode == 1 and not said.stdout
        assert (
            said.stderr.startswith(f"{file} needs Python 3.11 or newer, and ")
            and said.stderr.count("\n") == 1
        )
    assert {path.name for path in tmp_path.iterdir()} <= {"quickstart.py", "run_tests.py"}


def _pythons(version: str) -> list[str]:
    """Return the real Pythons of a version that this machine has."""
    own = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    found = filter(None, [shutil.which(f"python{version}"), *map(str, own)])
    return [python for python in found if _says_version(python, version)]


def _says_version(python: str, version: str) -> bool:
    """Tell whether a Python runs, since a link of pyenv may lead to none."""
    done = subprocess.run([python, "--version"], capture_output=True, text=True, timeout=60)
    return done.stdout.startswith(f"Python {version}.")


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_pip_of_an_old_python_names_the_one_that_is_needed(tmp_path: Path, version: str) -> None:
    """What is installed by a wheel is refused in one line, with the version here and the one needed."""
    metadata = importlib.metadata.distribution("transload").read_text("METADATA")
    assert metadata is not None and "\nRequires-Python: >=3.11\n" in metadata
    name = f"transload-{importlib.metadata.version('transload')}"
    wheel = tmp_path / f"{name}-py3-none-any.whl"
    inside = f"{name}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{inside}/METADATA", metadata)
        archive.writestr(f"{inside}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        archive.writestr(f"{inside}/RECORD", "")
    target = tmp_path / "target"
    options = ["--no-index", "--no-deps", "--disable-pip-version-check", "--target", str(target)]
    for python in _pythons(version):
        pip = [python, "-B", "-m", "pip"]
        if subprocess.run([*pip, "--version"], capture_output=True, timeout=60).returncode:
            continue  # a system's own Python may have none
        command = [*pip, "install", *options, str(wheel)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode != 0 and not target.exists()
        last = done.stderr.strip().splitlines()[-1]
        assert ">=3.11" in last and f"{version}." in last, done.stderr


def test_windows_is_refused_in_one_line(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """WSL is named as the way."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="use WSL"):
        quickstart.environment(tmp_path / "env")


def test_python_without_pip_says_what_to_install(
    quickstart: ModuleType, lacking: Callable[..., None], tmp_path: Path
) -> None:
    """Where ensurepip and pip are missing, the package to install is named."""
    lacking("ensurepip", "pip")
    with pytest.raises(SystemExit, match="python3-venv"):
        quickstart.environment(tmp_path / "env", "nothing")


UV_AND_PIP = """
import importlib.util, runpy, shutil, sys
from pathlib import Path
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "ensurepip" else found(name)
shutil.which = lambda name: None
names = runpy.run_path(sys.argv[1])
names["_make"].__globals__["_fetch_uv"] = lambda by_pip, folder: sys.argv[3] or None
print(*[" ".join(way) for way in names["_make"](Path(sys.argv[2]))], sep="\\n")
"""


@pytest.mark.slow
def test_python_without_ensurepip_uses_its_own_pip(tmp_path: Path) -> None:
    """With a pip of the system's, the environment is filled from outside, which PEP 668 does not
    forbid.
    """
    system = getattr(
        sys, "_base_executable", sys.executable
    )  # the one that this environment was made from
    if subprocess.run([system, "-c", "import pip"], capture_output=True, check=False).returncode:
        pytest.skip("this machine's Python has no pip")

    def ways(uv: str) -> list[str]:
        command = [system, "-c", UV_AND_PIP, str(ROOT / "quickstart.py"), str(tmp_path / "env"), uv]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return said.stdout.splitlines()

    python = tmp_path / "env" / "bin" / "python"
    (by_pip,) = ways("")
    assert f"-m pip --python {python} install" in by_pip
    listing = [*by_pip[: by_pip.index(" install")].split(), "list"]
    answer = subprocess.run(listing, capture_output=True, text=True, timeout=60, check=True)
    assert "transload" not in answer.stdout
    assert ways("/the/uv") == [f"/the/uv pip install --python {python}", by_pip], (
        "pip is what is left if uv fails"
    )


def test_uv_is_used_where_it_is(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With uv on the PATH, it makes the environment and installs into it, from where pip would take
    things.
    """
    log, uv = tmp_path / "log", tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\necho $* $UV_DEFAULT_INDEX $UV_FIND_LINKS >> {log}\n")
    uv.chmod(0o755)
    for name in ("UV_DEFAULT_INDEX", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, "")  # so that it is as before afterwards
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/a /b")
    monkeypatch.setenv("PATH", str(uv.parent))
    quickstart._lead_uv(quickstart._settings_of_pip())
    made = quickstart._make(tmp_path / "env")
    assert made == [
        [str(uv), "pip", "install", "--python", str(tmp_path / "env" / "bin" / "python")]
    ]
    probe, making = log.read_text().splitlines()
    assert probe.startswith("--version")
    assert making.startswith("venv") and making.endswith(" https://mirror.example/simple /a,/b")


def test_a_uv_that_does_not_run_is_none(
    quickstart: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A uv that does not run makes pip ask for another one. What fails falls back on pip."""
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\nexit 127\n")
    uv.chmod(0o755)
    asked = []
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(quickstart, "_pip_for", lambda python: ["true"])
    monkeypatch.setattr(
        quickstart, "_fetch_uv", lambda by_pip, folder: asked.append(folder) or str(uv)
    )
    programs = quickstart.environment(tmp_path / "env", "--editable", "./core", "nox>=1")
    assert asked == [tmp_path / "env" / ".uv"] and programs == tmp_path / "env" / "bin"
    said = capfd.readouterr().err
    assert (
        "installing ./core, nox>=1 into env, with uv ..." in said
        and "with pip" not in said.partition("uv ...")[0]
    )
    assert said.count("installing ") == 2


def test_a_folder_of_something_else_is_left_alone(quickstart: ModuleType, tmp_path: Path) -> None:
    """A folder that holds files and is no environment is refused, and not cleared."""
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(SystemExit, match="not empty, and no virtual environment"):
        quickstart.environment(tmp_path, "nothing")
    assert (tmp_path / "mine").read_text() == "precious"


def test_plugins_are_chosen_by_name(
    quickstart: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each plugin comes with those that it needs.

    A missing one is a line that says what there is.
    """

    def chosen(*argv: str) -> tuple[list[str], str, list[str]]:
        given = quickstart.wanted(list(argv))
        return given.plugins, given.host, given.rest

    assert chosen("--with", "ax, report") == (["ax", "report"], "", [])
    assert chosen("--with=ax", "--with", "report") == (["ax", "report"], "", [])
    assert chosen("--host=prefect", "--keep") == (["prefect"], "prefect", [])
    assert chosen("--replicas", "2", "--", "--help") == ([], "", ["--replicas", "2", "--help"])
    assert quickstart.wanted([]).venv == ROOT / ".venv"
    assert quickstart.wanted(["--with", "ax", "--venv", "there"]).venv == Path.cwd() / "there"
    assert quickstart.distributions(["report", "airflow"]) == [
        "core",
        "plugins/search",
        "plugins/report",
        "plugins/airflow",
    ]
    for argv, message in (
        (["--with", "report,slrum"], "there is no 'slrum'; there are: airflow, ax, docker"),
        (["--host", "slurm"], "there is no 'slurm'; there are: airflow, ax, kfp, prefect"),
        (["--with", ""], "(nothing)"),
        (["--with", "ax", "--host", "kfp"], "only one of them"),
        (["--with", "ax", "--replicas", "2"], "--replicas 2: the example's arguments"),
        (["--keep"], "--keep is for --host"),
    ):
        with pytest.raises(SystemExit) as caught:
            quickstart.wanted(argv)
        assert caught.value.code == 2 and message in capsys.readouterr().err


def test_help_installs_nothing(tmp_path: Path) -> None:
    """It is this program's own, with all its options, and no folder is made for it."""
    shutil.copy(ROOT / "quickstart.py", tmp_path)
    command = [sys.executable, "-B", "quickstart.py", "--help"]
    said = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert said.returncode == 0, said.stderr
    assert [
        option for option in ("--with", "--host", "--keep", "--venv") if option not in said.stdout
    ] == []
    assert [path.name for path in tmp_path.iterdir()] == ["quickstart.py"]


def _ready(folder: Path, venv: str, text: str) -> list[str]:
    """Make a repository whose environment is ready.

    Return the command that runs its example, which is `text`.
    """
    (folder / "plugins").mkdir()
    (folder / "examples" / "digits").mkdir(parents=True)
    for name in ("core/pyproject.toml", "examples/digits/requirements.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    shutil.copy(ROOT / "quickstart.py", folder)
    python = folder / venv / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (folder / venv / "pyvenv.cfg").touch()
    for name, body in (("uv", "exit 0"), ("transload", text)):
        (python.parent / name).write_text(f"#!/bin/sh\n{body}\n")
        (python.parent / name).chmod(0o755)
    return [sys.executable, "-B", "quickstart.py", "--venv", venv]


def test_the_end_says_how_to_go_on(tmp_path: Path) -> None:
    """The example's exit code is passed on, after the lines that activate the environment, which
    may lie elsewhere.
    """
    command = _ready(tmp_path, "my env", 'echo "$@"; exit 3')
    environment = os.environ | {"PATH": f"{tmp_path}/my env/bin:{os.environ['PATH']}"}
    given = {
        "cwd": tmp_path,
        "env": environment,
        "capture_output": True,
        "text": True,
        "timeout": 60,
        "check": False,
    }
    said = subprocess.run([*command, "--epochs", "1"], **given)
    assert said.returncode == 3, said.stderr
    assert "run examples/digits/component.py --epochs 1" in said.stdout
    assert said.stdout.endswith("\n  . 'my env/bin/activate'\n  transload --help\n")
    said = subprocess.run([*command, "--with", "none"], **given)
    assert said.returncode == 2 and "there is no 'none'" in said.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_ends_it_ends_the_example(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM is passed on. Ctrl-C, which a terminal sends to both, is left to the example."""
    body = "trap 'echo cancelled; exit 7' INT TERM; echo up; while :; do sleep 0.1; done"
    command = _ready(tmp_path, "env", body)
    environment = os.environ | {"PATH": f"{tmp_path}/env/bin:{os.environ['PATH']}"}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        while running.stdout.readline() != "up\n":
            assert running.poll() is None
        if number == signal.SIGINT:
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        said, _ = running.communicate(timeout=30)
        assert running.returncode == 7 and said.startswith("cancelled\n") and "bin/activate" in said


def test_second_run_installs_nothing(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same wishes find the environment ready.

    A changed file or a failed attempt asks pip again.
    """
    wish, log, python = tmp_path / "wish", tmp_path / "log", tmp_path / "env" / "bin" / "python"
    wish.write_text("a")
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    pip = tmp_path / "pip"
    pip.write_text(f"#!/bin/sh\necho $* >> {log}\ntest ! -e {tmp_path}/broken\n")
    pip.chmod(0o755)
    monkeypatch.setattr(quickstart, "_make", lambda folder: [[str(pip)]])

    def environment() -> None:
        quickstart.environment(tmp_path / "env", "wanted", changes_with=(wish,))

    environment()
    environment()
    assert log.read_text().count("wanted") == 1
    wish.write_text("b")
    (tmp_path / "broken").touch()
    with pytest.raises(SystemExit, match="could not install"):
        environment()
    (tmp_path / "broken").unlink()
    environment()
    assert log.read_text().count("wanted") == 3


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh clone of this repository, as a stranger would have it."""
    folder = tmp_path / "clone"
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not run: git: this is no checkout")
    subprocess.run(
        [git, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True, timeout=120
    )
    return folder


def _stranger(home: Path) -> dict[str, str]:
    """Return an environment in which no virtual environment is active."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "PYTHONPATH")
    }
    return kept | {"TRANSLOAD_HOME": str(home)}


@pytest.mark.slow
def test_first_command_from_a_fresh_clone(clone: Path, transload_home: Path) -> None:
    """It installs, trains with three replicas, shows progress and ends SUCCEEDED with an accuracy
    above 0.9.
    """
    command = [sys.executable, "quickstart.py"]
    result = subprocess.run(
        command,
        cwd=clone,
        env=_stranger(transload_home),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = result.stdout + result.stderr
    assert result.returncode == 0, said
    assert "SUCCEEDED" in said
    assert said.count("epoch ") >= 15
    accuracy = said[said.index("accuracy ", said.index("epoch  15/15")) :].split()[1]
    assert float(accuracy) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "plugin", sorted(path.parent.name for path in ROOT.glob("plugins/[!_]*/pyproject.toml"))
)
def test_each_plugin_installs_from_a_checkout(
    clone: Path, transload_home: Path, plugin: str
) -> None:
    """Each plugin is installed by one line in a fresh clone, and is in order."""
    installing = [sys.executable, "quickstart.py", "--with", plugin]
    environment = _stranger(transload_home)
    made = subprocess.run(
        installing,
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    asking = [str(clone / ".venv" / "bin" / "transload"), "info"]
    said = subprocess.run(
        asking, cwd=clone, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert said.returncode == 0 and f"transload-{plugin}" in said.stdout, said.stdout + said.stderr


@pytest.mark.slow
def test_plugins_install_by_plain_pip(clone: Path, transload_home: Path) -> None:
    """The lines of docs/start/install.md work by pip in an environment of one's own.

    `--with` installs several plugins at once.
    """
    environment = _stranger(transload_home)
    lines = [
        line[2:].partition("#")[0].split()
        for line in (clone / "docs" / "start" / "install.md").read_text().splitlines()
    ]
    (named,) = [line for line in lines if line[1:3] == ["quickstart.py", "--with"]]
    (by_pip,) = [line for line in lines if line[:2] == ["pip", "install"]]
    own = clone / "own"
    for command in (
        [sys.executable, *named[1:]],
        [sys.executable, "-m", "venv", str(own)],
        [str(own / "bin" / "python"), "-m", *by_pip],
    ):
        made = subprocess.run(
            command,
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
    for folder in (own, clone / ".venv"):
        asking = [str(folder / "bin" / "transload"), "info"]
        said = subprocess.run(
            asking,
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert said.returncode == 0 and {"transload-airflow", "transload-report"} <= set(
            said.stdout.split()
        ), said


SESSIONS = """#!/bin/sh
case "$1" in
--list) echo '[{"session": "everywhere"}, {"session": "search"}, {"session": "core"}, {"session": "prefect"}]' ;;
*) touch begun.$2; n=0
   # the two longest begin together, and while one goes on the other's lane is free; or neither ends well
   case $2 in core) other=ended.search ;; prefect) other=begun.core ;; *) other=begun.$2 ;; esac
   while ! test -e $other; do n=$((n + 1)); test $n -lt 300 || exit 9; sleep 0.1; done
   # it uses their environments
   case $2 in everywhere) test -e ended.core && test -e ended.prefect || exit 8 ;; esac
   echo "first of $2"; echo "RERUN tests/$2::test_it"; echo "last of $2"
   touch ended.$2; test $2 != search ;;
esac
"""


def test_sessions_run_two_at_a_time(tmp_path: Path) -> None:
    """The longest sessions begin, each one's output stays together, and one failure is all's."""
    nox = tmp_path / "nox"
    nox.write_text(SESSIONS)
    nox.chmod(0o755)
    done = _of_run_tests(
        "run_tests.nox = lambda: './nox'; sys.exit(run_tests.all_sessions())", tmp_path
    )
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    begun = [line.partition(" ")[0] for line in lines if line.endswith(" ...")]
    assert sorted(begun[:2]) == ["core", "prefect"] and begun[2:] == ["search", "everywhere"]
    for name in begun:
        first = lines.index(f"first of {name}")
        assert lines[first + 1 : first + 3] == [f"RERUN tests/{name}::test_it", f"last of {name}"]
    *rows, together = done.stdout.rpartition("\n\n")[2].partition("RERUN")[0].splitlines()
    assert sorted(row.split()[0] + row.split()[3] for row in rows) == [
        "failedsearch",
        *(f"passed{name}" for name in ("core", "everywhere", "prefect")),
    ]
    assert together.startswith("together ")
    assert len([line for line in lines if line.startswith("RERUN ")]) == 8, (
        "each is said in its place and at the end"
    )


def _of_run_tests(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python that uses the functions of `run_tests.py`, with this folder as the repository."""
    begin = "import pathlib, sys, run_tests; run_tests.ROOT = pathlib.Path.cwd(); "
    begin += "run_tests.LEFT_OUT = run_tests.ROOT / 'left-out'; "
    return subprocess.run(
        [sys.executable, "-B", "-c", begin + code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_what_was_left_out_runs_later(tmp_path: Path) -> None:
    """Of each session that runs for which an engine is here now, without nox if there is none."""
    left = tmp_path / "left-out"
    left.mkdir()
    (tmp_path / "engines.py").write_text(
        "def missing(name): return None if name in ('slurm', 'sshd') else 'gone'"
    )
    (tmp_path / "nox").write_text('#!/bin/sh\necho "$@"; cat left-out/*.tests\n')
    (tmp_path / "nox").chmod(0o755)
    code = "run_tests.ENGINES = ['', 'engines.py']; run_tests.nox = lambda: './nox'; sys.exit(run_tests.left_out())"
    wanting = {
        "tests/slurm/test_a.py::test_it[a b]": ["slurm"],
        "tests/slurm/test_a.py::test_ssh": ["slurm", "sshd"],
    }
    boxed = {"tests/slurm/test_a.py::test_box": ["slurm", "apptainer"]}
    (left / "slurm.json").write_text(json.dumps(wanting | boxed))
    (left / "docker.json").write_text(json.dumps({"tests/docker/test_a.py::test_it": ["docker"]}))
    (left / "core.json").write_text("{}")
    (left / "everywhere.json").write_text(
        json.dumps({"docker": ["docker"], "slurm": ["slurm"], "hpc": ["sshd"]})
    )
    done = _of_run_tests(code, tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert [line for line in said if line.startswith("-s")] == [
        "-s slurm -- @left-out/slurm.tests",
        "-s everywhere -- --engines=slurm,hpc",
    ]
    assert (left / "slurm.tests").read_text().splitlines() == list(wanting)
    for name in ("slurm", "everywhere"):
        (left / f"{name}.json").unlink()
    done = _of_run_tests(
        code.replace("run_tests.nox = lambda: './nox'", "run_tests.nox = None"), tmp_path
    )
    assert done.returncode == 0 and done.stdout.startswith("passed: "), done.stdout + done.stderr


RECORDER = """#!/bin/sh
echo "$* require=${TRANSLOAD_REQUIRE-none}" >> log
case "$*" in *--left-out) exit ${SECOND:-0} ;; *) exit ${FIRST:-0} ;; esac
"""


@pytest.mark.parametrize(
    ("first", "second", "code"), [("0", "0", 0), ("0", "4", 4), ("3", "0", 3), ("3", "4", 3)]
)
def test_continuous_integration_runs_both(
    tmp_path: Path, first: str, second: str, code: int
) -> None:
    """The README's command runs, then what is left with engines. Either failure is the run's."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "python").write_text(RECORDER)
    (tmp_path / "python").chmod(0o755)
    environment = os.environ | {
        "PYTHON": "./python",
        "FIRST": first,
        "SECOND": second,
        "TRANSLOAD_REQUIRE": "sshd",
    }
    done = subprocess.run(
        [".ci/run", "-s", "core"], cwd=tmp_path, env=environment, timeout=60, check=False
    )
    assert done.returncode == code
    assert (tmp_path / "log").read_text().splitlines() == [
        "run_tests.py -s core require=none",
        "run_tests.py --left-out require=sshd",
    ]


def _lines(page: Path, begin: str) -> list[str]:
    """Return the commands of a page that begin so, without what is said of them."""
    found = [line[2:].partition("  #")[0].rstrip() for line in page.read_text().splitlines()]
    return [line for line in found if line.startswith(begin)]


@pytest.mark.slow
def test_second_command_from_a_fresh_clone(clone: Path, transload_home: Path) -> None:
    """The command makes its own tools, and knows each line of CONTRIBUTING.md.

    The last line is run, for one file.

    With `-l` sessions are chosen, and none is run: together they are what runs this test.
    """
    *choosing, again, slow = _lines(clone / "CONTRIBUTING.md", "python3 run_tests.py")
    one = again.replace(" -R", "").replace(
        "tests/core/specs -x", "-q tests/core/house/test_imports.py"
    )
    for line in (*(f"{each} -l" for each in (*choosing, slow)), one):
        result = subprocess.run(
            [sys.executable, *line.split()[1:]],
            cwd=clone,
            env=_stranger(transload_home),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert result.returncode == 0, f"{line}:\n{result.stdout}{result.stderr}"
    assert " passed" in result.stdout


@pytest.mark.slow
def test_environment_for_daily_work(clone: Path, transload_home: Path) -> None:
    """The lines of CONTRIBUTING.md, the tests with one file of those that it names."""
    making, testing = _lines(clone / "CONTRIBUTING.md", "python3 -m venv") + _lines(
        clone / "CONTRIBUTING.md", ".venv/bin/pytest"
    )
    script = f"set -e; {making}; {testing}/test_names.py -q"
    said = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env=_stranger(transload_home),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert said.returncode == 0 and " passed" in said.stdout, said.stdout + said.stderr
