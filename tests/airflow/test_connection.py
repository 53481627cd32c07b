"""A connection as a cluster, on a real Airflow: what its API server does with it."""

from __future__ import annotations

import json

import pytest
from airflow_server import AirflowServer

pytestmark = pytest.mark.timeout(280)


def test_button_test(airflow: AirflowServer) -> None:
    """The button *Test* of the form, as the interface calls it."""
    body = {"connection_id": "x", "conn_type": "transload", "extra": json.dumps({"kind": "local"})}
    answer = airflow.call("POST", "/api/v2/connections/test", body)
    assert (answer["status"], "local" in answer["message"]) == (True, True), answer
    wrong = {**body, "extra": json.dumps({"kind": "lokal"})}
    answer = airflow.call("POST", "/api/v2/connections/test", wrong)
    assert (answer["status"], "lokal" in answer["message"]) == (False, True), answer
