"""The two commands of the README, on machines that lack this or that."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
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
def lacking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Hide standard modules, as some distributions' Pythons do, and the program uv."""

    def hide(*names: str) -> None:
        found = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in names else found(name))
        monkeypatch.setattr(shutil, "which", lambda name: None)

    return hide


def test_old_python_is_refused_in_one_line(
    quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The version found and the version needed; no folder is made."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    with pytest.raises(SystemExit, match=r"Python 3\.11 or newer is needed"):
        quickstart.environment(tmp_path / "env")
    assert not (tmp_path / "env").exists()


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
    """Neither ensurepip nor pip: the package to install is named."""
    lacking("ensurepip", "pip")
    with pytest.raises(SystemExit, match="python3-venv"):
        quickstart.environment(tmp_path / "env", "nothing")


def test_python_without_ensurepip_uses_its_own_pip(tmp_path: Path) -> None:
    """With a pip of the system's, the environment is filled from outside, which PEP 668 does not forbid."""
    system = getattr(sys, "_base_executable", sys.executable)  # the one that this environment was made from
    program = """
import importlib.util, runpy, shutil, sys
from pathlib import Path
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "ensurepip" else found(name)
shutil.which = lambda name: None
print(*runpy.run_path(sys.argv[1])["_make"](Path(sys.argv[2])), sep="\\n")
"""
    if subprocess.run([system, "-c", "import pip"], capture_output=True, check=False).returncode:
        pytest.skip("this machine's Python has no pip")
    arguments = [str(ROOT / "quickstart.py"), str(tmp_path / "env")]
    said = subprocess.run([system, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=True)
    made = said.stdout.splitlines()
    assert made[1:5] == ["-m", "pip", "--python", str(tmp_path / "env" / "bin" / "python")]
    listing = [*made[: made.index("install")], "list"]
    answer = subprocess.run(listing, capture_output=True, text=True, timeout=60, check=True)
    assert "transload" not in answer.stdout


def test_uv_is_used_where_it_is(quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With uv on the PATH, it makes the environment and installs into it."""
    log, uv = tmp_path / "log", tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\necho $* >> {log}\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(uv.parent))
    made = quickstart._make(tmp_path / "env")
    assert made == [str(uv), "pip", "install", "--python", str(tmp_path / "env" / "bin" / "python")]
    assert log.read_text().startswith("venv")


def test_plugins_are_chosen_by_name(quickstart: ModuleType) -> None:
    """Each comes with those of this repository that it needs; what is not there is one line that says what is."""
    assert quickstart.wanted(["--with", "ax, report"]) == (["ax", "report"], "", [])
    assert quickstart.wanted(["--host=prefect", "--keep"]) == (["prefect"], "prefect", ["--keep"])
    assert quickstart.wanted(["--replicas", "2"]) == ([], "", ["--replicas", "2"])
    assert quickstart.distributions(["report", "airflow"]) == [
        "core",
        "plugins/search",
        "plugins/report",
        "plugins/airflow",
    ]
    with pytest.raises(SystemExit, match=r"there is no 'slrum'; there are: airflow, ax, docker.*slurm"):
        quickstart.wanted(["--with", "report,slrum"])
    with pytest.raises(SystemExit, match=r"there is no 'slurm'; there are: airflow, ax, kfp, prefect"):
        quickstart.wanted(["--host", "slurm"])
    with pytest.raises(SystemExit, match="nothing"):
        quickstart.wanted(["--with"])


def test_second_run_installs_nothing(quickstart: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same wishes find the environment ready; a changed file, or a failed attempt, asks for pip again."""
    wish, log, python = tmp_path / "wish", tmp_path / "log", tmp_path / "env" / "bin" / "python"
    wish.write_text("a")
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    pip = tmp_path / "pip"
    pip.write_text(f"#!/bin/sh\necho $* >> {log}\ntest ! -e {tmp_path}/broken\n")
    pip.chmod(0o755)
    monkeypatch.setattr(quickstart, "_make", lambda folder: [str(pip)])

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
    subprocess.run([git, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True, timeout=120)
    return folder


def _stranger(home: Path) -> dict[str, str]:
    """Return an environment in which no virtual environment is active."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return kept | {"TRANSLOAD_HOME": str(home)}


@pytest.mark.slow
def test_first_command_from_a_fresh_clone(clone: Path, transload_home: Path) -> None:
    """It installs, trains with three replicas, shows progress and ends SUCCEEDED with an accuracy above 0.9."""
    command = [sys.executable, "quickstart.py"]
    result = subprocess.run(
        command, cwd=clone, env=_stranger(transload_home), capture_output=True, text=True, timeout=600, check=False
    )
    said = result.stdout + result.stderr
    assert result.returncode == 0, said
    assert "SUCCEEDED" in said
    assert said.count("epoch ") >= 15
    accuracy = said[said.index("accuracy ", said.index("epoch  15/15")) :].split()[1]
    assert float(accuracy) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("plugin", sorted(path.parent.name for path in ROOT.glob("plugins/[!_]*/pyproject.toml")))
def test_each_plugin_installs_from_a_checkout(clone: Path, transload_home: Path, plugin: str) -> None:
    """One line, in a fresh clone: the plugin is there, and nothing about it is amiss."""
    installing = [sys.executable, "quickstart.py", "--with", plugin]
    environment = _stranger(transload_home)
    made = subprocess.run(
        installing, cwd=clone, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    asking = [str(clone / ".venv" / "bin" / "transload"), "info"]
    said = subprocess.run(asking, cwd=clone, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0 and f"transload-{plugin}" in said.stdout, said.stdout + said.stderr


@pytest.mark.slow
def test_plugins_install_by_plain_pip(clone: Path, transload_home: Path) -> None:
    """The lines of the README, by pip in an environment of one's own, and by `--with` several at once."""
    environment = _stranger(transload_home)
    lines = [line[2:].partition("#")[0].split() for line in (clone / "README.md").read_text().splitlines()]
    (named,) = [line for line in lines if line[1:3] == ["quickstart.py", "--with"]]
    (by_pip,) = [line for line in lines if line[:2] == ["pip", "install"]]
    own = clone / "own"
    for command in (
        [sys.executable, *named[1:]],
        [sys.executable, "-m", "venv", str(own)],
        [str(own / "bin" / "python"), "-m", *by_pip],
    ):
        made = subprocess.run(
            command, cwd=clone, env=environment, capture_output=True, text=True, timeout=800, check=False
        )
        assert made.returncode == 0, made.stdout + made.stderr
    for folder in (own, clone / ".venv"):
        asking = [str(folder / "bin" / "transload"), "info"]
        said = subprocess.run(
            asking, cwd=clone, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert said.returncode == 0 and {"transload-airflow", "transload-report"} <= set(said.stdout.split()), said


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
    """With a nox that only talks: the longest begin, the output of each stays together, one failure is all's."""
    nox = tmp_path / "nox"
    nox.write_text(SESSIONS)
    nox.chmod(0o755)
    done = _of_run_tests("run_tests.nox = lambda: './nox'; sys.exit(run_tests.all_sessions())", tmp_path)
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
    assert len([line for line in lines if line.startswith("RERUN ")]) == 8, "each is said in its place and at the end"


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
    """Of each session what an engine is here for now, and nothing else; none, and no nox is needed to say so."""
    left = tmp_path / "left-out"
    left.mkdir()
    (tmp_path / "engines.py").write_text("def missing(name): return None if name in ('slurm', 'sshd') else 'gone'")
    (tmp_path / "nox").write_text('#!/bin/sh\necho "$@"; cat left-out/*.tests\n')
    (tmp_path / "nox").chmod(0o755)
    code = "run_tests.ENGINES = ['', 'engines.py']; run_tests.nox = lambda: './nox'; sys.exit(run_tests.left_out())"
    wanting = {"tests/slurm/test_a.py::test_it[a b]": ["slurm"], "tests/slurm/test_a.py::test_ssh": ["slurm", "sshd"]}
    boxed = {"tests/slurm/test_a.py::test_box": ["slurm", "apptainer"]}
    (left / "slurm.json").write_text(json.dumps(wanting | boxed))
    (left / "docker.json").write_text(json.dumps({"tests/docker/test_a.py::test_it": ["docker"]}))
    (left / "core.json").write_text("{}")
    (left / "everywhere.json").write_text(json.dumps({"docker": ["docker"], "slurm": ["slurm"], "hpc": ["sshd"]}))
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
    done = _of_run_tests(code.replace("run_tests.nox = lambda: './nox'", "run_tests.nox = None"), tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("passed: "), done.stdout + done.stderr


RECORDER = """#!/bin/sh
echo "$* require=${TRANSLOAD_REQUIRE-none}" >> log
case "$*" in *--left-out) exit ${SECOND:-0} ;; *) exit ${FIRST:-0} ;; esac
"""


@pytest.mark.parametrize(("first", "second", "code"), [("0", "0", 0), ("0", "4", 4), ("3", "0", 3), ("3", "4", 3)])
def test_continuous_integration_runs_both(tmp_path: Path, first: str, second: str, code: int) -> None:
    """The README's command without a word about engines, then what is left with them; either failure is the run's."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "python").write_text(RECORDER)
    (tmp_path / "python").chmod(0o755)
    environment = os.environ | {"PYTHON": "./python", "FIRST": first, "SECOND": second, "TRANSLOAD_REQUIRE": "sshd"}
    done = subprocess.run([".ci/run", "-s", "core"], cwd=tmp_path, env=environment, timeout=60, check=False)
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
    """It makes its own tools, and knows each line of CONTRIBUTING.md; the last one is run, of one file.

    With `-l` sessions are chosen, and none is run: together they are what runs this test.
    """
    *choosing, again, slow = _lines(clone / "CONTRIBUTING.md", "python3 run_tests.py")
    one = again.replace(" -R", "").replace("tests/core/specs -x", "-q tests/core/house/test_imports.py")
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
