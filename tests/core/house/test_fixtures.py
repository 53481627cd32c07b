"""The fixtures that guard every other suite do so, as pytest shows on small suites."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
Suite = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Run pytest on a text, with this repository's conftest next to it, in a process of its own."""

    def run(
        text: str, *options: str, path: str | None = None, require: str = ""
    ) -> subprocess.CompletedProcess[str]:
        for name in ("conftest.py", "engines.py", "snippets.py"):
            shutil.copy(TESTS / name, tmp_path)
        (tmp_path / "test_it.py").write_text("import os, subprocess, sys, pytest\n" + text)
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nmarkers =\n    engine(name): x\n    leaves_processes: x\n"
        )
        env = os.environ | {
            "TRANSLOAD_REQUIRE": require,
            "PATH": path if path is not None else os.environ["PATH"],
        }
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take two seconds
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *options,
            str(tmp_path),
        ]
        return subprocess.run(
            command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )

    return run


LEAK = "subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session=True, stdout=subprocess.PIPE)"
SLEEP = "print(flush=True); import time; time.sleep(60)"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_left_process_fails_the_test_and_is_killed(suite: Suite) -> None:
    """A process that carries, names or uses the state folder is found, reported and ended."""
    ways = {
        "environment": ("", ""),
        "command line": (", str(transload_home)", "env={}, "),
        "open file": ("", "env={}, cwd='/', stderr=open(transload_home / 'log', 'w'), "),
    }
    starts = [
        f"    p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}{argument}], "
        f"{options}stdout=subprocess.PIPE)\n"
        f"    assert p.stdout.readline()\n"
        f"    pids.append(p.pid)\n"
        for argument, options in ways.values()
    ]
    result = suite(
        f"pids = []\n"
        f"def test_leak(transload_home):\n"
        f"{''.join(starts)}"
        f"def test_after():\n"
        f"    states = [open(f'/proc/{{pid}}/stat').read().split()[2] for pid in pids]\n"
        f"    assert states == ['Z'] * 3\n"
    )
    _, _, report = result.stdout.partition("processes left behind by this test")
    report, _, _ = report.partition("short test summary info")  # which repeats it
    assert len(re.findall(r"^\s+\d+: .*time.sleep", report, re.MULTILINE)) == 3, result.stdout
    assert "2 passed, 1 error" in result.stdout


def test_a_declared_process_is_only_cleaned_up(suite: Suite) -> None:
    """With the marker, nothing fails, and the process is gone all the same."""
    result = suite(
        f"@pytest.mark.leaves_processes\n"
        f"def test_leak(transload_home):\n"
        f"    p = {LEAK.format(code=SLEEP)}\n"
        f"    assert p.stdout.readline()\n"
        f"    test_leak.process = p\n"
        f"def test_after():\n"
        f"    assert test_leak.process.wait(timeout=10) != 0\n"
    )
    assert result.returncode == 0, result.stdout


def test_home_is_fresh_private_and_short(transload_home: Path) -> None:
    """The folder is empty, 0700, named by the environment, and leaves room for a socket's name."""
    assert os.environ["TRANSLOAD_HOME"] == str(transload_home)
    assert list(transload_home.iterdir()) == []
    assert transload_home.stat().st_mode & 0o777 == 0o700
    assert len(str(transload_home)) < 60


def test_eventually_returns_the_value_or_fails(suite: Suite) -> None:
    """The first truthy value comes back. A condition that never holds fails with its last value."""
    result = suite(
        "def test_value(eventually):\n"
        "    values = iter([0, '', 'x'])\n"
        "    assert eventually(lambda: next(values)) == 'x'\n"
        "def test_never(eventually):\n"
        "    eventually(lambda: [], timeout=0.05, message='the list')\n"
    )
    assert "1 failed, 1 passed" in result.stdout
    assert "the list: not true within 0.05 s; last value: []" in result.stdout


ENGINE_TEST = "@pytest.mark.engine('sshd')\ndef test_ssh():\n    pass\n"


def test_missing_engine_is_listed_at_the_end(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an engine is not here, its tests are skipped and the closing section says why."""
    result = suite(ENGINE_TEST.replace("sshd", "no-such-engine"))
    assert result.returncode == 0
    assert "not run: no-such-engine: unknown engine" in result.stdout
    assert "(1 tests)" in result.stdout


def test_required_engine_that_is_missing_fails(suite: Suite) -> None:
    """Where TRANSLOAD_REQUIRE names the engine, its absence is a failure."""
    probe = "import sys\nsys.modules['transload_test_engines']._SYSTEM_FOLDERS = ''\n"
    result = suite(probe + ENGINE_TEST, path="/nonexistent", require="sshd")
    assert result.returncode == 1, result.stdout
    assert "and TRANSLOAD_REQUIRE names it" in result.stdout


@pytest.mark.parametrize(
    "prefix", [(), ("setpriv", "--pdeathsig", "KILL"), ("sh", "-c", 'exec "$@"', "sh")]
)
def test_a_start_without_a_word_fails_at_once(
    suite: Suite, tmp_path: Path, prefix: tuple[str, ...]
) -> None:
    """A test that starts an engine's program without its fixture fails, also where it is here."""
    daemon = tmp_path / "munged"
    daemon.write_text("#!/bin/sh\n")
    daemon.chmod(0o755)
    start = f"subprocess.run({[*prefix, str(daemon)]!r}, check=True)"
    result = suite(
        f"sys.modules['transload_test_engines'].missing = lambda name: None\n"
        f"def test_forgets():\n    {start}\n"
        f"@pytest.fixture\ndef cluster(needs_slurm):\n    {start}\n"
        f"def test_takes_it(cluster):\n    pass\n"
        f"@pytest.mark.engine('slurm')\ndef test_is_marked():\n    {start}\n"
    )
    assert "1 failed, 2 passed" in result.stdout, result.stdout
    assert "test_forgets - Failed: a test started slurm without saying" in result.stdout
    assert "take the fixture needs_slurm" in result.stdout


def test_a_program_of_a_test_is_refused_too(suite: Suite) -> None:
    """The Slurm cluster, run as a program by a test that does not say so, starts nothing and says
    why.
    """
    program = str(TESTS / "slurm" / "cluster.py")
    result = suite(
        f"def test_it():\n"
        f"    said = subprocess.run([sys.executable, {program!r}, 'true'], text=True, stderr=-1)\n"
        f"    assert said.returncode == 1 and 'take the fixture needs_slurm' in said.stderr, said\n"
    )
    assert result.returncode == 0, result.stdout


def test_fixtures_mark_their_tests(suite: Suite) -> None:
    """All tests that use a fixture, also through others, need what it needs, as ``-m`` sees."""
    text = (
        "@pytest.fixture(scope='session')\ndef server(needs_sshd):\n    assert 0, 'it was "
        "started'\n"
        "@pytest.fixture\ndef client(server):\n    pass\n"
        "def test_far(client):\n    pass\n"
        "def test_near():\n    pass\n"
    )
    gone = "sys.modules['transload_test_engines'].missing = lambda name: 'gone'\n"
    result = suite(gone + text)
    assert (
        "1 passed, 1 skipped" in result.stdout and "not run: sshd: gone (1 tests)" in result.stdout
    ), result.stdout
    assert "1 passed, 1 deselected" in suite(gone + text, "-m", "not engine").stdout


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param((), id="one process"),
        pytest.param(("-p", "xdist", "-n", "2"), id="workers", marks=pytest.mark.slow),
    ],
)
def test_what_is_left_out_is_noted(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    """Each test that wanted a missing engine is noted with all such engines.

    Other runs note nothing.
    """
    monkeypatch.setenv("TESTS_LEFT_OUT", str(tmp_path / "noted.json"))
    result = suite(
        "sys.modules['transload_test_engines'].missing = lambda name: None if name == 'sshd' else "
        "'gone'\n"
        "def test_runs():\n    assert 'TESTS_LEFT_OUT' not in os.environ\n"
        "def test_near(needs_sshd):\n    pass\n"
        "def test_far(needs_sshd, needs_slurm, needs_docker):\n    pass\n"
        "def test_other():\n    pytest.skip('for another reason')\n",
        *workers,
    )
    assert "2 passed, 2 skipped" in result.stdout, result.stdout
    assert json.loads((tmp_path / "noted.json").read_text()) == {
        "test_it.py::test_far": ["slurm", "docker"]
    }
