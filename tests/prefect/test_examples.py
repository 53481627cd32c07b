"""The example flows run, and leave behind what they promise."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.pipelines import host_runner
from transload.tracker import FsspecTracker
from transload_testing.packages import package_index

EXAMPLES = Path(__file__).parents[2] / "examples" / "prefect"


def _flow_run(host: Any, name: str) -> dict[str, Any]:
    runs = host.post(
        "/flow_runs/filter", flows={"name": {"any_": [name]}}, sort="START_TIME_DESC", limit=1
    )
    found: dict[str, Any] = runs[0]
    return found


def test_script(
    host: Any,
    script: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
) -> None:
    """The packages of a script that is a task are installed, and the log has its lines.

    The packages are those of an index on loopback.
    """
    folder = tmp_path / "script"
    shutil.copytree(EXAMPLES.parent / "script", folder)
    program = (folder / "fit.py").read_text(encoding="utf-8")
    head = program.partition("# ///\n")[0].replace("numpy>=1.26", "tiny") + "# ///\n"
    (folder / "fit.py").write_text(head + "import tiny\nprint('tiny', tiny.VERSION)\n")
    with package_index(tmp_path / "index") as index:
        index.add("tiny", "2.0")
        index.be_the_only_one(monkeypatch)
        made = script("")
        process = made.start(sys.executable, str(folder / "prefect_flow.py"))
        eventually(lambda: process.poll() is not None, 100)
    said = made.log.read_text()
    assert process.returncode == 0, said[-3000:]
    assert "tiny 2.0" in said
    assert _flow_run(host, "fit")["state_type"] == "COMPLETED"


def test_chain(host: Any, script: Callable[[str], Any], tmp_path: Path, eventually: Any) -> None:
    """Upstream decides the replicas. The tracker knows which run came from which, and draws it."""
    process = (made := script("")).start(
        sys.executable, str(EXAMPLES.parent / "chain" / "prefect_flow.py"), str(tmp_path / "place")
    )
    eventually(lambda: process.poll() is not None, 100)
    assert process.returncode == 0, made.log.read_text()[-3000:]
    run = _flow_run(host, "chain")
    assert run["state_type"] == "COMPLETED"
    eventually(
        lambda: (
            Counter(each["state_type"] for each in host.task_runs(run["id"])) == {"COMPLETED": 2}
        ),
        30,
    )
    tracker = FsspecTracker(None, str(tmp_path / "place" / "runs"))
    first, second = (
        next(
            each.app_handle
            for each in host_runner("prefect").list("local")
            if f"-{name}-" in each.app_handle
        )
        for name in ("plan", "count")
    )
    assert list(tracker.run_ids(parent_run_id=first)) == [second]
    assert tracker.metadata(second) == {"replicas": 3}
    results = host_runner("prefect").results(second).results
    assert sum(float(each["sum"]) for each in results.values()) == sum(range(3000))
    drawing = (tmp_path / "place" / "lineage.svg").read_text()
    assert "<svg" in drawing and all(
        each.rpartition("/")[2][:12] in drawing for each in (first, second)
    )
    numbers = f"file://{tmp_path}/place/numbers.txt"
    found = eventually(lambda: host.events(numbers), 30)
    assert found[0]["event"] == "prefect.asset.materialization.succeeded"
    assert found[0]["payload"]["rows"] == 3000


@pytest.mark.slow  # the session everywhere trains the digits in Prefect
def test_digits(host: Any, script: Callable[[str], Any], tmp_path: Path, eventually: Any) -> None:
    """Two learning rates run side by side, and the better one again with more replicas."""
    body = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
from flow import digits
print("ACCURACY", digits([0.1, 0.5], epochs=2, replicas=2))
"""
    process = (made := script(body)).start()
    eventually(lambda: process.poll() is not None, 110)
    assert process.returncode == 0, made.log.read_text()[-3000:]
    run = _flow_run(host, "digits")
    eventually(
        lambda: (
            Counter(each["state_type"] for each in host.task_runs(run["id"])) == {"COMPLETED": 3}
        ),
        30,
    )
    names = {each["name"] for each in host.task_runs(run["id"])}
    assert names == {"train-lr-0.1", "train-lr-0.5", "train-best"}
    last = next(line for line in made.log.read_text().splitlines() if line.startswith("ACCURACY"))
    assert 0.5 < float(last.split()[1]) <= 1.0
    replicas = [len(each.roles[0].replicas) if each.roles else 0 for each in _statuses()]
    assert sorted(replicas) == [1, 1, 2]


@pytest.mark.slow
def test_what_is_shown_without_a_browser(tmp_path: Path) -> None:
    """A server of its own runs the job, and state, log and results are printed.

    `--keep` names the page until Ctrl-C.
    """
    program = [sys.executable, str(EXAMPLES.parent / "everywhere" / "show.py"), "prefect", "--keep"]
    environment = os.environ | {"PATH": str(Path(sys.executable).parent), "BROWSER": "true"}
    lines = []
    with subprocess.Popen(
        program,
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as showing:
        assert showing.stdout is not None
        for line in showing.stdout:
            lines.append(line.strip())
            if line.startswith("the page: http://"):
                os.killpg(showing.pid, signal.SIGINT)
        assert showing.wait(60) == 0, lines
    shown = lines[lines.index("what a person sees (a picture of it needs Chromium):") + 1 :]
    assert shown[0].startswith("flow run ") and shown[0].endswith(": Completed")
    assert any(line.startswith("log: trainer/0 epoch   4/4") for line in shown)
    assert any(line.startswith("result: final accuracy = 0.9415") for line in shown)
    assert shown[-1].startswith("all of it is in ")


def _statuses() -> list[Any]:
    runner = host_runner("prefect")
    return [runner.status(each.app_handle) for each in runner.list("local")]
