"""Do for the conformance suite what a pod does around one launcher, in a child process."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from executor import metadata_of, words_of

from transload.errors import TransloadError
from transload.pipelines import Launch
from transload.specs import AppState
from transload_kfp import EXIT_CANCELLED, EXIT_UNKNOWN, STATES, inline, launcher_from_app, task
from transload_kfp.__main__ import main
from transload_kfp.run_watch import RunWatch
from transload_testing.adapter_driver import ChildJob

MISCONFIGURED = 2
ENDS = {
    0: AppState.SUCCEEDED,
    EXIT_CANCELLED: AppState.CANCELLED,
    EXIT_UNKNOWN: AppState.UNKNOWN,
}


class Log(io.TextIOBase):
    """The task's stdout or stderr."""

    def __init__(self, child: ChildJob) -> None:
        self._child = child
        self._begun = ""

    def write(self, text: str) -> int:
        """Report whole lines."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._child.log(line)
        return len(text)


def run(child: ChildJob) -> None:
    """Run the command of a launcher's container, and report how it ended."""

    class Run(RunWatch):
        """A run whose Workflow says what the suite has asked for."""

        def ended_by_now(self, seconds: float) -> bool:
            return child.asked()

    task.RunWatch = Run
    sys.stdout = sys.stderr = Log(child)
    folder = Path(tempfile.mkdtemp(dir=os.path.dirname(child.report)))
    inline.TERMINATION_LOG = str(folder / "termination-log")
    (folder / "termination-log").touch()
    job = child.job
    try:
        made = launcher_from_app(Launch(**child.launch), image="launcher:1", **job.options)
    except TransloadError as exc:
        child.finish(STATES[AppState.FAILED], error=exc, retryable=False)
        return
    try:
        code = 0
        words = {"job_id": job.namespace, "task_name": job.name, "path": ""}
        # a person who runs it again makes a new run
        main(words_of(made, folder, job_name=job.generation, **words))
    except SystemExit as exc:
        code = int(exc.code or 0)
    state = ENDS.get(code, AppState.FAILED)
    said = (folder / "termination-log").read_text()
    final = code in (MISCONFIGURED, EXIT_CANCELLED) or job.options.get("retries_by") == "scheduler"
    results = None if code else found_in(folder)
    child.finish(STATES[state], results, said, retryable=not final)


def found_in(folder: Path) -> dict[str, Any]:
    """Return the results that a component's artifacts have."""
    reported = {
        path.stem: json.loads(path.read_text())["results"]
        for path in (folder / "results").glob("*.json")
    }
    places = metadata_of(folder, "results").get("transload_files", {})
    return {
        "results": reported,
        "artifacts": {name: {"path": place} for name, place in places.items()},
        "looked_in": [str(folder)],
    }
