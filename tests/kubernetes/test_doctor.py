"""What doctor tells of a cluster, and what rights a user needs. In every test here the user has just those."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, SchedulerUnavailable
from transload_kubernetes.diagnose import JOBSET_RIGHTS, RIGHTS
from transload_kubernetes.scheduler import create_scheduler

PAGE = Path(__file__).parents[2] / "docs/kubernetes.md"


def told(scheduler: Any) -> dict[str, tuple[bool, str]]:
    """Return what doctor says, by check."""
    return {name: (ok, details) for name, ok, details in scheduler.diagnose()}


def test_doctor(scheduler: Any) -> None:
    """Doctor names the server, its version and the user's rights."""
    checks = told(scheduler)
    assert checks["cluster"][0] and "1.33" in checks["cluster"][1]
    assert checks["user"] == (True, "as tester")
    assert checks["jobset"] == (True, "installed")
    assert checks["rights"] == (True, "in namespace default this user may do all that is needed")


@pytest.mark.parametrize(("what", "verbs"), RIGHTS.items())
def test_every_missing_right_is_named(fake: Any, scheduler: Any, what: tuple[str, str], verbs: tuple[str, ...]) -> None:
    """A right that is needed and missing is named, with the namespace."""
    fake.cluster.rights -= {(*what, verb) for verb in verbs}
    expected = f"in namespace default this user may not: {', '.join(verbs)} {what[1]}"
    assert told(scheduler)["rights"] == (False, expected)


def test_jobsets_that_may_only_be_read(fake: Any, scheduler: Any) -> None:
    """JobSets are optional: what is missing for them is told, and no failure."""
    fake.cluster.rights -= {("jobset.x-k8s.io", "jobsets", "create"), ("jobset.x-k8s.io", "jobsets", "delete")}
    ok, details = told(scheduler)["jobset"]
    assert ok and "may not: create, delete jobsets" in details


def test_the_configured_namespace_is_looked_at(
    fake: Any, scheduler: Any, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights are asked for where apps go, which the settings say."""
    monkeypatch.setenv("TRANSLOAD_CFG_KUBERNETES_NAMESPACE", "team")
    assert told(scheduler)["rights"] == (True, "in namespace team this user may do all that is needed")
    assert any("/namespaces/team/jobsets" in each for each in fake.cluster.requests)


@pytest.mark.parametrize("text", ["{{{:", "just text", "clusters: 1"])
def test_a_configuration_that_cannot_be_read(
    scheduler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It is named in one line, whatever the client makes of it."""
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(ConfigError, match="onfigur") as caught:
        scheduler.list()
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)
    ok, details = told(scheduler)["cluster"]
    assert not ok and str(tmp_path) in details


def test_nobody_listens(tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says why in few words, not through how many layers that came."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{free_port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    made = {"clusters": [cluster], "users": [{"name": "u", "user": {}}], "contexts": [context], "current-context": "c"}
    (tmp_path / "config").write_text(json.dumps(made))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    scheduler = create_scheduler("tests")
    with pytest.raises(SchedulerUnavailable, match="cannot be reached: Connection refused"):
        scheduler.list()
    scheduler.close()


def test_the_page_lists_the_same_rights() -> None:
    """The table of the page is that of the code."""
    rows = []
    for (group, resource), verbs in (*RIGHTS.items(), *JOBSET_RIGHTS.items()):
        shown = group or '""'
        rows.append(f"| `{shown}` | `{resource}` | {', '.join(f'`{verb}`' for verb in verbs)} |")
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("| API group |") :].split("\n\n")[0].splitlines()[2:]
    assert table == rows
