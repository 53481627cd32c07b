"""A task of a real Airflow: scheduler, triggerer, DAG processor and API server."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import row

sys.path.insert(0, str(row.TESTS / "airflow"))

os.environ["AIRFLOW_HOME"] = os.environ["TRANSLOAD_HOME"] + "/airflow"

from airflow_server import AirflowServer

server = AirflowServer(Path(os.environ["AIRFLOW_HOME"]), row.EXAMPLE, {})
try:
    server.start()
    began = time.monotonic()
    run = server.trigger("everywhere")
    host_state = run.wait("success", task_id="digits", timeout=180)
    found = run.xcom(task_id="digits")
    accuracy = found["results"]["final"]["accuracy"]
    row.emit("Airflow", found["handle"], found["state"], host_state, accuracy, time.monotonic() - began)
finally:
    server.stop()
