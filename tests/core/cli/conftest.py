"""Run the command line in this process, and as the process that a person starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from transload.cli import main

PROGRAM = [sys.executable, "-m", "transload"]


@dataclass
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """The lines of stdout."""
        return self.out.splitlines()


Invoke = Callable[..., Result]


@pytest.fixture(autouse=True)
def _own_settings(
    plain_folder: str,
    transload_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """No settings of the developer, no colours forced, a state folder of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name in ("NO_COLOR", "FORCE_COLOR", "TRANSLOAD_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def invoke(capsys: pytest.CaptureFixture[str]) -> Invoke:
    """Run the command line in this process, by ``invoke("status", handle)``."""

    def run(*args: str) -> Result:
        capsys.readouterr()
        code = main(list(args))
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command line as a process by ``spawn("run", …)``, and kill what runs at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str, **settings: Any) -> subprocess.Popen[str]:
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
        # a session of its own: a Ctrl-C of the test goes to it alone
        process = subprocess.Popen([*PROGRAM, *args], start_new_session=True, **settings)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


_COMPONENTS = '''
    from __future__ import annotations

    import sys

    from transload.specs import AppDef, Role


    def job(code: str = "print('hello')", replicas: int = 1, retries: int = 0, role: str = "train") -> AppDef:
        """Run Python code.

        Args:
            code: what to run
            replicas: how many
            retries: how often a failure is answered
            role: name of the role
        """
        return AppDef(
            "job",
            [
                Role(
                    role,
                    "",
                    entrypoint=sys.executable,
                    args=["-u", "-c", code],
                    num_replicas=replicas,
                    max_retries=retries,
                )
            ],
        )


    def no_annotations(code) -> AppDef:
        """Be wrong."""
        return AppDef("x")
'''


@pytest.fixture
def component_file(plain_folder: str) -> str:
    """Write ``jobs.py`` here, with the component ``job``, and return ``jobs.py:job``."""
    Path("jobs.py").write_text(textwrap.dedent(_COMPONENTS))
    return "jobs.py:job"


@pytest.fixture
def started(invoke: Invoke, component_file: str) -> Callable[..., str]:
    """Submit a job of Python code by ``started(code, replicas=1)``, and return its handle."""

    def start(code: str, *args: str) -> str:
        result = invoke("run", "--detach", component_file, "--code", textwrap.dedent(code), *args)
        assert result.code == 0, result.err
        return result.out.strip()

    return start


@pytest.fixture
def gate(tmp_path: Path) -> tuple[str, Callable[[], None]]:
    """Return Python code that waits until ``open_gate`` is called, and that function."""
    path = tmp_path / "gate"
    os.mkfifo(path)

    def open_gate() -> None:
        with open(path, "w") as fifo:
            fifo.write("go")

    return f"open({str(path)!r}).read()", open_gate
