"""What an app costs in a Prefect flow, over a plain task that runs the command, and over
prefect-shell; many at once.

What the adapter adds is the ratio to a plain task that runs the same app through `Runner`: the rest
is the app's own cost, a supervisor that outlives the flow.

Needs an environment with transload-prefect and prefect-shell. It starts a server, unless
``PREFECT_API_URL`` names one.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
import warnings
from pathlib import Path

os.environ |= {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}

from measure import figure, interleaved, report
from prefect import flow, task
from prefect_shell import ShellOperation

from transload.pipelines import host_runner
from transload.specs import AppDef, Role
from transload_prefect import AppTaskRunner, app_task

warnings.simplefilter("ignore")
TIMES = 100
WARM = 5
MANY = 100


def app(command: str = "true", argument: str = "") -> AppDef:
    """Run one command."""
    return AppDef("bench", [Role("r", "", entrypoint=command, args=[argument] if argument else [])])


ours = app_task(app, name="ours")
bare = app_task(app, name="bare", artifacts=False, events=False)
held = app_task(app, name="held", artifacts=False, events=False)


@task
def plain() -> None:
    """Run the command as a plain task does."""
    subprocess.run(["true"], check=True)


@task
def by_runner() -> None:
    """Run the same app without the adapter."""
    runner = host_runner("prefect")
    runner.wait(runner.run(app(), "local"))


@task
def shell() -> None:
    """Run the command as prefect-shell does."""
    ShellOperation(commands=["true"], stream_output=False).run()


def _seconds(action: object) -> float:
    start = time.perf_counter()
    action()  # type: ignore[operator]
    return time.perf_counter() - start


@flow
def overhead() -> list[float]:
    """Measure each kind in turn, in one flow run."""
    kinds = (ours, bare, plain, shell, by_runner)
    for each in kinds * WARM:  # what is imported, connected or started once
        each()
    measures = [lambda each=each: _seconds(each) for each in kinds]
    return interleaved(TIMES, *measures)


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def many(runner: object, each: object, *arguments: object) -> tuple[float, int, float]:
    """Run a hundred at once; return seconds, most threads more than before, MiB more than
    before.
    """
    peak = [0]
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.02):
            peak[0] = max(peak[0], threading.active_count())

    @flow(task_runner=runner)  # type: ignore[arg-type]
    def work() -> None:
        each.map(*arguments).result()  # type: ignore[attr-defined]

    before, memory = threading.active_count(), _resident()
    watcher = threading.Thread(target=look)
    watcher.start()
    seconds = _seconds(work)
    stop.set()
    watcher.join()
    return seconds, peak[0] - before - 1, _resident() - memory


@task
def sleeper(command: str, argument: str) -> None:
    """Run a sleep as a plain task does."""
    subprocess.run([command, argument], check=True)


def server() -> contextlib.AbstractContextManager[None]:
    """Return what starts a server and ends it; nothing where one is named."""
    if os.environ.get("PREFECT_API_URL"):
        return contextlib.nullcontext()
    from prefect.testing.utilities import prefect_test_harness

    return prefect_test_harness(server_startup_timeout=180)


def main() -> None:
    """Measure, and print JSON."""
    with (
        tempfile.TemporaryDirectory(prefix="tl-bench-", ignore_cleanup_errors=True) as home,
        server(),
    ):
        os.environ["TRANSLOAD_HOME"] = home
        rows = measured()
    report(rows, peer="a plain task that starts the command, or what the figure names")


def measured() -> list[dict]:
    """Return all figures."""
    from prefect.task_runners import ThreadPoolTaskRunner

    app_seconds, bare_seconds, plain_seconds, shell_seconds, runner_seconds = overhead()
    sleeps = (["sleep"] * MANY, ["1"] * MANY)
    thread_each = many(ThreadPoolTaskRunner(), sleeper, *sleeps)
    one_loop = many(AppTaskRunner(), held, *sleeps)
    return [
        figure(
            "`true` as an app, against a plain task", "s", app_seconds, plain_seconds, target=4.0
        ),
        figure(
            "the same without artifacts and events", "s", bare_seconds, plain_seconds, target=3.0
        ),
        figure(
            "`true` as an app, against prefect-shell", "s", app_seconds, shell_seconds, target=1.35
        ),
        figure(
            "`true` as an app, against `Runner` in a plain task",
            "s",
            app_seconds,
            runner_seconds,
            target=1.5,
        ),
        figure(f"{MANY} at once of `sleep 1`", "s", one_loop[0], thread_each[0], target=2.0),
        figure(
            f"{MANY} at once, threads more than before",
            "threads",
            one_loop[1],
            thread_each[1],
            target=0.2,
        ),
        figure(
            f"{MANY} at once, memory more than before",
            "MiB",
            one_loop[2],
            thread_each[2],
            target=1.0,
        ),
    ]


if __name__ == "__main__":
    main()
