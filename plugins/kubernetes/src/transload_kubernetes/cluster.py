"""Send requests to a cluster.

Objects are plain mappings, in the form of the API.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlencode

from transload.errors import SchedulerUnavailable
from transload_kubernetes import names
from transload_kubernetes.access import Access, Configuration

_CONNECT_S: Final = 5
_READ_S: Final = 30
_CLOCKS_AGREE_S: Final = 2.0  # a server gives its time in whole seconds
_CORE: Final = "/api/v1"
_JOBSETS: Final = f"/apis/{'/'.join(names.JOBSET_API)}"
MANAGED: Final = f"{names.LABEL_MANAGED}={names.MANAGED}"
"""Selects the objects that transload has made."""
KINDS: Final = {
    "ConfigMap": (_CORE, "configmaps"),
    "Secret": (_CORE, "secrets"),
    "Service": (_CORE, "services"),
    "Pod": (_CORE, "pods"),
    "Event": (_CORE, "events"),
    "PersistentVolumeClaim": (_CORE, "persistentvolumeclaims"),
    "Job": ("/apis/batch/v1", "jobs"),
    "JobSet": (_JOBSETS, "jobsets"),
    "Workload": (f"/apis/{'/'.join(names.KUEUE_API)}", "workloads"),
}
"""Kind of object → path of its API group, and the resource's name there."""
NO_GROUP: Final = "404 page not found"
"""The API server's answer where it has no such API group. It is no JSON."""
_LONGEST_TEXT: Final = 200
NO_RESOURCE: Final = "could not find the requested resource"
"""The API server's message for a kubelet's 404, and for a kind that a group does not have.

Its own 404 names the object.
"""


class ClusterError(Exception):
    """The cluster refused a request.

    Args:
        status: the HTTP status.
        reason: the API's name for the error, such as ``AlreadyExists``.
        message: the cluster's message.

    Attributes:
        of_secret: whether it is the answer to a request to create a Secret.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{message or reason} ({status})")
        self.status = status
        self.reason = reason
        self.of_secret = False


class Cluster:
    """One cluster.

    Args:
        context: a context of the configuration, or None for its current one.
        kubeconfig: a file with the configuration, or its text. None means ``KUBECONFIG``, else
            ``~/.kube/config``, else the cluster that this process runs in.
    """

    def __init__(self, context: str | None = None, kubeconfig: str | None = None) -> None:
        self._configuration = Configuration(context, kubeconfig)
        self._lock = threading.Lock()
        self._access: Access | None = None
        self._jobsets: dict[str, bool] = {}
        self._ahead = 0.0  # seconds by which the server's clock is ahead of this machine's

    def access(self) -> Access:
        """Return how the cluster is asked, without connecting.

        Raises:
            ConfigError: if no cluster is configured.
            SchedulerUnavailable: if the official client is needed, and cannot be imported.
        """
        with self._lock:
            if self._access is None:
                self._access = self._configuration.access()
            return self._access

    @property
    def location(self) -> str:
        """The context and the configuration file that select the cluster."""
        return self._configuration.location

    @property
    def namespace(self) -> str:
        """Where jobs go that name no namespace.

        Where this process uses the account of its own pod, it is the pod's namespace, in which that
        account has its rights.
        """
        try:
            return self._configuration.namespace or names.DEFAULT_NAMESPACE
        except OSError:
            return names.DEFAULT_NAMESPACE

    def kubectl(self) -> list[str]:
        """Return the beginning of kubectl's command line (see `Configuration.kubectl`)."""
        return self._configuration.kubectl()

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self.access().url

    def _call(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, object] | None = None,
        seconds: float = _READ_S,
        content: str = "json",
    ) -> Any:
        """Send a request with the client's own connections and credentials.

        Args:
            verb: the HTTP method.
            path: the path of the API.
            body: the content to send as JSON, or None for none.
            query: parameters of the API. Those that are None are left out.
            seconds: how long the server may send nothing.
            content: the kind of the body, behind ``application/``.

        Returns:
            The open response.
        """
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        access = self.access()
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url = f"{access.url}{path}"
        if given:
            url += f"?{urlencode(given)}"
        kinds = {"Accept": "application/json", "Content-Type": f"application/{content}"}
        try:
            response = access.pool.request(
                verb,
                url,
                headers={**access.headers(), **kinds},
                body=None if body is None else json.dumps(body),
                preload_content=False,
                timeout=Timeout(connect=_CONNECT_S, read=seconds),
            )
            self._read_clock(response.headers.get("Date"))
            if response.status < 300:
                return response
            error = _error(response.status, response.reason, response.data)
            response.release_conn()
        except (HTTPError, OSError) as exc:
            raise SchedulerUnavailable(
                f"kubernetes at {self.url} cannot be reached: {_root(exc)}"
            ) from exc
        raise error

    def now(self) -> float:
        """Return the time by the server's clock, in seconds since the epoch.

        The times of the cluster's objects are by that clock.
        """
        return time.time() + self._ahead

    def _read_clock(self, date: str | None) -> None:
        """Note by how much the clocks differ, from the time that an answer names."""
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            ahead = parsedate_to_datetime(date or "").timestamp() - time.time()
            self._ahead = ahead if abs(ahead) > _CLOCKS_AGREE_S else 0.0

    def _json(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, object] | None = None,
        content: str = "json",
        empty_for: Collection[int] = (),
    ) -> dict[str, Any]:
        """Return the answer to a request, empty for errors of the statuses ``empty_for``."""
        from urllib3.exceptions import HTTPError

        try:
            response = self._call(verb, path, body, query=query, content=content)
        except ClusterError as exc:
            if exc.status in empty_for:
                return {}
            raise
        try:
            found: dict[str, Any] = json.loads(response.data)
        except (HTTPError, OSError, ValueError) as exc:
            raise SchedulerUnavailable(
                f"kubernetes at {self.url} closed the connection before its answer was complete: {exc}"
            ) from exc
        finally:
            response.release_conn()
        return found

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object, or None if no object has that name."""
        return self._json("GET", _path(kind, namespace, name), empty_for={404}) or None

    def list(
        self,
        kind: str,
        namespace: str | None,
        labels: str | None = None,
        *,
        fields: str | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """Return the API's list of the objects of a kind.

        Args:
            kind: one of `KINDS`.
            namespace: None for all namespaces.
            labels: selects by labels.
            fields: selects by fields.
            limit: the largest number of objects to return.
        """
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": limit}
        return self._json("GET", _path(kind, namespace), query=query)

    def create(
        self, item: Mapping[str, Any], namespace: str, *, only_try: bool = False
    ) -> dict[str, Any]:
        """Create an object. With ``only_try`` the cluster only checks if it would accept it."""
        query = {"dryRun": "All"} if only_try else None
        return self._json("POST", _path(item["kind"], namespace), item, query=query)

    def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Merge a change into an object (RFC 7386)."""
        return self._json("PATCH", _path(kind, namespace, name), change, content="merge-patch+json")

    def change_if(
        self, kind: str, namespace: str, name: str, steps: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Apply all steps of a JSON patch (RFC 6902), or none if a test among them fails (422)."""
        return self._json("PATCH", _path(kind, namespace, name), steps, content="json-patch+json")

    def delete(self, kind: str, namespace: str, name: str, policy: str = "Background") -> None:
        """Delete an object and the objects that it owns, if it exists.

        With the policy ``Foreground`` it stays until all that it owns is gone.
        """
        query = {"propagationPolicy": policy}
        self._json("DELETE", _path(kind, namespace, name), query=query, empty_for={404})

    def has_jobsets(self, namespace: str) -> bool:
        """Tell whether JobSets are installed and visible to this user.

        The answer is cached by namespace.
        """
        if namespace not in self._jobsets:
            path = _path("JobSet", namespace)
            answer = self._json("GET", path, query={"limit": 1}, empty_for={403, 404})
            self._jobsets[namespace] = bool(answer)
        return self._jobsets[namespace]

    def watch(
        self,
        kind: str,
        namespace: str,
        version: str,
        seconds: int,
        *,
        labels: str | None = None,
        fields: str | None = None,
    ) -> Any:
        """Open a watch on the objects of a kind for some seconds, from a version of their list on.

        Returns:
            The response, whose lines are events.
        """
        query = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "resourceVersion": version,
            "timeoutSeconds": seconds,
            "watch": "true",
            "allowWatchBookmarks": "true",
        }
        path = _path(kind, namespace)
        return self._call("GET", path, query=query, seconds=seconds + _READ_S)

    def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        timestamps: bool = False,
        since: str | None = None,
        tail: int | None = None,
        follow: bool = False,
        seconds: float = _READ_S,
    ) -> Any:
        """Open the log of a container.

        Args:
            namespace: that of the pod.
            pod: its name.
            container: its container.
            timestamps: begin each line with its time.
            since: only lines from this time on (RFC 3339).
            tail: the number of last lines to return, or None for all.
            follow: go on until the container ends.
            seconds: how long the server may send nothing.

        Returns:
            The response, or None if there is no log yet, or it is gone.
        """
        query = {
            "container": container,
            "timestamps": "true" if timestamps else None,
            "sinceTime": since,
            "tailLines": tail,
            "follow": "true" if follow else None,
        }
        try:
            path = f"{_path('Pod', namespace, pod)}/log"
            return self._call("GET", path, query=query, seconds=seconds)
        except ClusterError as exc:
            # 400: the container has not started. A kubelet that has just restarted does not know
            # its pods yet
            if exc.status == 400 or (exc.status == 404 and NO_RESOURCE not in str(exc)):
                return None
            raise SchedulerUnavailable(f"kubernetes at {self.url}: no log of {pod}: {exc}") from exc

    def version(self) -> dict[str, Any]:
        """Return the server's version."""
        return self._json("GET", "/version/")

    def user(self) -> str:
        """Return the name under which the cluster knows this client, or ``""`` if it is unknown."""
        found = self._review("authentication.k8s.io", "SelfSubjectReview")
        return str((found.get("userInfo") or {}).get("username") or "")

    def may(self, namespace: str, verb: str, group: str, resource: str) -> bool:
        """Ask the cluster whether the user has a right."""
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        found = self._review(
            "authorization.k8s.io", "SelfSubjectAccessReview", {"resourceAttributes": asked}
        )
        return bool(found.get("allowed"))

    def _review(self, group: str, kind: str, spec: Any = None) -> dict[str, Any]:
        body = {"apiVersion": f"{group}/v1", "kind": kind}
        if spec:
            body["spec"] = spec
        found = self._json("POST", f"/apis/{group}/v1/{kind.lower()}s", body)
        status: dict[str, Any] = found.get("status") or {}
        return status

    def close(self) -> None:
        """Close connections."""
        with self._lock:
            made = self._access
            self._access = None
        if made is not None:
            made.pool.clear()


def _path(kind: str, namespace: str | None, name: str = "") -> str:
    """Return the path of an object, or of all objects of a kind.

    Args:
        kind: one of `KINDS`.
        namespace: None for all namespaces.
        name: of the object, or ``""`` for all objects of the kind.
    """
    group, word = KINDS[kind]
    path = group
    if namespace:
        path += f"/namespaces/{namespace}"
    path += f"/{word}"
    if name:
        path += f"/{name}"
    return path


def _error(status: int, reason: str | None, body: bytes) -> ClusterError:
    try:
        found = json.loads(body)
        return ClusterError(status, str(found.get("reason") or ""), str(found.get("message") or ""))
    except (ValueError, AttributeError):
        text = body[:_LONGEST_TEXT].decode(errors="replace").strip()
        return ClusterError(status, reason or "", text)


def _root(exc: BaseException) -> str:
    """Return the innermost reason why a connection failed, as one line."""
    named = exc  # the innermost of the client's errors, each of which has a reason
    seen: BaseException | None = exc
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return str(seen.strerror)
        reason = getattr(seen, "reason", None)
        if isinstance(reason, BaseException):
            seen = reason
            named = reason
        else:
            seen = seen.__cause__ or seen.__context__
    texts = [arg for arg in named.args if isinstance(arg, str)]  # beside objects, without a name
    return " ".join((texts[-1:] or [str(named)])[0].split())


def cut(response: Any) -> None:
    """Close a response that another thread may be reading, which ends that read immediately."""
    with contextlib.suppress(Exception):
        connection: Any = getattr(response, "connection", None) or getattr(
            response, "_connection", None
        )
        connection.sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(Exception):
        response.close()
