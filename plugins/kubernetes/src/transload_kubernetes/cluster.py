"""Talking to a cluster, through the official client; objects are plain mappings, as the API gives them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from transload.errors import ConfigError, SchedulerUnavailable
from transload_kubernetes import names

_CONNECT_S: Final = 5
_READ_S: Final = 30
_MERGE: Final = "application/merge-patch+json"
KINDS: Final = {
    "ConfigMap": ("core", "config_map"),
    "Secret": ("core", "secret"),
    "Service": ("core", "service"),
    "Pod": ("core", "pod"),
    "Event": ("core", "event"),
    "Job": ("batch", "job"),
    "JobSet": ("custom", "jobsets"),
}
"""Kinds of objects → API group of the client and its word for it."""


class ClusterError(Exception):
    """A cluster's answer that is not a success.

    Attributes:
        status: status of HTTP.
        reason: word of the API, such as ``AlreadyExists``.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{message or reason} ({status})")
        self.status = status
        self.reason = reason


class Cluster:
    """One cluster: that of the current context (``KUBECONFIG``), or the one that this process runs in.

    Args:
        context: another context of the configuration.
        kubeconfig: another file of configuration.
    """

    def __init__(self, context: str | None = None, kubeconfig: str | None = None) -> None:
        self._context, self._kubeconfig = context, kubeconfig
        self._lock = threading.Lock()
        self._client: Any = None
        self._apis: dict[str, Any] = {}
        self._no_jobsets = False

    def api(self, group: str) -> Any:
        """Return a part of the client's API; connects nowhere yet.

        Raises:
            ConfigError: if there is no usable configuration.
            SchedulerUnavailable: if the client is not installed.
        """
        try:
            from kubernetes import client
        except ImportError as exc:
            raise SchedulerUnavailable(
                f"the Python client of kubernetes cannot be imported: {exc} (pip install kubernetes)"
            ) from exc
        with self._lock:
            if self._client is None:
                self._client = client.ApiClient(self._configuration())
            if group not in self._apis:
                classes = {
                    "core": client.CoreV1Api,
                    "batch": client.BatchV1Api,
                    "version": client.VersionApi,
                    "auth": client.AuthorizationV1Api,
                    "self": client.AuthenticationV1Api,
                    "custom": client.CustomObjectsApi,
                }
                self._apis[group] = classes[group](self._client)
            return self._apis[group]

    def _configuration(self) -> Any:
        from kubernetes import client, config
        from urllib3.util.retry import Retry

        made = client.Configuration()
        made.retries = Retry(total=1, connect=0)  # a kept connection may be stale; patience is the caller's
        # the client reads the variable only once, when it is imported
        path = self._kubeconfig or os.environ.get("KUBECONFIG") or None
        try:
            config.load_kube_config(path, self._context, made)  # type: ignore[no-untyped-call,unused-ignore]
        except config.ConfigException as exc:
            try:
                config.load_incluster_config(made)  # type: ignore[no-untyped-call,unused-ignore]
            except config.ConfigException:
                raise ConfigError(f"no Kubernetes cluster is configured: {exc}") from exc
        except Exception as exc:  # what the client makes of a file that is no configuration: errors of any kind
            where = path or config.KUBE_CONFIG_DEFAULT_LOCATION
            text = " ".join(str(exc).split())
            raise ConfigError(f"the Kubernetes configuration {where} cannot be read: {text}") from exc
        return made

    @property
    def url(self) -> str:
        """Address of the API server."""
        return str(self.api("core").api_client.configuration.host)

    def _call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        options.setdefault("_request_timeout", (_CONNECT_S, _READ_S))
        try:
            return function(*args, _preload_content=False, **options)
        except ApiException as exc:
            if exc.status:
                raise _error(exc) from exc
            raise SchedulerUnavailable(f"kubernetes at {self.url} cannot be reached: {exc.reason}") from exc
        except (HTTPError, OSError) as exc:
            raise SchedulerUnavailable(f"kubernetes at {self.url} cannot be reached: {_root(exc)}") from exc

    def _json(self, function: Callable[..., Any], *args: Any, **options: Any) -> dict[str, Any]:
        from urllib3.exceptions import HTTPError

        response = self._call(function, *args, **options)
        try:
            found: dict[str, Any] = json.loads(response.data)
        except (HTTPError, OSError, ValueError) as exc:
            raise SchedulerUnavailable(f"kubernetes at {self.url} broke off its answer: {exc}") from exc
        finally:
            response.release_conn()
        return found

    def _method(self, verb: str, kind: str) -> Callable[..., Any]:
        group, word = KINDS[kind]
        if group == "custom":
            return self._custom_method(verb, word)
        method: Callable[..., Any] = getattr(self.api(group), f"{verb}_namespaced_{word}")
        return method

    def _custom_method(self, verb: str, plural: str) -> Callable[..., Any]:
        """Return a method for objects that the client has no own ones for, with the arguments that those would take."""
        word = "get" if verb == "read" else verb
        method = getattr(self.api("custom"), f"{word}_namespaced_custom_object")
        if verb in ("read", "delete"):
            return lambda name, namespace, **options: method(*names.JOBSET_API, namespace, plural, name, **options)
        return lambda namespace, *body, **options: method(*names.JOBSET_API, namespace, plural, *body, **options)

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None if there is none of that name."""
        try:
            return self._json(self._method("read", kind), name, namespace)
        except ClusterError as exc:
            if exc.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None, **selectors: str | int) -> dict[str, Any]:
        """Return the list of a kind as the API gives it.

        Args:
            kind: kind of object.
            namespace: its namespace; None: all namespaces.
            selectors: ``label_selector``, ``field_selector``, ``limit``.
        """
        if namespace is None:
            group, word = KINDS[kind]
            if group == "custom":
                return self._json(self.api("custom").list_cluster_custom_object, *names.JOBSET_API, word, **selectors)
            return self._json(getattr(self.api(group), f"list_{word}_for_all_namespaces"), **selectors)
        return self._json(self._method("list", kind), namespace, **selectors)

    def create(self, item: Mapping[str, Any], namespace: str, *, only_try: bool = False) -> dict[str, Any]:
        """Make an object.

        Args:
            item: the object.
            namespace: where it goes.
            only_try: let the cluster say whether it would take it, and make nothing.
        """
        options = {"dry_run": "All"} if only_try else {}
        return self._json(self._method("create", item["kind"]), namespace, item, **options)

    def patch(self, kind: str, namespace: str, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Merge a change into an object (RFC 7386)."""
        return self._json(self._method("patch", kind), name, namespace, change, _content_type=_MERGE)

    def replace(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an object."""
        metadata = item["metadata"]
        return self._json(self._method("replace", item["kind"]), metadata["name"], metadata["namespace"], item)

    def delete(self, kind: str, namespace: str, name: str, policy: str = "Background") -> None:
        """Delete an object and what it owns; nothing happens if it is gone.

        Args:
            kind: kind of object.
            namespace: its namespace.
            name: its name.
            policy: ``Foreground``: it stays until all that it owns is gone.
        """
        try:
            self._json(self._method("delete", kind), name, namespace, propagation_policy=policy)
        except ClusterError as exc:
            if exc.status != 404:
                raise

    def has_jobsets(self, namespace: str) -> bool:
        """Tell whether JobSets are installed and this user may see those of a namespace; that they are not is kept."""
        if self._no_jobsets:
            return False
        try:
            self.list("JobSet", namespace, limit=1)
        except ClusterError as exc:
            if exc.status not in (403, 404):
                raise
            self._no_jobsets = exc.status == 404
            return False
        return True

    def watch(self, kind: str, namespace: str, version: str, seconds: int) -> Any:
        """Open a watch on the objects of ours of a kind; return the response, whose lines are events."""
        return self._call(
            self._method("list", kind),
            namespace,
            label_selector=f"{names.LABEL_MANAGED}={names.MANAGED}",
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=seconds,
            _request_timeout=(_CONNECT_S, seconds + _READ_S),
        )

    def log(self, namespace: str, pod: str, container: str, **options: Any) -> Any:
        """Open the log of a pod, with times; return the response, or None if there is no log (yet, or any more)."""
        try:
            return self._call(
                self.api("core").read_namespaced_pod_log,
                pod,
                namespace,
                container=container,
                timestamps=True,
                **options,
            )
        except ClusterError as exc:
            if exc.status in (400, 404):  # 400: its container has not started
                return None
            raise SchedulerUnavailable(f"kubernetes at {self.url}: no log of {pod}: {exc}") from exc

    def version(self) -> dict[str, Any]:
        """Return the server's version."""
        return self._json(self.api("version").get_code)

    def user(self) -> str:
        """Return as whom the cluster sees this client; ``""`` if it does not say."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        found = self._json(self.api("self").create_self_subject_review, body)
        return str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "")

    def may(self, namespace: str, verb: str, group: str, resource: str) -> bool:
        """Ask whether the user may do something."""
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        found = self._json(self.api("auth").create_self_subject_access_review, body)
        return bool((found.get("status") or {}).get("allowed"))

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            made, self._client, self._apis = self._client, None, {}
        if made is not None:
            made.rest_client.pool_manager.clear()


def _error(exc: Any) -> ClusterError:
    try:
        body = json.loads(exc.body)
        return ClusterError(exc.status, str(body.get("reason") or ""), str(body.get("message") or ""))
    except (TypeError, ValueError, AttributeError):
        return ClusterError(exc.status, str(exc.reason or ""), "")


def _root(exc: BaseException) -> str:
    """Return the innermost reason of a failed connection, as one line; the client wraps it in several others."""
    seen: BaseException | None = exc
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return str(seen.strerror)
        reason = getattr(seen, "reason", None)
        seen = reason if isinstance(reason, BaseException) else seen.__cause__ or seen.__context__
    return " ".join(str(exc).split())


def lines(response: Any) -> Iterator[bytes]:
    """Yield whole lines of a streamed response, newline included; the last may lack it."""
    rest = b""
    for block in response.stream(None, decode_content=False):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def cut(response: Any) -> None:
    """Close a response that another thread may be reading: its read ends at once."""
    import contextlib
    import socket

    with contextlib.suppress(Exception):
        connection: Any = getattr(response, "connection", None) or getattr(response, "_connection", None)
        connection.sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(Exception):
        response.close()
