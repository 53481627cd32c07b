"""Serve the fake cluster over HTTP on a free port of the loopback."""

from __future__ import annotations

import copy
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import fake_pods  # type: ignore[import-not-found]
from fake_api import ApiError, json_patch, selected  # type: ignore[import-not-found]
from fake_cluster import KINDS, Cluster  # type: ignore[import-not-found]

JOBSETS = "jobset.x-k8s.io/v1alpha2"
WORKFLOWS = "argoproj.io/v1alpha1"
KUEUE = "kueue.x-k8s.io/v1beta2"
PREFIXES = {
    "v1": "/api/v1",
    "batch/v1": "/apis/batch/v1",
    JOBSETS: f"/apis/{JOBSETS}",
    WORKFLOWS: f"/apis/{WORKFLOWS}",
    KUEUE: f"/apis/{KUEUE}",
}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in one piece, and sent at once
    disable_nagle_algorithm = True
    cluster: Cluster

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the time by the cluster's clock, for the header ``Date``."""
        return super().date_time_string((timestamp or time.time()) + fake_pods.AHEAD_S)

    def _answer(self, body: dict[str, Any] | str, status: int = 200) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        found: dict[str, Any] = json.loads(self.rfile.read(length) or b"{}")
        return found

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        self.cluster.requests.append(f"{self.command} {self.path}")
        self.cluster.heard(self.headers)
        if self.cluster.away:
            return self._cut()
        body = self._body() if self.command in ("POST", "PUT", "PATCH", "DELETE") else {}
        try:
            if not self.cluster.open:
                raise ApiError(503, "ServiceUnavailable", "the server is shutting down")
            if not self._discovery(parts.path, body):
                self._resource(parts.path, query, body)
        except ApiError as exc:
            if not exc.reason:  # as a real server answers for a group that it does not have
                self._answer(str(exc), exc.status)
                return None
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "message": str(exc),
            }
            self._answer({**status, "reason": exc.reason, "code": exc.status}, exc.status)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _discovery(self, path: str, body: dict[str, Any]) -> bool:
        path = path.rstrip("/")
        if path == "/version":
            self._answer({"major": "1", "minor": "33", "gitVersion": "v1.33.0-fake"})
        elif path == "/api":
            self._answer({"kind": "APIVersions", "versions": ["v1"]})
        elif path == "/apis":
            groups = []
            for version in self._versions():
                name, _, short = version.rpartition("/")
                row = {"groupVersion": version, "version": short}
                if name:
                    groups.append({"name": name, "versions": [row], "preferredVersion": row})
            self._answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        elif path in (PREFIXES[version] for version in self._versions()):
            version = next(version for version, prefix in PREFIXES.items() if prefix == path)
            rows = [
                {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": VERBS}
                for name, (kind, group) in KINDS.items()
                if group == version
            ]
            self._answer(
                {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": version,
                    "resources": rows,
                }
            )
        elif path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
            self._answer(
                {"kind": "SelfSubjectReview", "status": {"userInfo": {"username": "tester"}}}, 201
            )
        elif path.endswith("/selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            allowed = self.cluster.may(asked["group"], asked["resource"], asked["verb"])
            self._answer({"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}, 201)
        else:
            return False
        return True

    def _versions(self) -> list[str]:
        return [
            version
            for version in PREFIXES
            if (version != JOBSETS or self.cluster.jobsets is not None)
            and (version != KUEUE or self.cluster.has_kueue)
        ]

    def _resource(self, path: str, query: dict[str, str], body: dict[str, Any]) -> None:
        for version in self._versions():
            prefix = f"{PREFIXES[version]}/"
            if path.startswith(prefix):
                steps = [unquote(step) for step in path.removeprefix(prefix).split("/")]
                break
        else:
            raise ApiError(404, "", "404 page not found\n")
        namespace = None
        if steps[0] == "namespaces" and len(steps) > 2:
            namespace, steps = steps[1], steps[2:]
        plural, name = steps[0], steps[1] if len(steps) > 1 else ""
        planned = self.cluster.fail.get((self.command, plural))
        if planned is not None:
            raise planned
        if plural not in KINDS or KINDS[plural][1] != version:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        if self.cluster.only and namespace != self.cluster.only:
            raise ApiError(
                403, "Forbidden", f'{plural} is forbidden: User "tester" cannot list resource'
            )
        self._check_right(version, "/".join([plural, *steps[2:]]), name, query)
        if steps[2:] == ["log"]:
            self._log(namespace or "", name, query)
        elif self.command == "GET" and not name:
            if query.get("watch", "").lower() in ("true", "1"):
                self._watch(plural, namespace, query)
            else:
                self._list(plural, namespace, query)
        else:
            self._one(plural, namespace or "", name, query, body)

    def _check_right(self, version: str, resource: str, name: str, query: dict[str, str]) -> None:
        verbs = {
            "POST": "create",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete",
            "GET": "get",
        }
        verb = verbs[self.command]
        if verb == "get" and not name:
            verb = "watch" if query.get("watch", "").lower() in ("true", "1") else "list"
        group = version.rpartition("/")[0]
        self.cluster.calls.add((group, resource, verb))
        if not self.cluster.may(group, resource, verb):
            raise ApiError(
                403, "Forbidden", f'{resource} is forbidden: User "tester" cannot {verb} resource'
            )

    def _list(self, plural: str, namespace: str | None, query: dict[str, str]) -> None:
        with self.cluster.lock:
            found = self.cluster.items(plural, namespace)
            items = [
                item
                for item in found
                if selected(item, query.get("labelSelector", ""), query.get("fieldSelector", ""))
            ]
            text = json.dumps(
                {
                    "metadata": {"resourceVersion": str(self.cluster.version)},
                    "kind": f"{KINDS[plural][0]}List",
                    "items": items,
                }
            )
        self._answer(text)

    def _one(
        self, plural: str, namespace: str, name: str, query: dict[str, str], body: dict[str, Any]
    ) -> None:
        cluster = self.cluster
        with cluster.lock:
            if self.command == "POST":
                answer, status = (
                    cluster.create(plural, namespace, body, only_try="dryRun" in query),
                    201,
                )
            elif self.command == "PUT":
                answer, status = cluster.replace(plural, namespace, name, body), 200
            elif self.command == "PATCH":
                kind = self.headers["Content-Type"]
                if kind not in ("application/merge-patch+json", "application/json-patch+json"):
                    raise ApiError(
                        415, "UnsupportedMediaType", "only merge patches and JSON patches here"
                    )
                change = body
                if kind == "application/json-patch+json":
                    change = json_patch(cluster.get(plural, namespace, name), body)
                answer, status = cluster.patch(plural, namespace, name, change), 200
            elif self.command == "DELETE":
                cluster.delete(
                    plural,
                    namespace,
                    name,
                    query.get("propagationPolicy") or body.get("propagationPolicy", ""),
                )
                answer, status = {"kind": "Status", "status": "Success"}, 200
            else:
                answer, status = cluster.get(plural, namespace, name), 200
            text = json.dumps(answer)
        if cluster.lost == (self.command, plural):
            cluster.lost, cluster.away = None, cluster.leaves
            self._cut()
        else:
            self._answer(text, status)

    # -- streams

    def _start_stream(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _watch(self, plural: str, namespace: str | None, query: dict[str, str]) -> None:
        cluster = self.cluster
        with cluster.lock:
            at = int(query.get("resourceVersion") or cluster.version)
            first: list[tuple[int, str, str, dict[str, Any]]] = []
            if not query.get("resourceVersion"):  # such a watch begins with what is there
                there = copy.deepcopy(cluster.items(plural, namespace))
                first = [(at, "ADDED", plural, item) for item in there]
        deadline = time.monotonic() + float(query.get("timeoutSeconds") or 300)
        labels = query.get("labelSelector", "")
        self._start_stream("application/json")
        generation = self.server.generation  # type: ignore[attr-defined]
        while True:
            with cluster.lock:
                if at < cluster.floor:
                    gone = {
                        "kind": "Status",
                        "code": 410,
                        "reason": "Expired",
                        "message": "too old resource version",
                    }
                    events: list[tuple[int, str, str, dict[str, Any]]] = [
                        (at, "ERROR", plural, gone)
                    ]
                else:
                    events = first or [each for each in cluster.history if each[0] > at]
                    first = []
                if not events:
                    over = time.monotonic() > deadline or not cluster.open
                    if over or generation != self.server.generation:  # type: ignore[attr-defined]
                        break
                    cluster.changed.wait(0.5)
                    continue
            for version, event, kind, item in events:
                at = version
                if event != "ERROR" and (
                    kind != plural
                    or namespace not in (None, item["metadata"]["namespace"])
                    or not selected(item, labels, query.get("fieldSelector", ""))
                ):
                    continue
                self._chunk(json.dumps({"type": event, "object": item}).encode() + b"\n")
                if event == "ERROR":
                    self._chunk(b"")
                    return
        self._chunk(b"")

    def _log(self, namespace: str, name: str, query: dict[str, str]) -> None:
        cluster = self.cluster
        with cluster.lock:
            pod = cluster.get("pods", namespace, name)
            container = query.get("container", "main")
            process = cluster.logs.get(name if container == "main" else f"{name}/{container}")
            if name in cluster.forgotten:
                raise ApiError(
                    404,
                    "NotFound",
                    f"the server could not find the requested resource ( pods/log {name})",
                )
        if process is None:
            if pod["status"]["phase"] == "Failed":
                return self._answer("")
            raise ApiError(
                400, "BadRequest", f'container "main" in pod "{name}" is waiting to start'
            )
        start = 0
        if query.get("sinceSeconds"):
            start = time.time_ns() - int(query["sinceSeconds"]) * 1_000_000_000
        if query.get("sinceTime"):  # an API server hands on whole seconds
            start = int(datetime.fromisoformat(query["sinceTime"]).timestamp()) * 1_000_000_000
        follow = query.get("follow", "").lower() in ("true", "1")
        self._start_stream("text/plain")
        at = 0
        while True:
            with process.condition:
                ready = process.lines[at:]
                ended = process.ended
                if not ready and not ended and follow:
                    process.condition.wait(0.5)
                    if not cluster.open:
                        break
                    continue
            at += len(ready)
            if query.get("tailLines"):
                ready = ready[-int(query["tailLines"]) :]
            told = _stamp if query.get("timestamps") else lambda moment: b""
            data = b"".join(told(moment) + line for moment, line in ready if moment >= start)
            if data:
                cluster.sent += len(data)
                self._chunk(data)
            if ended or not follow:
                break
        return self._chunk(b"")


def _stamp(moment: int) -> bytes:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment // 1_000_000_000))
    # the trailing zeros go, as in Go's RFC3339Nano
    fraction = f"{moment % 1_000_000_000:09d}".rstrip("0")
    return (f"{whole}.{fraction}Z " if fraction else f"{whole}Z ").encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    generation = 0
    request_queue_size = 64


class FakeServer:
    """A fake cluster that listens.

    Args:
        folder: where its client configuration is written, and what containers have of their own.
    """

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder / "pods")
        self._of_pods: _Server | None = None
        handler = type("BoundHandler", (Handler,), {"cluster": self.cluster})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
                    "users": [{"name": "tester", "user": {}}],
                    "contexts": [
                        {"name": "fake", "context": {"cluster": "fake", "user": "tester"}}
                    ],
                    "current-context": "fake",
                }
            )
        )

    def account(self, folder: Path, namespace: str) -> dict[str, str]:
        """Give pods a service account: serve by TLS too, and write what is mounted into each.

        Returns:
            The variables of every pod.
        """
        folder.mkdir()
        key = str(folder / "key")
        certificate = str(folder / "ca.crt")
        words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x"]
        words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
        subprocess.run(["openssl", *words], check=True, capture_output=True)
        (folder / "namespace").write_text(namespace)
        (folder / "token").write_text("a-token")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        self._of_pods = _Server(("127.0.0.1", 0), self._server.RequestHandlerClass)
        self._of_pods.socket = tls.wrap_socket(self._of_pods.socket, server_side=True)
        threading.Thread(target=self._of_pods.serve_forever, args=(0.05,), daemon=True).start()
        port = str(self._of_pods.server_address[1])
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}

    def break_watches(self) -> None:
        """End all open watches, as a server that is restarted does."""
        with self.cluster.lock:
            self._server.generation += 1
            if self._of_pods is not None:
                self._of_pods.generation += 1
            self.cluster.changed.notify_all()

    def snapshot(self) -> list[dict[str, Any]]:
        """Return all objects."""
        with self.cluster.lock:
            return copy.deepcopy(list(self.cluster.objects.values()))

    def close(self) -> None:
        """End the server, its controllers and the pods."""
        self.cluster.close()
        for server in (self._server, self._of_pods):
            if server is not None:
                server.shutdown()
                server.server_close()
        self._thread.join(10)
