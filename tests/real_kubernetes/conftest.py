"""Each test gets a namespace of a real cluster, named by REAL_KUBECONFIG, without remains."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
"""An image with a shell and Python that the cluster has, or can pull."""
PAGE = Path(__file__).parents[2] / "docs" / "schedulers" / "kubernetes.md"
OF_A_POD = {
    *(
        "test_cursor_in_another_process",
        "test_death_by_signal",
    ),
    *(
        "test_environment",
        "test_exception_of_a_program",
        "test_last_line_without_newline",
        "test_last_lines",
    ),
    *(
        "test_out_of_memory_is_named",
        "test_pages",
        "test_program_that_does_not_exist",
        "test_read_while_it_runs",
    ),
    *(
        "test_regex",
        "test_secrets_reach_the_job_and_nothing_else",
        "test_silent_replica",
        "test_tail",
    ),
    *("test_times_of_lines", "test_unknown_replica", "test_unusual_lines", "test_usage"),
    *("test_variables_are_passed_by_pattern", "test_what_a_program_says_of_its_failure"),
}
"""Tests of the suite that look into a pod, which are slow ones with JobSets."""
_GONE_S = 60.0
_BEGAN = time.monotonic()
_PREFIXES = {"": "/api/v1", "batch": "/apis/batch/v1", "jobset": "/apis/jobset.x-k8s.io/v1alpha2"}


class RealCluster:
    """The cluster as its administrator sees it.

    Args:
        kubeconfig: file of the client's configuration.
    """

    def __init__(self, kubeconfig: str) -> None:
        from kubernetes import config  # noqa: TID251 - the tests of the plugin may

        self._client = config.new_client_from_config(kubeconfig)
        self.kubeconfig = kubeconfig
        self.made: list[str] = []

    def ask(self, verb: str, path: str, body: Any = None, **query: Any) -> Any:
        """Send one request as it is, and return what came back."""
        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        keys = {
            each["key"]: each["value"]
            for each in self._client.configuration.auth_settings().values()
        }
        url = f"{self._client.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = None if body is None else json.dumps(body)
        pool = self._client.rest_client.pool_manager
        answer = pool.request(
            verb,
            url,
            body=sent,
            headers={"Content-Type": kind, "Accept": "application/json", **keys},
        )
        assert answer.status < 300, (
            f"{verb} {path}: {answer.status} {answer.data.decode(errors='replace')}"
        )
        return json.loads(answer.data)

    def items(self, namespace: str, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind, such as ``pods`` or ``batch/jobs``."""
        group, _, plural = kind.rpartition("/")
        found: list[dict[str, Any]] = self.ask(
            "GET", f"{_PREFIXES[group]}/namespaces/{namespace}/{plural}"
        )["items"]
        return found

    def namespace(self, **labels: str) -> str:
        """Make a namespace, and wait until pods can be made in it."""
        name = f"transload-{uuid.uuid4().hex[:10]}"
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        self.made.append(name)
        deadline = time.monotonic() + _GONE_S
        while not self.items(name, "serviceaccounts"):
            assert time.monotonic() < deadline, f"namespace {name} got no service account"
            time.sleep(0.05)
        return name

    def remove(self) -> None:
        """Delete the namespaces that were made, with what is in them."""
        for name in self.made:
            # what still runs need not have its grace period
            self.ask("DELETE", f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
            self.ask("DELETE", f"/api/v1/namespaces/{name}")

    def user(self, namespace: str, folder: Path, role: str, name: str = "") -> Path:
        """Make a user with one of the documented Roles in a namespace, and return its kubeconfig.

        Args:
            namespace: the namespace.
            folder: where the file is written.
            role: name of the Role.
            name: of the user, by default that of the Role.
        """
        name = name or role
        self.ask(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}}
        )
        rules = self.grant(namespace, name, role)
        token = self.ask(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", {}
        )["status"]["token"]
        configuration = yaml.safe_load(Path(self.kubeconfig).read_text())
        configuration["users"] = [{"name": name, "user": {"token": token}}]
        current = next(
            c for c in configuration["contexts"] if c["name"] == configuration["current-context"]
        )
        current["context"]["user"] = name
        path = folder / name
        path.write_text(yaml.safe_dump(configuration))
        self._await_rights(namespace, name, rules[0])
        return path

    def grant(self, namespace: str, account: str, role: str) -> list[dict[str, Any]]:
        """Give an account one of the documented Roles, and return its rules."""
        rights = (
            PAGE.read_text().partition("## Rights")[2].partition("```yaml")[2].partition("```")[0]
        )
        documented = next(
            each for each in yaml.safe_load_all(rights) if each["metadata"]["name"] == role
        )
        name = f"{account}-{role}"
        documented["metadata"]["name"] = name
        api = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        self.ask("POST", f"{api}/roles", documented)
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        self.ask(
            "POST",
            f"{api}/rolebindings",
            {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference},
        )
        rules: list[dict[str, Any]] = documented["rules"]
        return rules

    def _await_rights(self, namespace: str, account: str, rule: dict[str, Any]) -> None:
        """Wait until the server grants what a new Role says."""
        action = {
            "namespace": namespace,
            "group": rule["apiGroups"][0],
            "resource": rule["resources"][0],
        }
        asked = {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "resourceAttributes": action | {"verb": rule["verbs"][0]},
        }
        deadline = time.monotonic() + _GONE_S
        while not self.ask(
            "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": asked}
        )["status"]["allowed"]:
            assert time.monotonic() < deadline, f"{account} was not given its rights in {namespace}"
            time.sleep(0.05)

    def wait_removed(self) -> None:
        """Wait until the namespaces are gone."""
        deadline = time.monotonic() + _GONE_S
        while left := {
            each["metadata"]["name"] for each in self.ask("GET", "/api/v1/namespaces")["items"]
        } & {*self.made}:
            assert time.monotonic() < deadline, f"namespaces are still there: {left}"
            time.sleep(0.2)


@pytest.fixture(autouse=True)
def short_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods without a notice are killed two seconds after SIGTERM, which many shells do not heed."""
    monkeypatch.setattr("transload_kubernetes.pod._GRACE_S", 2)


@pytest.fixture(scope="session")
def _cluster() -> Iterator[RealCluster]:
    cluster = RealCluster(os.environ["REAL_KUBECONFIG"])
    yield cluster
    cluster.wait_removed()


@pytest.fixture
def cluster(_cluster: RealCluster) -> Iterator[RealCluster]:
    """Return the real cluster. Namespaces of a test are removed when it is over."""
    before = len(_cluster.made)
    yield _cluster
    _cluster.made, others = _cluster.made[before:], _cluster.made[:before]
    _cluster.remove()
    _cluster.made = others + _cluster.made


@pytest.fixture
def namespace(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """A namespace of the test's own, in which job ids without one are too, and a user with the
    documented rights.
    """
    from transload_kubernetes import names

    made = cluster.namespace()
    user = cluster.user(made, tmp_path_factory.mktemp("user"), "transload-submit")
    cluster.grant(made, "transload-submit", "transload-exec")
    monkeypatch.setenv("KUBECONFIG", str(user))
    monkeypatch.setattr(names, "DEFAULT_NAMESPACE", made)
    return made


@pytest.fixture
def scheduler(namespace: str) -> Iterator[Any]:
    """A scheduler on the real cluster."""
    from transload_kubernetes.scheduler import create_scheduler

    made = create_scheduler("tests")
    yield made
    made.close()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test when the seconds are over that REAL_SECONDS gives all of them together."""
    limit = os.environ.get("REAL_SECONDS")
    if limit and time.monotonic() - _BEGAN > float(limit):
        pytest.skip(f"not run: kubernetes: the {limit} s that all of it may take were over")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these tests need a cluster."""
    for item in items:
        if "real_kubernetes" in str(item.path):
            item.add_marker(pytest.mark.engine("kubernetes"))
        # back-offs of a cluster are long: one of each kind is enough for every day
        if "::test_retries" in item.nodeid and "TestJobs::test_retries[REPLICA]" not in item.nodeid:
            item.add_marker(pytest.mark.slow)
        if "::TestJobSets" in item.nodeid and getattr(item, "originalname", "") in OF_A_POD:
            item.add_marker(pytest.mark.slow)
