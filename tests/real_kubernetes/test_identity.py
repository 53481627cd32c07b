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

from transload.runner import log_lines
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
    cfg = scheduler.options.read({**CFG, "namespace": namespace, "service_account": "inside"})
    app = AppDef("outer", [role])
    app_id = f"{namespace}:outer"
    scheduler.submit(
        scheduler.convert(app, cfg),
        app_id,
        Submission(app, app.digest(), "tests", cfg.cfg(), id_given=True),
    )
    found = eventually(
        lambda: (it := scheduler.describe([app_id])[app_id].status).is_terminal() and it, 100
    )
    lines = list(log_lines(scheduler, app_id, "main", 0))
    assert (found.state, lines) == (AppState.SUCCEEDED, ["SUCCEEDED from within\n", "\n"]), "".join(
        lines
    )


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_service_account_by_the_page(cluster: Any, tmp_path: Path) -> None:
    """With the reference's Roles accounts may submit in their namespace, and nowhere else."""
    docs = Path(__file__).parents[2] / "docs"
    reference = (docs / "schedulers" / "kubernetes.md").read_text()
    roles = reference.partition("## Rights")[2].partition("```yaml")[2].partition("```")[0]
    lines: list[str] = []
    for page, title in (
        ("start/airflow-on-kubernetes.md", "## 3. Give rights"),
        ("schedulers/kubernetes.md", "### Let an orchestrator submit from inside the cluster"),
        ("orchestrators/kfp.md", "## Give rights"),
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
