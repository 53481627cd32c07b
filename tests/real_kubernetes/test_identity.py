"""A real cluster is asked from inside of a pod, and for somebody else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from transload.errors import SchedulerUnavailable, SubmitError
from transload.runner import Runner, load_settings, log_lines
from transload.schedulers.api import Submission
from transload.specs import AppDef, AppState, BindMount, Role

IMAGE = os.environ.get("REAL_IMAGE", "transload-test:1")
CFG: dict[str, Any] = {"image_pull_policy": "IfNotPresent"}
INSIDE = """
import sys
from transload.runner import get_runner
from transload.specs import AppDef, Role
namespace, image = sys.argv[1:]
app = AppDef("inner", [Role("main", image, entrypoint="echo", args=["from within"])])
with get_runner() as runner:
    handle = runner.run(app, "kubernetes", {"namespace": namespace, "image_pull_policy": "IfNotPresent"})
    print(runner.wait(handle, timeout=60).state.name, *runner.log_lines(handle, "main", 0))
"""


@pytest.mark.skipif(
    "REAL_CLUSTER" not in os.environ, reason="the cluster's node has not this machine's Python"
)
def test_inside_of_a_pod(
    cluster: Any, namespace: str, scheduler: Any, eventually: Any, tmp_path: Path
) -> None:
    """A pod's service account, bound to the documented Roles, is enough to run an app from
    within.
    """
    cluster.user(namespace, tmp_path, "transload-submit", "inside")
    folders = {sys.prefix, sys.base_prefix, *(path for path in sys.path if path.endswith("/src"))}
    role = Role("main", IMAGE, entrypoint=sys.executable, args=["-c", INSIDE, namespace, IMAGE])
    role.mounts = [BindMount(folder, folder, read_only=True) for folder in sorted(folders)]
    server = cluster.ask("GET", "/api/v1/namespaces/default/endpoints/kubernetes")["subsets"][0]
    role.env = {
        "HOME": "/tmp",
        "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR"),
        # where no proxy of Services runs, as on the smallest clusters, their addresses lead nowhere
        "KUBERNETES_SERVICE_HOST": server["addresses"][0]["ip"],
        "KUBERNETES_SERVICE_PORT": str(server["ports"][0]["port"]),
    }
    cfg = scheduler.run_opts().resolve({**CFG, "namespace": namespace, "service_account": "inside"})
    app = AppDef("outer", [role])
    app_id = f"{namespace}:outer"
    scheduler.submit(
        scheduler.convert(app, cfg),
        app_id,
        Submission(app, app.digest(), "tests", cfg, id_given=True),
    )
    found = eventually(lambda: (it := scheduler.describe(app_id).status).is_terminal() and it, 100)
    lines = list(log_lines(scheduler, app_id, "main", 0))
    assert (found.state, lines) == (AppState.SUCCEEDED, ["SUCCEEDED from within\n", "\n"]), "".join(
        lines
    )


def test_for_somebody_else(
    cluster: Any, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who acts for a reader can do what that one can, though one could do everything oneself."""
    from transload_kubernetes.scheduler import create_scheduler

    cluster.user(namespace, tmp_path, "transload-observe")
    configuration = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    configuration["users"][0]["user"]["as"] = f"system:serviceaccount:{namespace}:transload-observe"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "as"))
    (tmp_path / "as").write_text(yaml.safe_dump(configuration))
    reader = create_scheduler("reader")
    assert reader.list() == []
    checks = {name: (ok, text) for name, ok, text in reader.diagnose()}
    assert (
        checks["user"][1].endswith(f"{namespace}:transload-observe")
        and checks["observe"][0]
        and not checks["submit"][0]
    )
    cfg = reader.run_opts().resolve({**CFG, "namespace": namespace})
    app = AppDef("a", [Role("main", IMAGE, entrypoint="true")])
    with pytest.raises(Exception, match="cannot create") as caught:
        reader.submit(
            reader.convert(app, cfg), f"{namespace}:a", Submission(app, app.digest(), "tests", cfg)
        )
    assert not isinstance(caught.value, SchedulerUnavailable)
    reader.close()


def test_a_credential_plugin(
    cluster: Any, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token of a plugin (``exec``) is what the cluster takes, and it is asked again when the
    token is over.
    """
    from transload_kubernetes.scheduler import create_scheduler

    configuration = yaml.safe_load(
        cluster.user(namespace, tmp_path, "transload-observe").read_text()
    )
    token = configuration["users"][0]["user"]["token"]
    (tmp_path / "plugin").write_text(f"""#!/bin/sh
echo x >> {tmp_path}/asked
[ $(wc -l < {tmp_path}/asked) = 1 ] && until=2000-01-01T00:00:00Z || until=2100-01-01T00:00:00Z
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {{"token": "{token}", "expirationTimestamp": "'$until'"}}}}'
""")
    (tmp_path / "plugin").chmod(0o755)
    plugin = {"command": str(tmp_path / "plugin"), "interactiveMode": "Never"}
    plugin["apiVersion"] = "client.authentication.k8s.io/v1"
    configuration["users"][0]["user"] = {"exec": plugin}
    monkeypatch.delenv("KUBECONFIG")
    reader = create_scheduler("reader")
    reader.connect({"kubeconfig": yaml.safe_dump(configuration)})
    checks = {name: (ok, text) for name, ok, text in reader.diagnose()}
    assert checks["user"][1].endswith(f"{namespace}:transload-observe") and checks["observe"][0]
    assert (tmp_path / "asked").read_text() == "x\nx\n"
    reader.close()


def test_several_users_at_once(
    cluster: Any,
    namespace: str,
    transload_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two contexts of one file are two clusters by name, with other users in one process."""
    owner, reader = (yaml.safe_load(Path(each).read_text()) for each in (
        os.environ["KUBECONFIG"], cluster.user(namespace, tmp_path, "transload-observe")
    ))  # fmt: skip
    both = {**owner, "users": [*owner["users"], *reader["users"]], "contexts": []}
    cluster_name = owner["clusters"][0]["name"]
    for name, user in (("east", owner), ("west", reader)):
        context = {"cluster": cluster_name, "user": user["users"][0]["name"]}
        both["contexts"].append({"name": name, "context": context})
    (tmp_path / "both").write_text(yaml.safe_dump({**both, "current-context": "west"}))
    tables = (
        f'[schedulers.{name}]\nkind = "kubernetes"\ncontext = "{name}"\nnamespace = "{namespace}"\n'
        'image_pull_policy = "IfNotPresent"\n'
        for name in ("east", "west")
    )
    (tmp_path / "settings.toml").write_text("".join(tables))
    monkeypatch.setenv("TRANSLOAD_CONFIG", str(tmp_path / "settings.toml"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "both"))
    app = AppDef("a", [Role("main", IMAGE, entrypoint="sleep", args=["300"])])
    with Runner("tests", settings=load_settings()) as runner:
        handle = runner.run(app, "east")
        seen = handle.replace("east://", "west://")
        with pytest.raises(SchedulerUnavailable, match="cannot patch"):
            runner.cancel(seen)
        with pytest.raises(SubmitError, match="cannot create"):
            runner.run(app, "west")
        runner.cancel(handle)
        assert runner.wait(handle, timeout=60).state is AppState.CANCELLED  # type: ignore[union-attr]
        assert runner.status(seen).state is AppState.CANCELLED  # type: ignore[union-attr]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_service_account_by_the_page(cluster: Any, tmp_path: Path) -> None:
    """With the reference's Roles accounts may submit in their namespace, and nowhere else."""
    docs = Path(__file__).parents[2] / "docs"
    reference = (docs / "reference" / "kubernetes.md").read_text()
    roles = reference.partition("## Rights")[2].partition("```yaml")[2].partition("```")[0]
    lines: list[str] = []
    for page, title in (
        ("start/airflow-on-kubernetes.md", "## 3. Give rights"),
        ("schedulers/kubernetes.md", "### Let an orchestrator submit from inside the cluster"),
        ("start/kubeflow.md", "## 7. Give rights"),
    ):
        text = (docs / page).read_text()
        block = text.partition(title)[2].partition("```console")[2].partition("```")[0]
        lines += [line[2:] for line in block.splitlines() if line[:2] == "$ "]
    made = cluster.namespace()
    configuration = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    for each in configuration["contexts"]:
        each["context"]["namespace"] = made
    (tmp_path / "admin").write_text(yaml.safe_dump(configuration))
    (tmp_path / "roles.yaml").write_text(roles)
    script = ["set -e", *lines]
    accounts = [f"{made}:{name}" for name in ("airflow-worker", "airflow-triggerer", "transload")]
    for account in (*accounts, "kubeflow:pipeline-runner"):
        who = f"--as=system:serviceaccount:{account}"
        script += [
            f"kubectl auth can-i create jobs {who}",
            f"kubectl auth can-i create jobs -n default {who} || true",
        ]
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "admin"), "NAMESPACE": made}
    said = subprocess.run(
        ["sh", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "serviceaccount/transload created" in said.stdout
    assert said.stdout.split()[-8:] == ["yes", "no"] * 4, said.stdout
