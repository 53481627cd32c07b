"""The clocks of submitters, readers and clusters differ."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppState

_SUBMITS = """
import sys, time
clock = time.time
time.time = lambda: clock() + float(sys.argv[1])
from transload.runner import Runner
from transload.specs import AppDef, Role
from transload_kubernetes.scheduler import create_scheduler
app = AppDef("test", [Role("main", "registry.example/shell:1", entrypoint="true")])
with Runner("tests", {"kubernetes": create_scheduler}) as runner:
    print(runner.run(app, "kubernetes", app_id="late-0"))
"""


@pytest.mark.parametrize(("submitters", "clusters"), [(-600, 0), (0, -600), (600, 600)])
def test_a_submit_that_goes_on_has_not_failed(
    fake: Any, runner: Runner, monkeypatch: pytest.MonkeyPatch, submitters: int, clusters: int
) -> None:
    """A job that is being submitted is left alone, however much the clocks differ.

    Both are seconds by which a clock is ahead of this machine's.
    """
    monkeypatch.setattr("fake_pods.AHEAD_S", clusters)
    asked = threading.Event()
    answered = threading.Event()
    create = fake.cluster.create

    def slow(plural: str, *args: Any, **options: Any) -> Any:
        if plural == "jobs":
            asked.set()
            with fake.cluster.changed:  # it lets go of the lock of all requests
                fake.cluster.changed.wait_for(answered.is_set, 60)
        return create(plural, *args, **options)

    monkeypatch.setattr(fake.cluster, "create", slow)
    command = [sys.executable, "-c", _SUBMITS, str(submitters)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as submitter:
        assert asked.wait(60)
        seen = runner.status("kubernetes://tests/default:late-0")
        chain = list(runner.scheduler("kubernetes").chain("default:late"))
        answered.set()
        with fake.cluster.changed:
            fake.cluster.changed.notify_all()
        handle, _ = submitter.communicate(timeout=60)
    assert seen is None and chain == []
    ended = runner.wait(handle.strip(), timeout=60)
    assert ended is not None and ended.state is AppState.SUCCEEDED
