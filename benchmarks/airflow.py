"""What a TransloadOperator costs, against BashOperator doing the same command in the same Airflow.

Run it in an environment with transload-airflow and Airflow (``nox -s airflow`` makes one): it
starts an Airflow of its own (SQLite, LocalExecutor, loopback), takes some minutes, and prints one
JSON object.

- overhead: seconds from the start of a task instance to its end, medians of interleaved runs of
  ``true``;
- triggerer: CPU of the triggerer with 100 deferred apps, over the same triggerer idle;
- parse: seconds to read a DAG file of 100 operators, against one of 100 BashOperators.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "airflow")]

from airflow_server import AirflowServer, Run  # noqa: E402
from measure import figure, report  # noqa: E402

RUNS = int(os.environ.get("TRANSLOAD_BENCH_RUNS", "7"))
DAGS = """
import datetime as dt
import sys
from airflow.sdk import DAG
from airflow.providers.standard.operators.bash import BashOperator
from transload.specs import AppDef, Role
from transload_testing import scripted_app
from transload_airflow import TransloadOperator

START = dt.datetime(2024, 1, 1)
TRUE = AppDef("true", [Role("main", image="", entrypoint="/bin/true")])
with DAG("bash", schedule=None, start_date=START):
    BashOperator(task_id="job", bash_command="true")
with DAG("sync", schedule=None, start_date=START):
    TransloadOperator(task_id="job", app=TRUE, deferrable=False)
with DAG("bash_second", schedule=None, start_date=START):
    BashOperator(task_id="job", bash_command="sleep 1")
SECOND = AppDef("second", [Role("main", image="", entrypoint="/bin/sleep", args=["1"])])
with DAG("sync_second", schedule=None, start_date=START):
    TransloadOperator(task_id="job", app=SECOND, deferrable=False)
with DAG("deferrable_second", schedule=None, start_date=START):
    TransloadOperator(task_id="job", app=SECOND, deferrable=True)
with DAG("bash_long", schedule=None, start_date=START):
    BashOperator(task_id="job", bash_command="sleep 12")
LONG = AppDef("long", [Role("main", image="", entrypoint="/bin/sleep", args=["12"])])
with DAG("deferrable_long", schedule=None, start_date=START):
    TransloadOperator(task_id="job", app=LONG, deferrable=True)
SLEEP = AppDef("sleep", [Role("main", image="", entrypoint="/bin/sleep", args=["{{ dag_run.conf['seconds'] }}"])])
with DAG("many", schedule=None, start_date=START, max_active_tasks=128):
    TransloadOperator.partial(task_id="job", app=SLEEP, deferrable=True).expand(scheduler=["local"] * 100)
"""
PARSED = """
import time
began = time.process_time()
from airflow.sdk import DAG
{imports}
imported = time.process_time()
with DAG("d", schedule=None):
    for number in range(100):
        {operator}
print(time.process_time() - imported)
"""
PARSES = {
    "transload": {
        "imports": "from transload_airflow import TransloadOperator\nfrom transload.specs import AppDef, Role",
        "operator": 'TransloadOperator(task_id=f"t{number}", app=AppDef("a", [Role("r", "i", entrypoint="true")]))',
    },
    "bash": {
        "imports": "from airflow.providers.standard.operators.bash import BashOperator",
        "operator": 'BashOperator(task_id=f"t{number}", bash_command="true")',
    },
}


def main() -> None:
    """Measure, and print the report."""
    rows = [parse_time()]
    home = Path(tempfile.mkdtemp(prefix="tl-bench-"))
    (home / "dags").mkdir()
    (home / "dags" / "bench.py").write_text(DAGS)
    os.environ["TRANSLOAD_HOME"] = str(home / "tl")
    server = AirflowServer(home / "airflow", home / "dags", {"TRANSLOAD_HOME": str(home / "tl")})
    try:
        server.start()
        rows += overheads(server)
        rows.append(triggerer(server))
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)
    report(
        rows,
        peer="`BashOperator` in the same Airflow; for the triggerer, a tenth of a core",
        runs=RUNS,
    )


def parse_time() -> dict[str, Any]:
    """Return what 100 operators cost in a DAG file, imports apart."""
    values: dict[str, list[float]] = {name: [] for name in PARSES}
    for _ in range(RUNS):
        for name, parts in PARSES.items():
            done = subprocess.run(
                [sys.executable, "-c", PARSED.format(**parts)],
                capture_output=True,
                text=True,
                check=True,
            )
            values[name].append(float(done.stdout.split()[-1]))
    ours, bash = (statistics.median(values[name]) for name in ("transload", "bash"))
    return figure("DAG of 100 operators, CPU", "s", round(ours, 4), round(bash, 4), target=3.0)


def overheads(server: AirflowServer) -> list[dict[str, Any]]:
    """Return seconds of a task, from its start to its end."""
    names = (
        "bash",
        "sync",
        "bash_second",
        "sync_second",
        "deferrable_second",
        "bash_long",
        "deferrable_long",
    )
    values: dict[str, list[float]] = {name: [] for name in names}
    for number in range(RUNS + 1):
        for name in names:
            run = server.trigger(name)
            run.wait("success")
            if number:  # the first of each warms caches
                values[name].append(seconds_of(run))
    middle = {name: round(statistics.median(found), 3) for name, found in values.items()}
    return [
        figure("task of `true`, waiting in place", "s", middle["sync"], middle["bash"], target=2.0),
        figure(
            "task of `sleep 1`, waiting in place",
            "s",
            middle["sync_second"],
            middle["bash_second"],
            target=1.5,
        ),
        figure(
            "task of `sleep 1`, deferrable",
            "s",
            middle["deferrable_second"],
            middle["bash_second"],
            target=1.5,
        ),
        figure(
            "task of `sleep 12`, deferred",
            "s",
            middle["deferrable_long"],
            middle["bash_long"],
            target=1.5,
        ),
    ]


def seconds_of(run: Run) -> float:
    """Return the seconds that a task took, by Airflow's own clock."""
    task = run.task()
    start, end = (dt.datetime.fromisoformat(task[name]) for name in ("start_date", "end_date"))
    return (end - start).total_seconds()


def triggerer(server: AirflowServer) -> dict[str, Any]:
    """Return the share of a core that 100 deferred apps cost the triggerer."""
    from test_limits import _cpu_seconds, _tree

    def share(seconds: float) -> float:
        before, began = sum(map(_cpu_seconds, _tree(server.pid_of("triggerer")))), time.monotonic()
        time.sleep(seconds)
        spent = sum(map(_cpu_seconds, _tree(server.pid_of("triggerer")))) - before
        return spent / (time.monotonic() - began)

    idle = share(15)
    run = server.trigger("many", {"seconds": 400})

    def deferred() -> bool:
        path = f"/api/v2/dags/many/dagRuns/{run.run_id.replace('+', '%2B')}/taskInstances?state=deferred&limit=1"
        return int(server.call("GET", path)["total_entries"]) == 100

    server.until(deferred, "100 apps are deferred", 380)
    busy = share(20)
    cancel_all()
    name = "triggerer with 100 deferred apps, share of a core over idle"
    return figure(name, "cores", round(busy - idle, 4), 0.10, target=1.0, idle=round(idle, 4))


def cancel_all() -> None:
    """End the apps that are still asleep."""
    from transload.runner import Runner

    with Runner("airflow") as runner:
        for app in runner.list("local"):
            runner.cancel(app.app_handle)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        raise SystemExit(json.dumps({"error": "takes no arguments"}))
    main()
