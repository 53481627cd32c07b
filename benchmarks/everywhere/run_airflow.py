"""Tasks of a real Airflow: scheduler, triggerer, DAG processor and API server; its connections lead
to the engines.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

from row import ENGINES, EXAMPLE, TESTS, Cell, cancelled, jobs, tried_again, until

sys.path.insert(0, str(TESTS))
sys.path.insert(0, str(TESTS / "airflow"))
os.environ["AIRFLOW_HOME"] = os.environ["TRANSLOAD_HOME"] + "/airflow"

from airflow_server import AirflowServer, Run
from warm import AIRFLOW_TASKS

from transload.runner import get_runner

home = Path(os.environ["AIRFLOW_HOME"])
dags = home.with_name("dags")
dags.mkdir()
for file in (
    EXAMPLE / "job.py",
    *(Path(__file__).with_name(name) for name in ("matrix_dag.py", "short.py")),
):
    shutil.copy(file, dags)
server = AirflowServer(home, dags, {}, AIRFLOW_TASKS)


def connection(engine: str) -> dict[str, str]:
    """Return a connection that leads to an engine: what the settings of this machine say of its
    kind is all in it.
    """
    settings = tomllib.loads(Path(os.environ["TRANSLOAD_CONFIG"]).read_text())
    table = settings.get("schedulers", {}).get(engine, {})
    kind = table.pop("kind", engine)
    leads = set(get_runner().scheduler(kind).connection.table())
    extra = {"kind": kind, **{name: table.pop(name) for name in leads & set(table)}, "cfg": table}
    if engine == "docker":
        extra["docker_host"] = os.environ["DOCKER_HOST"]
    if "kubeconfig" in extra:
        extra["kubeconfig"] = Path(extra["kubeconfig"]).read_text()
    return {"connection_id": f"the_{engine}", "conn_type": "transload", "extra": json.dumps(extra)}


def tell(run: Run) -> None:
    """Write what each task of a run came to, and the end of its log, to stderr."""
    for word in ("", "endless_", "failing_"):
        for engine in ENGINES:
            task = run.task(f"{word}{engine}")
            told = {
                name: task[name]
                for name in ("state", "try_number", "start_date", "end_date", "trigger")
            }
            log = run.log(f"{word}{engine}").strip().splitlines()[-6:]
            print(
                f"{word}{engine}: {told}",
                *(f"    {line[-300:]}" for line in log),
                sep="\n",
                file=sys.stderr,
            )


run = None
try:
    server.start()
    for engine in ENGINES:
        server.call("POST", "/api/v2/connections", connection(engine))
    cells = [(Cell("Airflow", engine), engine) for engine in ENGINES]
    run = server.trigger("matrix")
    for engine in ENGINES:
        task = f"endless_{engine}"
        until(lambda each=engine: "RUNNING" in jobs("airflow", each, "endless"), f"{task} runs")
        until(lambda each=task: run.task(each)["triggerer_job"], f"the triggerer has {task}")
        run.mark("failed", task)
    for cell, engine in cells:
        run.wait("failed", task_id=f"failing_{engine}", timeout=300)
        cell.also(
            cancel=cancelled("airflow", engine),
            retry=tried_again("airflow", engine),
            waiter="triggerer",
        )
        said = run.wait("success", task_id=engine, timeout=300)
        found = run.xcom(task_id=engine)
        accuracy = found["results"]["final"]["accuracy"]
        cell.emit(found["handle"], found["state"], said, accuracy, run.log(engine))
except BaseException:
    if run is not None:
        tell(run)
    raise
finally:
    server.stop()
