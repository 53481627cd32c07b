"""Pages of real jobs on the local scheduler show all ends, replicas, logs and lineage."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from report_samples import Page, python, shell

from transload.errors import AppNotFound
from transload.runner import Runner
from transload.specs import AppDef, AppState, RetryPolicy
from transload.tracker import FsspecTracker
from transload_report import (
    app_report,
    collect_app,
    collect_lineage,
    collect_runs,
    lineage_report,
    runs_report,
)

Parse = Callable[[str], Page]
SVG = "{http://www.w3.org/2000/svg}"
WAIT = 120.0

TRAINER = """
import json, os, sys
base = os.environ["TRANSLOAD_TRACKER_BASE"]
os.makedirs(base, exist_ok=True)
for epoch in range(5):
    body = {"schema": 1, "key": f"epoch-{epoch}", "results": {"loss": 1 / (epoch + 1), "accuracy": epoch / 5}}
    with open(f"{base}/epoch-{epoch}.json", "w") as file:
        json.dump(body, file)
with open(os.environ["TRANSLOAD_PROGRESS_FILE"], "w") as file:
    json.dump({"step": 5, "total": 5, "text": "trained"}, file)
sys.stdout.buffer.write("größer 中文 \\x1b[32mgreen\\x1b[0m\\n<script>alert(1)</script>\\n".encode())
sys.stdout.buffer.write(b"\\xff\\x00 odd\\n")
"""


def run(runner: Runner, app: AppDef, **more: str) -> str:
    """Run a job to its end, and return its handle."""
    handle = runner.run(app, "local", **more)  # type: ignore[arg-type]
    assert runner.wait(handle, timeout=WAIT) is not None
    return handle


def test_success_with_series_and_odd_logs(runner: Runner, parse: Parse) -> None:
    """Results under epoch-numbered keys are plotted, and log lines of any bytes are there as text.

    The progress that the program reported is a bar.
    """
    handle = run(runner, AppDef("train", [python(TRAINER, env={"API_TOKEN": "hunter2"})]))
    html = app_report(collect_app(runner, handle))
    page = parse(html)
    assert "✓ SUCCEEDED" in page.text(".//header")
    assert page.lines(f".//section[@id='results']//{SVG}svg/{SVG}title") == [
        "loss by epoch",
        "accuracy by epoch",
    ]
    assert "100 % · step 5 of 5 · trained" in page.text(".//section[@id='progress']")
    assert page.all(f".//section[@id='progress']//{SVG}rect[@class='bar SUCCEEDED']")
    log = page.text(".//pre")
    assert "größer 中文 green" in log and "<script>alert(1)</script>" in log and "\\x00 odd" in log
    assert "hunter2" not in html and "API_TOKEN=******" in page.text()
    assert f" on {os.uname().nodename}, in {os.getcwd()}" in page.text()
    assert page.all(".//section[@id='logs']//details")[0].get("open") is not None


def test_retries_are_bars_of_their_own(runner: Runner, parse: Parse) -> None:
    """A replica that failed twice and then succeeded has three bars, with their exit codes."""
    flaky = "[ $TRANSLOAD_RETRY = 2 ] || exit $((3 + TRANSLOAD_RETRY))"
    handle = run(
        runner, AppDef("flaky", [shell(flaky, max_retries=2, retry_policy=RetryPolicy.REPLICA)])
    )
    page = parse(app_report(collect_app(runner, handle)))
    titles = [text.rpartition(",")[0] for text in page.lines(f".//{SVG}rect/{SVG}title")]
    assert titles == [
        "main/0, attempt 1 of 3: FAILED, exit code 3",
        "main/0, attempt 2 of 3: FAILED, exit code 4",
        "main/0, attempt 3 of 3: SUCCEEDED",
    ]
    assert "2 earlier attempts FAILED" in page.text(".//section[@id='timeline']//ul")


def test_failure_says_why(runner: Runner, parse: Parse) -> None:
    """The reason, the exit codes, and the log of what failed, opened and in front."""
    script = (
        "echo replica $TRANSLOAD_REPLICA_ID; [ $TRANSLOAD_REPLICA_ID = 2 ] && exit 7; sleep 300"
    )
    handle = run(runner, AppDef("broken", [shell(script, num_replicas=3)]))
    page = parse(app_report(collect_app(runner, handle)))
    assert "✕ FAILED" in page.text(".//header")
    assert "replica 2 failed (exit code 7)" in page.text(".//section[@id='overview']")
    first = page.all(".//section[@id='logs']//details")[0]
    assert "main/2" in "".join(first.itertext()) and first.get("open") is not None
    assert "main/2 ✕ FAILED 7" in page.lines(".//section[@id='replicas']//tbody/tr")[2]
    assert (
        sum("CANCELLED" in line for line in page.lines(".//section[@id='replicas']//tbody/tr")) == 2
    )


def test_running_then_cancelled(
    runner: Runner, parse: Parse, eventually: Callable[..., object]
) -> None:
    """While the job runs its bar reaches to now. Once cancelled the page says so."""
    handle = runner.run(AppDef("long", [shell("echo up; sleep 300")]), "local")

    def is_up() -> bool:
        # a program may print before its scheduler has noted that it runs
        status = runner.status(handle)
        printed = any("up" in line for line in runner.log_lines(handle, "main"))
        return printed and status is not None and status.state is AppState.RUNNING

    eventually(is_up, timeout=60)
    page = parse(app_report(collect_app(runner, handle)))
    assert "▶ RUNNING" in page.text(".//header")
    assert page.all(f".//{SVG}rect[@class='bar RUNNING going']")
    runner.cancel(handle)
    runner.wait(handle, timeout=WAIT)
    page = parse(app_report(collect_app(runner, handle)))
    assert "■ CANCELLED" in page.text(".//header")
    assert "Cancel requested" in page.text(".//section[@id='overview']")


def test_two_hundred_replicas(runner: Runner, parse: Parse) -> None:
    """A job of two hundred real replicas has a compact page, with the failed one in front."""
    script = "[ $TRANSLOAD_REPLICA_ID = 133 ] && exit 9; exit 0"
    handle = run(runner, AppDef("many", [shell(script, num_replicas=200, min_replicas=100)]))
    html = app_report(collect_app(runner, handle))
    assert len(html) < 250_000
    page = parse(html)
    assert len(page.all(f".//{SVG}rect")) == 200
    assert "199 SUCCEEDED, 1 FAILED" in page.text(".//section[@id='overview']")
    assert "main/133" in page.lines(".//section[@id='logs']//summary")[0]
    assert "188 more replicas are not shown" in page.text(".//section[@id='logs']")


def test_only_the_last_lines_are_read(runner: Runner, parse: Parse) -> None:
    """Of a long log the page has the last lines, or none, and says that there are more."""
    handle = run(runner, AppDef("wordy", [shell("seq 1 50000")]))
    lines = parse(app_report(collect_app(runner, handle, lines=3))).text(".//pre").split()
    assert lines == ["…", "49998", "49999", "50000"]
    assert not parse(app_report(collect_app(runner, handle, lines=0))).all(".//pre")


def test_lineage_of_an_app(
    transload_home: Path, monkeypatch: pytest.MonkeyPatch, parse: Parse
) -> None:
    """With a tracker the page draws where the job came from.

    The lineage's page has states of jobs.
    """
    monkeypatch.setenv("TRANSLOAD_TRACKERS", "fsspec")
    monkeypatch.setenv("TRANSLOAD_TRACKER_FSSPEC_CONFIG", str(transload_home / "runs"))
    tracker = FsspecTracker(None, transload_home / "runs")
    with Runner() as runner:
        handle = run(runner, AppDef("child", [shell("echo hi")]))
        assert collect_lineage(runner, handle) is None
        tracker.add_source(handle, "prep-run", "data")
        tracker.add_artifact("prep-run", "data", "s3://me:hunter2@bucket/data")
        html = app_report(collect_app(runner, handle))
        page = parse(html)
        assert {"prep-run", "data"} <= set(page.lines(f".//section[@id='lineage']//{SVG}text"))
        assert "hunter2" not in html
        data = collect_lineage(runner, handle)
        assert data is not None and data.states == {handle: AppState.SUCCEEDED}
        assert "✓ SUCCEEDED" in parse(lineage_report(data)).text(".//section[@id='lineage']")


def test_several_runs(runner: Runner, parse: Parse) -> None:
    """Several jobs share a page that names a missing one. A single missing job is an error."""
    handles = [
        run(runner, AppDef("train", [python(TRAINER)])),
        run(runner, AppDef("bad", [shell("exit 3")])),
    ]
    gone = "local://transload/never-was"
    page = parse(runs_report(collect_runs(runner, [*handles, gone])))
    rows = page.lines(".//section[@id='runs']//tbody/tr")
    assert "SUCCEEDED" in rows[0] and "0.2 0.8" in rows[0] and "FAILED" in rows[1]
    assert gone in page.text(".//section[@id='overview']")
    with pytest.raises(AppNotFound):
        collect_app(runner, gone)


def test_results_that_cannot_be_read(runner: Runner, parse: Parse) -> None:
    """A result file that cannot be read is named, and the others are shown."""
    handle = run(runner, AppDef("train", [python(TRAINER)]))
    base = runner.results(handle).looked_in[0]
    (Path(base) / "epoch-0.json").write_text(
        json.dumps({"schema": 99, "key": "epoch-0", "results": {}})
    )
    page = parse(app_report(collect_app(runner, handle)))
    assert "not read: epoch-0.json: schema 99" in page.text(".//section[@id='results']")
    assert "✓ SUCCEEDED" in page.text(".//header")
