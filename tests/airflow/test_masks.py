"""What Airflow hides in the log of a task is hidden in what its trigger hands on, and no line of
that is lost.
"""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from airflow_server import AirflowServer

from transload.specs import AppDef, Role
from transload_airflow.masks import Reads


class Access:
    """Stands for Airflow's access to variables or connections."""

    def __getattr__(self, name: str) -> str:
        return f"value of {name}"

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value."""
        return default or f"value of {name}"


def test_reads_are_noted() -> None:
    """Names of variables and connections are noted as templates ask for them, but not values."""
    context = {"var": {"value": Access(), "json": Access()}, "conn": Access(), "ds": "2024-01-01"}
    reads = Reads()
    noting = reads.noting(context)
    assert noting["var"]["value"].one == "value of one"
    assert noting["var"]["value"].get("two", "else") == "else"
    assert noting["var"]["json"].three == "value of three"
    assert noting["conn"].get("four") == "value of four"
    assert noting["conn"].four == "value of four"
    assert not hasattr(noting["conn"], "__html__")
    assert noting["ds"] == "2024-01-01"
    back = Reads.from_dict(json.loads(json.dumps({**reads.to_dict(), "later": ["x"]})))
    assert back == reads == Reads(["one", "two"], ["three"], ["four"])
    assert Reads().noting({}) == {}


def test_sources_of_an_app(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A job's secrets are hidden where they can be read, as variables or files, line by line."""
    hidden: list[str] = []
    monkeypatch.setattr("airflow.sdk.log.mask_secret", hidden.append)
    monkeypatch.setenv("A_TOKEN", "sesame")
    (tmp_path / "key").write_text("first line\nsecond line\n")
    sources = {"A": "env:A_TOKEN", "B": "env:NOT_SET", "C": "file:key", "D": "k8s:NAME/KEY"}
    reads = Reads()
    reads.add_sources(
        AppDef("app", [Role("main", "", entrypoint="x", secrets=sources)]), str(tmp_path)
    )
    assert reads.sources == ["env:A_TOKEN", "env:NOT_SET", f"file:{tmp_path}/key", "k8s:NAME/KEY"]
    reads.hide_sources()
    assert sorted(hidden) == sorted(
        ["sesame", "first line\nsecond line", "first line", "second line"]
    )


async def test_what_cannot_be_read_stops_no_trigger(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A trigger that cannot read a variable says so, and goes on."""

    def fail(*args: Any, **more: Any) -> None:
        raise OSError("no answer")

    monkeypatch.setattr("transload_airflow.masks.Variable", SimpleNamespace(get=fail))
    await Reads(variables=["one"]).hide_all_async(logging.getLogger("test"))
    assert "no answer" in caplog.text


@pytest.mark.slow
def test_on_a_real_airflow(airflow: AirflowServer) -> None:
    """Secrets of templates and of the job are hidden, in the worker and in the triggerer.

    Long lines come whole.
    """
    hidden, long = airflow.trigger("hidden"), airflow.trigger("long_lines")
    for mode in ("sync", "deferrable"):
        hidden.wait("success", task_id=mode)
        log = hidden.log(mode)
        assert "main/0 told *** *** ***" in log
        assert "main/0 late told *** *** ***" in log
        for secret in ("tell-nobody-77", "plaice-and-chips", "open-sesame-7"):
            assert secret not in log
    assert "trigger" in hidden.log("deferrable")
    long.wait("success")
    lines = [
        line.removeprefix("main/0 ")
        for line in long.log().splitlines()
        if line.startswith("main/0 ")
    ]
    assert lines.count("between") == 3
    for length in (100_000, 1_300_000):
        assert "".join(lines).count(f"<{length}>" + "x" * length) == 3
    assert "Malformed json log" not in (airflow.home / "triggerer.log").read_text(errors="replace")
