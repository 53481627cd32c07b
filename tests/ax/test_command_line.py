"""What importing costs, and ``transload search`` with Ax."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transload_search import Search


@pytest.mark.parametrize(
    "module",
    [
        "transload_ax",
        "transload_ax.plugin",
        "transload_ax.adapter",
        "transload_ax.convert",
        "transload_ax.jobs",
    ],
)
def test_import_is_lazy(module: str) -> None:
    """None of these imports Ax, torch or pandas."""
    program = f"import sys, {module}; print([m for m in ('ax', 'torch', 'pandas', 'matplotlib') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_adapters_command_imports_no_ax(transload_home: Path) -> None:
    """Help and lists of the command line do not pay for Ax, and name it."""
    program = (
        "import sys\nfrom transload.cli import main\n"
        "try:\n    code = main(sys.argv[1:])\nexcept SystemExit as exc:\n    code = exc.code\n"
        "print('ax' in sys.modules, 'torch' in sys.modules)"
    )
    for args, word in (
        (["--help"], "search"),
        (["info"], "ax"),
        (["search", "run", "--help"], "ax"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program, *args],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert word in done.stdout, done.stderr
        assert done.stdout.strip().endswith("False False"), done.stderr


def test_all_public_names_are_there() -> None:
    """Each public name can be had, and there is no other module-level one by mistake."""
    import transload_ax

    for name in transload_ax.__all__:
        assert getattr(transload_ax, name) is not None
    with pytest.raises(AttributeError):
        _ = transload_ax.nothing  # type: ignore[attr-defined]


@pytest.mark.slow  # the pages run such a search
def test_search_with_ax(transload_home: Path) -> None:
    """With ``--suggester ax`` Ax proposes trials and its state is kept, without library output."""
    args = [
        "--component",
        "ax_components:square",
        "--param",
        "x:float:-1:3",
        "--minimize",
        "loss",
        "-s",
        "local",
    ]
    run = [sys.executable, "-m", "transload", "search", "run", "--no-progress"]

    def search(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*run, *more], capture_output=True, text=True, timeout=240, check=False
        )

    done = search(*args, "--suggester", "ax", "--trials", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    first: dict[str, Any] = json.loads(done.stdout)
    done = search("--trials", "7", "--json")  # by models, from the sixth on
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["trials"][:2] == first["trials"]
    assert found["best"]["value"] == min(row["value"] for row in found["trials"])
    state = json.loads(
        (transload_home / "searches" / "search" / "search" / "rounds" / "6.json").read_text()
    )["state"]
    assert (state["suggester"], len(state["experiment"]["trials"])) == ("ax", 7)


@pytest.mark.slow
def test_search_with_ax_for_several_objectives(transload_home: Path, tmp_path: Path) -> None:
    """Ax weighs two objectives and a constraint, also where it goes on.

    The front keeps the bound.
    """
    from transload_ax import AxSuggester

    goals = ["--minimize", "loss", "--maximize", "gain", "--constraint", "size<=1"]
    args = [
        "--component",
        "ax_components:tradeoff",
        "--param",
        "x:float:-2:2",
        "--param",
        "y:float:0:2",
        *goals,
    ]
    run = [
        sys.executable,
        "-m",
        "transload",
        "search",
        "run",
        "--no-progress",
        "--json",
        "--parallel",
        "2",
    ]
    compiled = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path / "compiled")}
    for more in ([*args, "--suggester", "ax", "--trials", "6", "-s", "local"], ["--trials", "9"]):
        done = subprocess.run(
            [*run, *more], capture_output=True, text=True, timeout=240, check=False, env=compiled
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "compiled").exists()  # nothing was
    found = json.loads(done.stdout)
    rows = {row["index"]: row["values"] for row in found["trials"]}
    keeping = {index: values for index, values in rows.items() if values["size"] <= 1}

    def beaten(one: dict[str, float]) -> bool:
        return any(
            other != one and other["loss"] <= one["loss"] and other["gain"] >= one["gain"]
            for other in keeping.values()
        )

    assert found["best"] is None
    assert [each["index"] for each in found["front"]] == [
        each for each in keeping if not beaten(keeping[each])
    ]
    folder = transload_home / "searches" / "search" / "search" / "rounds"
    suggester = AxSuggester(Search.from_dict(found["search"]))
    suggester.load(
        json.loads(max(folder.iterdir(), key=lambda path: int(path.stem)).read_text())["state"]
    )
    experiment, _ = suggester._ax()
    assert experiment.optimization_config.objective.expression == "-loss, gain"
    (bound,) = experiment.optimization_config.outcome_constraints
    assert (bound.metric_names, bound.bound) == (["size"], 1.0)
    makers = [trial.generator_runs[0]._generator_key for trial in experiment.trials.values()]
    assert (len(makers), makers[-1] not in (None, "Sobol")) == (9, True)
