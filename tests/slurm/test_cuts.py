"""A hundred cuts of the connection to the login node, at random moments of submits, watches and
logs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, SubmitError
from transload.runner import Runner, log_lines
from transload.specs import AppDef, AppState, AppStatus
from transload_slurm import SlurmScheduler, create_slurm

LINES = 60


class Cutter:
    """Breaks the connection again and again, in a way and at a time that is drawn."""

    def __init__(self, login: Any, count: int, longest: float, seed: int) -> None:
        self._login, self._count, self._longest = login, count, longest
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.pauses: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Run in the main thread, since the sshd that it starts ends with its thread."""
        ways = [self._cut, self._kill_helper, self._kill_client, self._away, self._frozen]
        for _ in range(self._count):
            time.sleep(self._random.uniform(0.0, 5.0))  # opening one takes a second or two
            way = self._random.choice(ways)
            way()
            self.done[way.__name__.strip("_")] += 1
        self.over.set()

    def _pause(self) -> float:
        """Pause some seconds mostly, and one time in five anything up to the longest."""
        shortest = min(self._longest, 10.0)
        long = self._random.random() < 0.2
        pause = (
            self._random.uniform(shortest, self._longest)
            if long
            else self._random.expovariate(4.0 / shortest)
        )
        self.pauses.append(min(pause, self._longest))
        return self.pauses[-1]

    def _cut(self) -> None:
        """The server's end of every connection is killed."""
        self._login.cut()

    def _kill_helper(self) -> None:
        for pid in self._login.helpers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _kill_client(self) -> None:
        """The client's shared connection is killed."""
        self._login.hang_up()

    def _away(self) -> None:
        """Nobody gets in for a while."""
        self._login.refuse()
        self._login.cut()
        time.sleep(self._pause())
        self._login.let_in()

    def _frozen(self) -> None:
        """Freeze the link, so that nothing comes through and nothing is refused."""
        self._login.freeze(True)
        time.sleep(self._pause())
        self._login.freeze(False)


def _scheduler() -> SlurmScheduler:
    scheduler = create_slurm("cuts")
    scheduler.connect(scheduler.connection(ssh="login"))
    return scheduler


def _app(
    runner: Runner, app: AppDef, number: int, seen: dict[str, list[AppStatus]]
) -> tuple[str, list[str]]:
    """Submit a job, as often as it takes, follow its log, and wait for its end."""
    app_id = f"cut-{number}"
    scheduler = runner.scheduler("slurm")
    told: list[str] = []
    handle = _again(lambda: runner.run(app, "slurm", {}, app_id=app_id), told)
    print("".join(f"{app_id}: gave up: {each}\n" for each in told if "not known" in each), end="")
    lines = _again(lambda: log_lines(scheduler, app_id, "main", 0, follow=True, patience=300.0))
    status = runner.wait(
        handle, timeout=300, patience=300.0, on_change=seen.setdefault(app_id, []).append
    )
    assert status is not None
    return app_id, list(lines)


def _again(do: Callable[[], Any], told: list[str] | None = None) -> Any:
    """Repeat what a broken connection may prevent, and note each complaint in ``told``."""
    deadline = time.monotonic() + 600
    while True:
        try:
            return do()
        except (SubmitError, SchedulerUnavailable) as exc:
            if time.monotonic() > deadline or not getattr(exc, "transient", True):
                raise
            if told is not None:
                told.append(str(exc))
            time.sleep(0.3)


@pytest.mark.parametrize(
    ("cuts", "longest", "apps"),
    [
        pytest.param(6, 2.0, 4, id="few", marks=[pytest.mark.slow, pytest.mark.timeout(110)]),
        pytest.param(
            100, 60.0, 40, id="a hundred", marks=[pytest.mark.slow, pytest.mark.timeout(3000)]
        ),
    ],
)
def test_cuts(
    login: Any,
    tmp_path: Path,
    shell_app: Callable[..., AppDef],
    cuts: int,
    longest: float,
    apps: int,
) -> None:
    """No second job, no line lost or seen twice, no wrong state."""
    ran = tmp_path / "ran"
    ran.mkdir()
    seen: dict[str, list[AppStatus]] = {}
    found: dict[str, list[str]] = {}
    cutter = Cutter(login, cuts, longest, seed=apps)
    scheduler = _scheduler()
    with (
        Runner("tests", {"slurm": lambda session: scheduler}) as runner,
        ThreadPoolExecutor(5) as pool,
    ):

        def batches() -> int:
            number = 0
            while number < apps or not cutter.over.is_set():
                batch = range(number, number + 4)
                commands = [
                    f"echo x >> {ran}/{k}; for i in $(seq {LINES}); do echo $i; sleep 0.1; done"
                    for k in batch
                ]
                found.update(
                    dict(pool.map(_app, [runner] * 4, map(shell_app, commands), batch, [seen] * 4))
                )
                number += 4
            return number

        running = pool.submit(batches)
        cutter.run()
        number = running.result()
        states = _again(lambda: scheduler.describe(list(found)))
        for app_id in found:
            scheduler.delete(app_id)
    pauses = [round(pause, 1) for pause in sorted(cutter.pauses)]
    print(
        f"{len(found)} apps, {sum(cutter.done.values())} cuts: {dict(cutter.done)}; away or frozen "
        f"for {pauses} s"
    )
    wanted = [f"{k}\n" for k in range(1, LINES + 1)]
    assert {app_id: lines for app_id, lines in found.items() if lines != wanted} == {}
    assert {path.name: path.read_text() for path in ran.iterdir()} == {
        str(k): "x\n" for k in range(number)
    }
    assert all(
        each is not None and each.status.state is AppState.SUCCEEDED for each in states.values()
    )
    bad = (AppState.FAILED, AppState.CANCELLED)
    assert [
        status for statuses in seen.values() for status in statuses if status.state in bad
    ] == []
