"""What an app costs in a Prefect flow, over a plain task that runs the command, and over prefect-shell; many at once.

What the adapter adds is the ratio to a plain task that runs the same app through `Runner`: the rest is the app's own
cost, a supervisor that outlives the flow.

Needs a Prefect server (``PREFECT_API_URL``) and an environment with transload-prefect and prefect-shell.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
import warnings
from pathlib import Path

from measure import figure, interleaved, report
from prefect import flow, task
from prefect_shell import ShellOperation

from transload.pipelines import host_runner
from transload.specs import AppDef, Role
from transload_prefect import AppTaskRunner, app_task

warnings.simplefilter("ignore")
TIMES = 9
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
    for each in kinds:
        each()
    measures = [lambda each=each: _seconds(each) for each in kinds]
    return interleaved(TIMES, *measures)


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def many(runner: object, each: object, *arguments: object) -> tuple[float, int, float]:
    """Run a hundred at once; return seconds, most threads more than before, MiB more than before."""
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


def main() -> None:
    """Measure, and print JSON."""
    with tempfile.TemporaryDirectory(prefix="tl-bench-", ignore_cleanup_errors=True) as home:
        os.environ["TRANSLOAD_HOME"] = home
        rows = measure()
    report(rows)


def measure() -> list[dict[str, object]]:
    """Return the figures."""
    from prefect.task_runners import ThreadPoolTaskRunner

    app_seconds, bare_seconds, plain_seconds, shell_seconds, runner_seconds = overhead()
    sleeps = (["sleep"] * MANY, ["1"] * MANY)
    thread_each = many(ThreadPoolTaskRunner(), sleeper, *sleeps)
    one_loop = many(AppTaskRunner(), held, *sleeps)
    return [
        figure("app as a task ÷ plain task", "s", app_seconds, plain_seconds, target=4.0),
        figure("the same without artifacts and events", "s", bare_seconds, plain_seconds, target=3.0),
        figure("app as a task ÷ prefect-shell", "s", app_seconds, shell_seconds, target=1.0),
        figure("app as a task ÷ the same app by Runner in a plain task", "s", app_seconds, runner_seconds, target=1.5),
        figure(f"{MANY} at once, sleep 1: seconds", "s", one_loop[0], thread_each[0], target=2.0),
        figure(f"{MANY} at once: more threads", "threads", one_loop[1], thread_each[1], target=0.2),
        figure(f"{MANY} at once: more memory", "MiB", one_loop[2], thread_each[2], target=1.0),
    ]


if __name__ == "__main__":
    main()
