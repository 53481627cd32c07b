"""The digits trainer runs as a job on real data, by the runner and by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from transload.runner import Runner, get_runner
from transload.specs import AppDef, AppState

pytest.importorskip("numpy")
pytest.importorskip("sklearn")

COMPONENT = Path(__file__).parents[3] / "examples" / "digits" / "component.py"


def command(*arguments: str, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    """Run the installed command line in a process of its own."""
    program = [sys.executable, "-m", "transload", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=timeout, check=False)


def run(runner: Runner, *arguments: str) -> tuple[str, float, float]:
    """Run the example to its end, and return handle, accuracy and loss."""
    handle = runner.run_component(str(COMPONENT), list(arguments), "local")
    status = runner.wait(handle, timeout=180)
    assert status is not None
    assert status.state is AppState.SUCCEEDED, (
        status,
        list(runner.log_lines(handle, "trainer", 0)),
    )
    final = runner.results(handle).results["final"]
    return handle, float(final["accuracy"]), float(final["loss"])


def test_the_command_trains_and_shows_the_accuracy(transload_home: Path) -> None:
    """Three replicas, a line per epoch while it runs, SUCCEEDED, an accuracy above 0.9, exit code
    0. A runner finds the state, each replica's exit code, every epoch and the accuracy.
    """
    result = command("run", str(COMPONENT), "--replicas", "3", "--epochs", "20")
    assert result.returncode == 0, result.stderr
    assert "SUCCEEDED" in result.stderr
    progress = [line for line in result.stdout.splitlines() if "epoch " in line and "loss" in line]
    assert len(progress) == 20
    assert all("trainer/0" in line for line in progress)
    listed = json.loads(command("list", "--json").stdout)
    handle = listed["apps"][0]["handle"]
    results = json.loads(command("results", "--json", handle).stdout)["results"]
    assert results["final"]["accuracy"] > 0.9
    assert f"{results['final']['accuracy']:.4f}"[:5] in result.stdout + result.stderr
    with get_runner() as other:
        status = other.status(handle)
        assert status is not None
        assert [replica.exit_code for replica in status.roles[0].replicas] == [0, 0, 0]
        found = other.results(handle)
        assert found.value("accuracy") == results["final"]["accuracy"]
        epochs = [f"epoch-{number:03d}" for number in range(1, 21)]
        assert sorted(found.results) == [*epochs, "final"]


@pytest.mark.slow
def test_same_seed_and_replicas_give_the_same_bits(transload_home: Path) -> None:
    """Two jobs at the same time and through both trainers agree in every bit.

    One without a peer does not.
    """
    common = ["--epochs", "3", "--replicas", "2", "--seed", "5"]
    with get_runner() as runner:
        plain = runner.run_component(str(COMPONENT), common, "local")
        tracked = run(runner, *common, "--tracked", "true")
        status = runner.wait(plain, timeout=180)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        final = runner.results(plain).results["final"]
        assert (final["accuracy"], final["loss"]) == tracked[1:]
        assert run(runner, *common[:2], "--replicas", "1", *common[4:])[2] != tracked[2]


def test_a_dead_replica_ends_the_app(transload_home: Path, tmp_path: Path) -> None:
    """With one rank's arguments broken the app fails, and says which replica did."""
    with get_runner() as runner:
        info = runner.dryrun_component(
            f"{COMPONENT}:digits", ["--replicas", "2", "--epochs", "0"], "local"
        )
        handle = runner.schedule(info)
        status = runner.wait(handle, timeout=60)
        assert status is not None
        assert status.state is AppState.FAILED
        assert 2 in [replica.exit_code for replica in status.roles[0].replicas]


def test_dry_run_and_help_start_nothing(transload_home: Path) -> None:
    """The request can be looked at, and the docstring is the help. Neither starts a job."""
    shown = command("run", "--dry-run", str(COMPONENT), "--replicas", "2")
    assert shown.returncode == 0, shown.stderr
    assert "trainer.py" in shown.stdout
    told = command("run", str(COMPONENT), "--help")
    assert "how many processes share the work" in told.stdout
    assert json.loads(command("list", "--json").stdout)["apps"] == []


def test_a_mistake_is_one_line_and_exit_code_2(transload_home: Path) -> None:
    """An argument of a wrong type names argument and value, and nothing is started."""
    result = command("run", str(COMPONENT), "--replicas", "many")
    assert result.returncode == 2
    assert "replicas" in result.stderr
    assert "many" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_component_is_plain_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called as a function the component gives an AppDef that survives JSON and keeps macros."""
    monkeypatch.syspath_prepend(str(COMPONENT.parent))
    import component

    app = component.digits(replicas=4)
    sys.modules.pop("component")
    assert AppDef.from_json(app.to_json()) == app
    assert app.roles[0].num_replicas == 4
    assert {"--rank=${replica_id}", "--app-id=${app_id}", "--rank0-env=${rank0_env}"} <= set(
        app.roles[0].args
    )
