"""Results outlive the containers, and are an error once their folder or their record is gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.runner import Runner
from transload.runtime.tracking import ResultsGone
from transload.specs import AppState, parse_app_handle

REPORTS = """echo '{"schema": 1, "key": "0", "results": {"loss": 0.5}}' > $TRANSLOAD_TRACKER_BASE/0.json"""


def ended(runner: Runner, app: Any) -> str:
    """Run a job to its end, and return its handle."""
    handle = runner.run(app, "docker")
    status = runner.wait(handle, timeout=90)
    assert status is not None and status.state is AppState.SUCCEEDED
    return handle


def test_containers_that_were_removed(runner: Runner, shell: Any, engine: Any) -> None:
    """What a job reported does not need its containers."""
    handle = ended(runner, shell(REPORTS))
    engine.client.prune_containers()
    assert runner.results(handle).results == {"0": {"loss": 0.5}}


@pytest.mark.parametrize("command", [REPORTS, "true"])
def test_a_folder_that_was_removed(runner: Runner, shell: Any, command: str) -> None:
    """Nobody can tell whether something was reported once the folder is gone."""
    handle = ended(runner, shell(command))
    runner.results(handle)
    description = runner.job(handle).description()
    assert description is not None and description.tracker_base is not None
    shutil.rmtree(Path(description.tracker_base))
    with pytest.raises(ResultsGone, match=description.tracker_base):
        runner.results(handle)


def test_a_record_that_is_damaged(runner: Runner, shell: Any, transload_home: Path) -> None:
    """Where the record does not say any more where the results are, they are not empty."""
    handle = ended(runner, shell(REPORTS))
    app_id = parse_app_handle(handle).app_id
    (record,) = transload_home.glob(f"docker-*/apps/{app_id}/record.json")
    before = record.read_text()
    record.write_text("{")
    with pytest.raises((ResultsGone, SchedulerUnavailable), match=app_id):
        runner.results(handle)
    record.write_text(before)
    assert runner.results(handle).results == {"0": {"loss": 0.5}}
