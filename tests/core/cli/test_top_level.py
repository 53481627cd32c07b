"""The top level has help without imports, commands of plugins, exit codes, completion."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import click
import pytest

from transload.cli import ExitCode, main
from transload.cli.application import COMMANDS, SECTIONS
from transload.cli.exit_codes import exit_code_for, exit_code_of
from transload.errors import (
    AppExists,
    AppFailed,
    AppNotFound,
    ConfigError,
    PluginError,
    SchedulerUnavailable,
    SpecError,
    SubmitError,
    TransloadError,
    TransloadTimeout,
)
from transload.plugins import get_plugins, hookimpl, install_command
from transload.schedulers.local.scheduler import LocalScheduler
from transload.specs import AppState, AppStatus

NAMES = [name for section in SECTIONS.values() for name in section]


def _modules_after(code: str) -> set[str]:
    script = f"import sys; sys.argv = ['transload'];\n{code}\nprint(sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )
    modules: list[str] = ast.literal_eval(result.stdout.splitlines()[-1])
    return set(modules)


def test_help_imports_no_command() -> None:
    """``--help`` knows names and one-line helps by itself."""
    alone = "import transload.plugins.entry_points as points\npoints.third_party_installed = lambda: False\n"
    modules = _modules_after(alone + "from transload.cli import main\nassert main(['--help']) == 0")
    assert not [name for name in modules if name.startswith("transload.cli.commands.")]
    assert not modules & {
        "fsspec",
        "asyncio",
        "importlib.metadata",
        "pluggy",
        "transload.runner",
        "transload.schedulers.local",
    }


def test_importing_the_package_imports_no_click() -> None:
    """Click belongs to the command line alone, and to it only when it runs."""
    modules = _modules_after(
        "import transload.cli, transload.runner, transload.specs, transload.__main__"
    )
    assert "click" not in modules


def test_every_command_is_listed_and_helps(invoke: Any) -> None:
    """Each name of the top level has a command, and its help begins with the one line of the
    list.
    """
    listing = invoke("--help").out
    for name in NAMES:
        command = COMMANDS.get_command(click.Context(COMMANDS), name)
        assert command is not None
        assert name in listing
        for each in [[name], *([name, sub] for sub in getattr(command, "commands", {}))]:
            result = invoke(*each, "--help")
            assert result.code == 0, result.err
            assert f"Usage: transload {' '.join(each)} " in result.out
            assert "--json" in result.out or each[0] in (
                "completion",
                "exec",
                "put",
                "signal",
                "tracker",
            )


def test_help_fits_one_screen(invoke: Any) -> None:
    """The help fits 80 columns and 26 lines, and has the beginning of each command's own help."""
    lines = invoke("--help").out.splitlines()
    assert len(lines) <= 26 and max(map(len, lines)) <= 80
    for name in NAMES:
        command = COMMANDS.get_command(click.Context(COMMANDS), name)
        assert command is not None
        assert any(line.split(maxsplit=1)[1:] == [str(command.short_help)] for line in lines), name


def test_no_arguments(invoke: Any) -> None:
    """Without a command the help goes to stderr, with exit code 2."""
    result = invoke()
    assert (result.code, result.out) == (2, "")
    assert "Run jobs:" in result.err


def test_version(invoke: Any) -> None:
    """``--version`` says name and version."""
    assert invoke("--version").out == "transload 0.1.0\n"


def test_python_m() -> None:
    """``python -m transload`` is the command line."""
    result = subprocess.run(
        [sys.executable, "-m", "transload", "--version"], capture_output=True, text=True, timeout=30
    )
    assert (result.returncode, result.stdout) == (0, "transload 0.1.0\n")


# -- exit codes


def test_every_error_has_an_exit_code() -> None:
    """Mistakes, unreachable schedulers, failures and timeouts are told apart."""
    expected: dict[TransloadError, int] = {
        SpecError("x"): 2,
        ConfigError("x"): 2,
        AppNotFound("x"): 2,
        AppExists("x"): 2,
        PluginError("x"): 2,
        SubmitError("x"): 2,
        SubmitError("x", transient=True): 3,
        SchedulerUnavailable("x"): 3,
        TransloadTimeout("x"): 5,
        AppFailed(AppStatus(AppState.FAILED)): 1,
        AppFailed(AppStatus(AppState.CANCELLED)): 4,
    }
    for error, code in expected.items():
        assert exit_code_for(error) == code, error


def test_every_state_has_an_exit_code() -> None:
    """The table is total. A state that is not terminal means that waiting was given up."""
    codes = {state: int(exit_code_of(state)) for state in AppState}
    assert codes.pop(AppState.SUCCEEDED) == 0
    assert codes.pop(AppState.FAILED) == 1
    assert codes.pop(AppState.CANCELLED) == 4
    assert codes.pop(AppState.UNKNOWN) == 6
    assert set(codes.values()) == {5}
    assert exit_code_of(None) == 6


def test_internal_error(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours exits with 70, with a traceback to report."""
    monkeypatch.setattr("transload.cli.commands.installed.load_settings", lambda: 1 / 0)
    result = invoke("config")
    assert (result.code, result.out) == (70, "")
    assert "Traceback" in result.err
    assert "transload: error: internal error: ZeroDivisionError" in result.err.splitlines()[-1]


def test_debug_shows_tracebacks(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``TRANSLOAD_DEBUG=1`` shows where a mistake was found."""
    monkeypatch.setenv("TRANSLOAD_DEBUG", "1")
    assert "Traceback" in invoke("status", "nothing").err


# -- plugins


class Moody(LocalScheduler):
    """The local scheduler under another name, which cannot always be reached."""

    silent = True

    def describe(self, app_ids: Any) -> Any:
        """Not reachable while ``silent``."""
        if self.silent:
            raise SchedulerUnavailable("moody: no route to the cluster")
        return super().describe(app_ids)

    def list(self) -> Any:
        """Not reachable while ``silent``."""
        if self.silent:
            raise SchedulerUnavailable("moody: no route to the cluster")
        return super().list()


class Plugin:
    """A third party's plugin with a scheduler and two commands."""

    @hookimpl
    def transload_schedulers(self, register: Any) -> None:
        """Register ``moody``."""
        register("moody", lambda session, **_: Moody(session, "moody"))

    @hookimpl
    def transload_cli_commands(self, register: Any) -> None:
        """Register ``greet``, and one that cannot be imported."""
        register(
            "greet",
            click.Command("greet", callback=lambda: click.echo("hello"), help="Greet people."),
        )
        register("lost", "no_such_module:command")


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The plugin, as if it were installed."""
    monkeypatch.setattr("transload.plugins.entry_points.third_party_installed", lambda: True)
    get_plugins().register(Plugin(), "third-party")
    yield
    get_plugins().unregister("third-party")


def test_plugin_commands(invoke: Any, plugin: None) -> None:
    """Commands of plugins are listed and run. A broken one says so only where it is asked for."""
    listing = invoke("--help")
    assert listing.code == 0
    (line,) = [line for line in listing.lines if line.startswith("From plugins: ")]
    assert {"greet", "lost"} <= set(line.removeprefix("From plugins: ").split(", "))
    assert invoke("greet").out == "hello\n"
    lost = invoke("lost")
    assert lost.code == 2
    assert "no_such_module" in lost.err and lost.err.count("\n") == 1


def test_unreachable_scheduler(invoke: Any, plugin: None) -> None:
    """A scheduler that cannot be reached is 3, not a mistake and not a failed app."""
    for command in (
        ["list", "-s", "moody"],
        ["describe", "moody://transload/x"],
        ["log", "moody://transload/x"],
    ):
        result = invoke(*command)
        assert (result.code, result.out) == (3, "")
        assert result.err == "transload: error: moody: no route to the cluster\n"
    status = invoke("status", "moody://transload/x", "--json")
    assert (status.code, status.json["state"]) == (0, "UNKNOWN")


def test_unknown_for_too_long(invoke: Any, plugin: None) -> None:
    """Patience that runs out is 6, and says that the app may go on."""
    result = invoke("wait", "moody://transload/x", "--patience", "200ms")
    assert result.code == 6
    assert "UNKNOWN for too long" in result.err


def test_unknown_for_a_while(
    invoke: Any, plugin: None, component_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that is silent for a while costs nothing but time."""
    queries = count()

    def describe(self: Moody, app_ids: Any) -> Any:
        if next(queries) < 5:
            raise SchedulerUnavailable("moody: no route to the cluster")
        return LocalScheduler.describe(self, app_ids)

    monkeypatch.setattr(Moody, "describe", describe)
    monkeypatch.setattr(Moody, "silent", False)
    result = invoke("run", "-s", "moody", component_file)
    assert result.code == 0
    assert result.out == "train/0 hello\n"
    assert "UNKNOWN: moody: no route to the cluster" in result.err


def test_doctor_sees_what_is_broken(invoke: Any, plugin: None) -> None:
    """The doctor names what does not answer, once. Other schedulers than the default are just missing."""
    result = invoke("doctor", "--json")
    rows = {(row["area"], row["name"]): row for row in result.json["checks"]}
    assert rows["scheduler", "moody"]["status"] == "missing"
    assert rows["scheduler", "local: jobs"]["status"] == "ok"
    assert rows["scheduler", "local_cwd"]["detail"] == "the same as local"
    assert rows["python", "python"]["status"] == "ok"


def test_doctor_names_the_plugins(invoke: Any) -> None:
    """Those that are installed stand there with their version, and how to install the others."""
    rows = invoke("doctor", "--json").json["checks"]
    plugins = {row["name"]: row for row in rows if row["area"] == "plugin"}
    assert plugins["testing"]["status"] == "ok"
    assert plugins["testing"]["detail"].startswith("transload-testing 0.1.0")
    others = plugins["others"]["detail"]
    assert others.startswith("not installed: airflow, ")
    assert others.endswith(install_command("NAME"))


def test_doctor_fails_where_nothing_can_run(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A state folder that cannot be used is 3."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRANSLOAD_HOME", str(tmp_path / "file"))
    result = invoke("doctor")
    assert result.code == 3
    (kept,) = [line for line in result.lines if "\tlocal: jobs\t" in line]
    assert kept.startswith("broken") and str(tmp_path / "file") in kept
    assert "Errno" not in result.out, "an error of the system's own says nothing to a user"


# -- completion


Complete = Callable[..., list[str]]


@pytest.fixture
def complete(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Return what bash would offer for the last word, by ``complete("run", "--dr")``."""

    def offer(*words: str) -> list[str]:
        with monkeypatch.context() as patch:
            patch.setenv("_TRANSLOAD_COMPLETE", "bash_complete")
            patch.setenv("COMP_WORDS", " ".join(("transload", *words)))
            patch.setenv("COMP_CWORD", str(len(words)))
            return _offered(invoke().out)

    return offer


def _offered(shown: str) -> list[str]:
    return [item.partition(",")[2] for item in shown.splitlines()]


def test_completion_as_a_shell_asks_for_it() -> None:
    """The process that a shell starts answers it."""
    asked = {"_TRANSLOAD_COMPLETE": "bash_complete", "COMP_WORDS": "transload sta"}
    result = subprocess.run(
        [sys.executable, "-m", "transload"],
        env={**os.environ, **asked, "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert _offered(result.stdout) == ["status"]


def test_completion_of_names(started: Any, invoke: Any, complete: Complete) -> None:
    """Commands, options, schedulers, components and job ids are completed."""
    handle = started("print('x')")
    assert invoke("wait", handle).code == 0
    assert complete("sta") == ["status"]
    assert "--dry-run" in complete("run", "--dr")
    assert {"local", "local_cwd"} <= set(complete("run", "-s", "loc"))  # a plugin may add more
    assert complete("run", "utils.ec") == ["utils.echo"]
    assert complete("status", "job-") == [handle.rpartition("/")[2]]
    assert complete("components", "sh") == ["show"]
    assert complete("run", "utils.echo", "--m") == ["--msg"]
    assert complete("run", "utils.echo", "--dry") == [""]
    assert "local_cwd" in complete("info", "local_")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(invoke: Any, shell: str) -> None:
    """The script of each shell is printed."""
    result = invoke("completion", shell)
    assert result.code == 0
    assert "_TRANSLOAD_COMPLETE" in result.out


def test_main_returns_the_code() -> None:
    """``main`` returns, and does not end the process."""
    assert main(["--version"]) == ExitCode.OK
    assert main(["--no-such-option"]) == ExitCode.MISTAKE
