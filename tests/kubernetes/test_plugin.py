"""The plugin has one name, and imports nothing heavy until a job is run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.plugins import Plugins


def test_name() -> None:
    """``kubernetes`` is registered, through the entry point."""
    plugins = Plugins([("kubernetes", "transload_kubernetes.plugin", "transload-kubernetes", "0")])
    assert "kubernetes" in plugins.names("schedulers")
    assert plugins.get("schedulers", "kubernetes")("session").name == "kubernetes"
    made = plugins.get("schedulers", "kubernetes")("session", name="prod")
    made.connect(made.connection.read({"context": "eu", "kubeconfig": "/k"}))
    assert (made.name, made.location()) == ("prod", "context eu of /k")


def test_dry_run_imports_no_client() -> None:
    """Neither the plugin, nor a scheduler, nor a conversion imports the client."""
    code = (
        "import sys, transload_kubernetes.plugin\n"
        "from transload_kubernetes.scheduler import create_scheduler\n"
        "from transload.specs import AppDef, Role\n"
        "s = create_scheduler('x')\n"
        "s.format_request(s.convert(AppDef('a', [Role('r', 'i', entrypoint='e')]), "
        "s.options.read({})))\n"
        "print(s.reach, *sorted({'kubernetes', 'urllib3'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("network", "")


IN_A_POD = """
import sys
from transload_kubernetes import access
access.ACCOUNT = sys.argv[1]
from transload.runner import Runner
from transload.specs import AppDef, Role
job = AppDef("a", [Role("r", "i", entrypoint="true")])
with Runner("pod") as runner:
    ended = runner.wait(runner.run(job, "kubernetes"), timeout=60)
print(ended.state, "kubernetes" in sys.modules)
"""


def test_a_pods_own_account_imports_no_client(
    fake: Any, tmp_path: Path, transload_home: Path
) -> None:
    """In a pod a job is submitted and followed without the client, whose import takes long."""
    variables = {**os.environ, **fake.account(tmp_path / "account", "default")}
    del variables["KUBECONFIG"]
    done = subprocess.run(
        [sys.executable, "-c", IN_A_POD, str(tmp_path / "account")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**variables, "HOME": str(tmp_path)},
    )
    assert done.stdout.strip() == "SUCCEEDED False", done.stderr


def test_ids_carry_the_namespace() -> None:
    """An id is completed once, and never twice."""
    from transload_kubernetes.scheduler import create_scheduler

    scheduler = create_scheduler("x")
    none = scheduler.options()
    assert scheduler.qualified_id("a", replace(none, namespace="team")) == "team:a"
    assert scheduler.qualified_id("team:a", replace(none, namespace="other")) == "team:a"
    assert scheduler.qualified_id("a", none) == "default:a"
    assert scheduler.results_folder("a", none) is None


def test_client_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cluster's Python client doctor says so in its row, and everything else in one
    line.
    """
    from transload_kubernetes.scheduler import create_scheduler

    monkeypatch.setitem(sys.modules, "kubernetes", None)
    ((check, ok, details),) = create_scheduler("x").diagnose()
    assert (check, ok) == ("client", False) and "cannot import" in details
    with pytest.raises(SchedulerUnavailable, match="client of kubernetes cannot be imported"):
        create_scheduler("x").list()
