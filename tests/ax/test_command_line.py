"""``transload ax``: searches from the command line, kept by name; and what importing costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError
from transload.pipelines import host_runner

SEARCH = ["--component", "ax_components:square", "--param", "x:float:-1:3", "--minimize", "loss"]
PLAIN = ["--method", "random_search", "--seed", "1", "--no-progress"]


def transload(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "transload", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **more)


@pytest.mark.parametrize(
    "module", ["transload_ax", "transload_ax.plugin", "transload_ax.cli", "transload_ax.convert", "transload_ax.run"]
)
def test_import_is_lazy(module: str) -> None:
    """None of these imports Ax, torch or pandas."""
    program = f"import sys, {module}; print([m for m in ('ax', 'torch', 'pandas', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_adapters_command_imports_no_ax(transload_home: Path) -> None:
    """Help and lists of the command line do not pay for Ax, and name it."""
    program = (
        "import sys\nfrom transload.cli import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as exc:\n    code = exc.code\n"
        "print('ax' in sys.modules, 'torch' in sys.modules)"
    )
    for args in (["--help"], ["info"], ["ax", "--help"], ["ax", "run", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *args], capture_output=True, text=True, timeout=60, check=False
        )
        assert "ax" in done.stdout, done.stderr
        assert done.stdout.strip().endswith("False False"), done.stderr


def test_all_public_names_are_there() -> None:
    """Each public name can be had, and there is no other module-level one by mistake."""
    import transload_ax

    for name in transload_ax.__all__:
        assert getattr(transload_ax, name) is not None
    with pytest.raises(AttributeError):
        _ = transload_ax.nothing  # type: ignore[attr-defined]


def test_run_go_on_and_plot(transload_home: Path, tmp_path: Path) -> None:
    """A search runs, goes on by name from another folder with more trials, is listed, and is drawn."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir(), other.mkdir()
    made = ["ax", "run", "--name", "first", *SEARCH, *PLAIN, "--tracker-base", "results", "--json"]
    done = transload(*made, "--trials", "2", "--parallel", "2", cwd=one)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["trials"] == {"0": "COMPLETED", "1": "COMPLETED"}
    assert found["value"] == pytest.approx((found["parameters"]["x"] - 1) ** 2)
    done = transload("ax", "run", "--name", "first", "--trials", "3", "--no-progress", cwd=other)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("best of 3 trials")
    assert (list(other.iterdir()), sorted(os.listdir(one / "results"))) == ([], ["0.json", "1.json", "2.json"])
    assert transload("ax", "list").stdout.split() == ["first"]
    done = transload("ax", "plot", "first", "-o", str(tmp_path / "picture"))
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} >= {"picture.png", "picture.html"}
    assert len(host_runner("ax").list("local")) == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--name", "none"], ["'none'", "--component"]),
        (["--name", "../x"], ["--name"]),
        ([*SEARCH[:4]], ["--minimize or --maximize"]),
        ([*SEARCH, "--maximize", "loss"], ["exclude"]),
        ([*SEARCH[:2], "--param", "z:float:0:1", "--minimize", "loss"], ["'z'"]),
        ([*SEARCH[:2], "--param", "x:float:1", "--minimize", "loss"], ["x:float:1"]),
        ([*SEARCH, "--const", "yy=1"], ["'yy'"]),
        ([*SEARCH, "--param", "x:float:0:1"], ["'x'", "twice"]),
        ([*SEARCH, "--failures", "1"], ["--failures", "0<=x<1"]),
        (["-s", "scripted", "--tracker-base", "/x"], ["--scheduler, --tracker-base", "--component"]),
    ],
)
def test_mistakes_are_one_line(args: list[str], words: list[str], transload_home: Path) -> None:
    """A mistake is one clear line, exit code 2, and nothing is started."""
    done = transload("ax", "run", *args)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last
    assert "Traceback" not in done.stderr
    assert host_runner("ax").list("local") == []


def test_options_are_kept_with_the_search(transload_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on by name alone has --stop-early, --parallel and --failures as last time; --keep-running is each run's."""
    from types import SimpleNamespace

    from click.testing import CliRunner

    from transload_ax import cli, experiment, resume, snapshot

    calls: list[tuple[object, ...]] = []

    def played(made: Any, trials: int, parallel: int, **more: Any) -> experiment.Outcome:
        more["snapshot"].touch()
        stopping = type(more["early_stopping"]).__name__
        calls.append((parallel, more["tolerated_failure_rate"], stopping, more["keep_running"]))
        searched: Any = SimpleNamespace(name="kept", trials={})
        return experiment.Outcome(searched, 0, {}, 1.0)

    monkeypatch.setattr(experiment, "run_experiment", played)
    monkeypatch.setattr(resume, "compare", lambda *search: None)
    monkeypatch.setattr(snapshot.Snapshot, "load", lambda self: (None, None, {}))
    monkeypatch.setattr(cli, "_interruptible", lambda work: work())
    for args in (
        [*SEARCH, "--stop-early", "--parallel", "3", "--failures", "0.9", "--keep-running"],
        [],
        SEARCH,
        ["--no-stop-early", "--parallel", "1"],
        [],
    ):
        done = CliRunner().invoke(cli.command, ["run", "--name", "kept", *args])
        assert done.exception is None, done.output
    stops = "PercentileEarlyStoppingStrategy"
    assert calls == [
        (3, 0.9, stops, True),
        (3, 0.9, stops, False),
        (3, 0.9, stops, False),
        (1, 0.9, "NoneType", False),
        (1, 0.9, "NoneType", False),
    ]


def test_what_was_settled_when_a_search_began(transload_home: Path) -> None:
    """--method, --seed and --stop-early are refused if they are others than at the beginning; nothing is kept of it."""
    from click.testing import CliRunner

    from transload_ax import cli

    folder = transload_home / "ax" / "kept"
    folder.mkdir(parents=True)
    (folder / "experiment.json").touch()
    options = {"parallel": 2, "failures": 0.5, "stop_early": False, "method": "fast", "seed": None, "curve": False}
    (folder / "options.json").write_text(json.dumps(options))
    for args, words in (
        (["--method", "quality"], ["--method quality", "begun with fast"]),
        (["--seed", "3"], ["--seed 3", "begun with none"]),
        (["--stop-early"], ["--stop-early", "begun without it"]),
    ):
        done = CliRunner().invoke(cli.command, ["run", "--name", "kept", *args])
        assert isinstance(done.exception, ConfigError)
        for word in words:
            assert word in str(done.exception)
        assert json.loads((folder / "options.json").read_text()) == options


def test_another_definition_is_refused(experiment: Callable[..., Any], transload_home: Path) -> None:
    """The name of a search with another definition is refused, and what is kept with the search stays as it was."""
    from click.testing import CliRunner

    from transload_ax import Snapshot, cli

    folder = transload_home / "ax" / "kept"
    Snapshot(folder / "experiment.json").save(
        experiment(name="kept", tracker_base=str(folder / "results"), inherit_env=True)
    )
    options = json.dumps({"parallel": 2, "failures": 0.5, "stop_early": False})
    (folder / "options.json").write_text(options)
    done = CliRunner().invoke(
        cli.command, ["run", "--name", "kept", *SEARCH, "-c", "grace_period=3", "--failures", "0.1"]
    )
    assert isinstance(done.exception, ConfigError)
    assert "with another cfg (grace_period):" in str(done.exception)
    assert (folder / "options.json").read_text() == options
    assert host_runner("ax").list("local") == []


def test_picture_that_cannot_be_written(experiment: Callable[..., Any], sobol: Any, transload_home: Path) -> None:
    """A place where no file can be is named, as the user's mistake."""
    from click.testing import CliRunner

    from transload_ax import cli, run_experiment

    kept = transload_home / "ax" / "drawn" / "experiment.json"
    run_experiment(experiment(), 1, generation_strategy=sobol(), snapshot=kept)
    done = CliRunner().invoke(cli.command, ["plot", "drawn", "-o", "/proc/none/picture.png"])
    assert isinstance(done.exception, ConfigError)
    assert "--output /proc/none/picture.png" in str(done.exception)


def test_given_up(transload_home: Path) -> None:
    """A search that fails says why, a line for each of the last trials; --json is whole; Ax says nothing besides."""
    args = ["--component", "ax_components:ends", "--const", "how=nothing", "--param", "x:float:-1:3"]
    done = transload("ax", "run", *args, "--minimize", "loss", *PLAIN, "--trials", "2", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["trials"] == {"0": "ABANDONED", "1": "ABANDONED"}
    lines = done.stderr.strip().splitlines()
    assert "the search was given up" in lines[0]
    assert [line.split(":")[0].split() for line in lines[1:]] == [
        ["trial", "0", "ABANDONED"],
        ["trial", "1", "ABANDONED"],
    ]
    assert all("no result 'loss'" in line for line in lines[1:])


def test_killed_and_gone_on_with_by_name(transload_home: Path, tmp_path: Path, eventually: Any) -> None:
    """After SIGKILL of the command, the same command goes on: its running trials are attached to, none starts twice."""
    marks, gate = tmp_path / "marks", tmp_path / "gate"
    marks.mkdir()
    args = ["ax", "run", "--name", "kept", "--component", "ax_components:waits", "--param", "x:float:-1:3"]
    args += ["--minimize", "loss", "--const", f"gate={gate}", "--const", f"marks={marks}", "--trials", "3"]
    args += ["--parallel", "2", *PLAIN]
    process = subprocess.Popen([sys.executable, "-m", "transload", *args], env=dict(os.environ))
    try:
        eventually(lambda: len(os.listdir(marks)) == 2, 120)
    finally:
        process.kill()
        process.wait()
    gate.touch()
    done = transload(*args, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == dict.fromkeys(["0", "1", "2"], "COMPLETED")
    assert sorted(name.partition("-")[0] for name in os.listdir(marks)) == ["0", "1", "2"]


def test_interrupt_ends_the_jobs(transload_home: Path, tmp_path: Path, eventually: Any) -> None:
    """SIGTERM ends the running trials; the search is kept, and goes on: they are ABANDONED, and count as trials."""
    args = ["ax", "run", "--component", "ax_components:waits", "--param", "x:float:-1:3", "--minimize", "loss"]
    args += ["--const", f"gate={tmp_path}/gate", *PLAIN, "--trials", "2", "--parallel", "2"]
    process = subprocess.Popen([sys.executable, "-m", "transload", *args], env=dict(os.environ))
    try:
        eventually(lambda: len(host_runner("ax").list("local")) == 2, 60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) != 0
    finally:
        process.kill()
        process.wait()
    assert {row.state.name for row in host_runner("ax").list("local")} == {"CANCELLED"}
    assert (transload_home / "ax" / "search" / "experiment.json").exists()
    (tmp_path / "gate").touch()
    done = transload(*args[:-4], "--trials", "3", "--failures", "0.9", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == {"0": "ABANDONED", "1": "ABANDONED", "2": "COMPLETED"}
    assert len(host_runner("ax").list("local")) == 3
