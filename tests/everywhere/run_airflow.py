"""Tasks of a real Airflow: scheduler, triggerer, DAG processor and API server."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from row import ENGINES, EXAMPLE, TESTS, Cell

sys.path.insert(0, str(TESTS / "airflow"))
os.environ["AIRFLOW_HOME"] = os.environ["TRANSLOAD_HOME"] + "/airflow"

from airflow_server import AirflowServer

home = Path(os.environ["AIRFLOW_HOME"])
dags = home.with_name("dags")
dags.mkdir()
for file in (EXAMPLE / "job.py", Path(__file__).with_name("matrix_dag.py")):
    shutil.copy(file, dags)
server = AirflowServer(home, dags, {})
try:
    server.start()
    cells = [(Cell("Airflow", engine), engine) for engine in ENGINES]
    run = server.trigger("matrix")
    for cell, engine in cells:
        said = run.wait("success", task_id=engine, timeout=300)
        found = run.xcom(task_id=engine)
        accuracy = found["results"]["final"]["accuracy"]
        cell.emit(found["handle"], found["state"], said, accuracy, run.log(engine))
finally:
    server.stop()
