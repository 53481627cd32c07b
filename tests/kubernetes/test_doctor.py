"""What doctor tells of a cluster, and what rights a user needs. In every test here the user has
just those.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from transload.errors import ConfigError, SchedulerUnavailable
from transload.runner import Runner
from transload_kubernetes.diagnose import EXEC, OBSERVE, QUEUE, SUBMIT
from transload_kubernetes.scheduler import create_scheduler

PAGE = Path(__file__).parents[2] / "docs/schedulers/kubernetes.md"


def told(scheduler: Any) -> dict[str, tuple[bool, str]]:
    """Return what doctor says, by check."""
    return {name: (ok, details) for name, ok, details in scheduler.diagnose()}


def test_doctor(scheduler: Any) -> None:
    """Doctor names the server, its version and the user's rights."""
    checks = told(scheduler)
    assert checks["cluster"][0] and "1.33" in checks["cluster"][1]
    assert checks["user"] == (True, "as tester")
    assert checks["jobset"] == (True, "installed")
    for what in ("observe", "submit"):
        assert checks[what] == (True, "this user has all rights for it in namespace default")


@pytest.mark.parametrize(
    ("part", "what", "verbs"),
    [
        (name, *each)
        for name, part in (("observe", OBSERVE), ("submit", SUBMIT))
        for each in part.items()
    ],
)
def test_every_missing_right_is_named(
    fake: Any, scheduler: Any, part: str, what: tuple[str, str], verbs: tuple[str, ...]
) -> None:
    """A right that is needed and missing is named, with the namespace."""
    fake.cluster.rights -= {
        (*what, verb) for verb in verbs if verb != "list" or what[1] != "jobsets"
    }
    missing = ", ".join(verb for verb in verbs if verb != "list" or what[1] != "jobsets")
    well, found = told(scheduler)[part]
    assert not well
    assert f"lacks rights in namespace default: {missing} {what[1]}; ask the cluster's" in found
    assert f"the Role transload-{part} of docs/schedulers/kubernetes.md#rights" in found


def test_jobsets_that_may_not_be_seen(fake: Any, scheduler: Any) -> None:
    """Without JobSets, which are optional, no right on them is missing."""
    fake.cluster.rights = {each for each in fake.cluster.rights if each[1] != "jobsets"}
    checks = told(scheduler)
    assert checks["submit"][0] and checks["jobset"] == (
        True,
        "not installed, or this user may not see it",
    )


def test_the_configured_namespace_is_looked_at(
    fake: Any, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights are asked for where apps go, which the settings say."""
    monkeypatch.setenv("TRANSLOAD_SETTINGS", "schedulers.kubernetes.namespace = 'team'")
    checks = told(runner.scheduler("kubernetes"))
    assert checks["submit"] == (True, "this user has all rights for it in namespace team")
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
    made = {
        "clusters": [cluster],
        "users": [{"name": "u", "user": {}}],
        "contexts": [context],
        "current-context": "c",
    }
    (tmp_path / "config").write_text(json.dumps(made))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    scheduler = create_scheduler("tests")
    with pytest.raises(SchedulerUnavailable, match="cannot be reached: Connection refused"):
        scheduler.list()
    scheduler.close()


def test_the_page_has_the_same_rights() -> None:
    """The Roles that the page tells to apply are those of the code."""
    text = PAGE.read_text(encoding="utf-8")
    assert (
        yaml.safe_dump(
            _role("transload-observe", OBSERVE, QUEUE), sort_keys=False, default_flow_style=None
        )
        in text
    )
    assert (
        yaml.safe_dump(
            _role("transload-submit", OBSERVE, QUEUE, SUBMIT),
            sort_keys=False,
            default_flow_style=None,
        )
        in text
    )
    rights = yaml.safe_dump(_role("transload-exec", EXEC), sort_keys=False, default_flow_style=None)
    assert rights in text


def _role(name: str, *parts: Any) -> dict[str, Any]:
    """Return a Role with these rights."""
    found: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for what, verbs in part.items():
            found.setdefault(what, []).extend(
                verb for verb in verbs if verb not in found.get(what, ())
            )
    rules = [
        {"apiGroups": [group], "resources": [kind], "verbs": verbs}
        for (group, kind), verbs in found.items()
    ]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    return {**head, "metadata": {"name": name}, "rules": rules}
