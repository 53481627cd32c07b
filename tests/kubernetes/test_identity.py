"""A cluster is asked as the right user, by impersonation, plugins or its own identity."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, SchedulerUnavailable
from transload.runner import Cluster as ClusterName
from transload.runner import Runner, load_settings
from transload.specs import AppState
from transload_kubernetes.cluster import Cluster


@pytest.fixture
def seen(fake: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The headers of all requests."""
    found: list[Any] = []
    monkeypatch.setattr(fake.cluster, "heard", found.append)
    return found


def configuration(fake: Any, **user: Any) -> dict[str, Any]:
    """Return the configuration of the fake cluster, with a user."""
    made: dict[str, Any] = json.loads(fake.kubeconfig.read_text())
    made["users"][0]["user"] = user
    return made


def test_impersonation(fake: Any, tmp_path: Path, seen: list[Any]) -> None:
    """``as`` of a user in the configuration goes along with each request.

    What cannot is refused.
    """
    path = tmp_path / "config"
    path.write_text(json.dumps(configuration(fake, **{"as": "anna", "as-groups": ["a"]})))
    for given in (str(path), path.read_text()):
        cluster = Cluster(kubeconfig=given)
        cluster.version()
        cluster.close()
    assert [(each["Impersonate-User"], each["Impersonate-Group"]) for each in seen] == [
        ("anna", "a")
    ] * 2
    path.write_text(json.dumps(configuration(fake, **{"as": "anna", "as-groups": ["a", "b"]})))
    with pytest.raises(ConfigError, match="more than one as-groups"):
        Cluster(kubeconfig=str(path)).version()


def test_a_credential_plugin(fake: Any, tmp_path: Path, seen: list[Any]) -> None:
    """A token of a plugin is used until it is over, then the plugin is asked again."""
    program = tmp_path / "plugin"
    program.write_text(f"""#!/bin/sh
echo x >> {tmp_path}/asked
n=$(wc -l < {tmp_path}/asked)
[ $n = 1 ] && until=2000-01-01T00:00:00Z || until=2100-01-01T00:00:00Z
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {{"token": "'token-$n'", "expirationTimestamp": "'$until'"}}}}'
""")
    program.chmod(0o755)
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(program),
        "interactiveMode": "Never",
    }
    cluster = Cluster(kubeconfig=json.dumps(configuration(fake, exec=plugin)))
    for _ in range(3):
        cluster.version()
    cluster.close()
    tokens = [each["Authorization"] for each in seen]
    assert tokens == ["Bearer token-2"] * 3, "the first was over before it was used"


def test_inside_of_a_cluster(
    fake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Any]
) -> None:
    """Without a configuration the pod's service account is used. Without that, one line says so.

    The account's token is exchanged now and then. A context needs a file.
    """
    from transload_kubernetes import access

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="no Kubernetes cluster is configured"):
        Cluster().version()
    variables = fake.account(tmp_path / "account", "team")
    monkeypatch.setattr(access, "ACCOUNT", str(tmp_path / "account"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    cluster = Cluster()
    assert cluster.version()["major"] == "1"
    assert cluster.url == f"https://127.0.0.1:{variables['KUBERNETES_SERVICE_PORT']}"
    (tmp_path / "account" / "token").write_text("exchanged")
    cluster.version()
    assert [each["Authorization"] for each in seen] == ["Bearer a-token", "Bearer exchanged"]
    cluster.close()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    assert Cluster().url.startswith("https://[::1]:")
    with pytest.raises(ConfigError, match="there is no file"):
        Cluster("eu").version()


def test_a_text_that_is_no_configuration() -> None:
    """A text that is no configuration is named, and not shown, as it may hold secrets."""
    with pytest.raises(ConfigError, match="a configuration that was given as text") as caught:
        Cluster(kubeconfig="{hunter2").version()
    assert "hunter2" not in str(caught.value)


def test_several_clusters_at_once(
    fake: Any, tmp_path: Path, transload_home: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name is a cluster of its own, and a job's handle leads to the right one."""
    from fake_server import FakeServer  # type: ignore[import-not-found]

    (tmp_path / "other").mkdir()
    other = FakeServer(tmp_path / "other")
    settings = tmp_path / "settings.toml"
    lines = [
        f'[schedulers.{name}]\nkind = "kubernetes"\nkubeconfig = "{server.kubeconfig}"\n'
        for name, server in (("east", fake), ("west", other))
    ]
    settings.write_text("\n".join(lines))
    monkeypatch.setenv("TRANSLOAD_CONFIG", str(settings))
    monkeypatch.delenv("KUBECONFIG")
    try:
        with Runner("tests", settings=load_settings()) as runner:
            handles = [
                runner.run(shell("true"), name, app_id=f"on-{name}") for name in ("east", "west")
            ]
            assert handles == ["east://tests/default:on-east", "west://tests/default:on-west"]
            for handle, server in zip(handles, (fake, other), strict=True):
                status = runner.wait(handle, timeout=20)
                assert status is not None and status.state is AppState.SUCCEEDED
                assert [each["metadata"]["name"] for each in server.cluster.items("jobs")] == [
                    f"{handle.rpartition(':')[2]}-main"
                ]
            assert [row.app_id for row in runner.list("west")] == ["default:on-west"]
    finally:
        other.close()


def test_a_context_that_is_not_there(fake: Any, transload_home: Path, shell: Any) -> None:
    """A submit is one line that names the context and the file, and is not worth another try."""
    wrong = ClusterName(
        "prod", "kubernetes", {"context": "nope", "kubeconfig": str(fake.kubeconfig)}
    )
    with (
        Runner("tests", clusters=[wrong]) as runner,
        pytest.raises(ConfigError, match=f"nope in {fake.kubeconfig}") as caught,
    ):
        runner.run(shell("true"), "prod")
    assert "\n" not in str(caught.value)


def test_a_certificate_that_has_run_out(
    fake: Any, tmp_path: Path, transload_home: Path, shell: Any
) -> None:
    """A server whose certificate is over cannot be reached, and one line says why, of a submit
    too.
    """
    made = [str(tmp_path / name) for name in ("key", "request", "certificate")]
    asks = [
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        made[0],
        "-out",
        made[1],
        "-subj",
        "/CN=x",
    ]
    signs = ["x509", "-req", "-in", made[1], "-signkey", made[0], "-days", "-1", "-out", made[2]]
    for words in (
        [*asks, "-addext", "subjectAltName=IP:127.0.0.1"],
        [*signs, "-copy_extensions", "copy"],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made[2], made[0])
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    data = configuration(fake)
    data["clusters"][0]["cluster"] = {
        "server": f"https://127.0.0.1:{server.server_port}",
        "certificate-authority": made[2],
    }
    (tmp_path / "config").write_text(json.dumps(data))
    over = ClusterName("prod", "kubernetes", {"kubeconfig": str(tmp_path / "config")})
    try:
        with Runner("tests", clusters=[over]) as runner:
            for ask in (lambda: runner.run(shell("true"), "prod"), lambda: runner.list("prod")):
                with pytest.raises(SchedulerUnavailable, match="certificate has expired") as caught:
                    ask()
                assert "\n" not in str(caught.value)
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def test_the_account_of_a_pod(
    fake: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runner: Runner,
    shell: Any,
    seen: list[Any],
) -> None:
    """A job that names no namespace goes to that of the pod, in which its account has rights.

    With a configuration file, it goes to the default namespace.
    """
    from transload_kubernetes import access

    variables = fake.account(tmp_path / "account", "team")
    elsewhere = runner.run(shell("true"), "kubernetes")
    assert elsewhere.startswith("kubernetes://tests/default:")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(access, "ACCOUNT", str(tmp_path / "account"))
    fake.cluster.only = "team"
    with Runner("pod") as of_pod:
        handle = of_pod.run(shell("true"), "kubernetes")
        assert handle.startswith("kubernetes://pod/team:")
        ended = of_pod.wait(handle, timeout=60)
        assert ended is not None and ended.state is AppState.SUCCEEDED
        assert [row.app_handle for row in of_pod.list("kubernetes")] == [handle]
    assert seen[-1]["Authorization"].casefold() == "bearer a-token"
