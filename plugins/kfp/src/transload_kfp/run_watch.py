"""Watch the run of a task, to tell its end by a person from the end of a pod.

SIGTERM does not say who sent it. A run that a person ends and a pod that is drained, evicted or
deleted get the same one, and about a second later the task's process is killed. Of the two, only
the first is written into the run's Workflow, some seconds before. Any pod of a backend may read
that with its own account. This imports nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from http.client import HTTPResponse

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""The folder with the name, token and certificate of a pod's own account."""

_WATCH_S: Final = 300
_CONNECT_S: Final = 10
_PAUSE_S: Final = 1.0
_REFUSED: Final = (401, 403, 404)


class RunWatch:
    """Watches the Workflow of one run, with one request at a time.

    Args:
        run_id: the run, as the label ``pipeline/runid`` of its Workflow has it. Empty where there
            is none to see.

    Attributes:
        ended: whether a person ended the run, or it was deleted. None where that cannot be seen,
            for want of the right, or since this is no pod of such a backend.
    """

    def __init__(self, run_id: str = "") -> None:
        self.ended: bool | None = None
        self._run_id = run_id
        self._answered = threading.Event()
        self._on_end: Callable[[], object] | None = None

    def start(self, on_end: Callable[[], object]) -> None:
        """Begin to watch, in a thread. ``on_end`` is called there when a person ends the run."""
        in_a_pod = os.environ.get("KUBERNETES_SERVICE_HOST") and os.path.isdir(ACCOUNT)
        if not in_a_pod or not self._run_id:
            self._answered.set()
            return
        self._on_end = on_end
        threading.Thread(target=self._watch, name="transload-run-watch", daemon=True).start()

    def stop(self) -> None:
        """Have ``on_end`` not called any more."""
        self._on_end = None

    def ended_by_now(self, seconds: float) -> bool | None:
        """Return `ended`, after waiting so long at most for the first answer."""
        self._answered.wait(seconds)
        return self.ended

    def limit_passed(self) -> bool:
        """Tell whether the time limit of this task's pod has passed. If not known, it has not."""
        from http.client import HTTPException

        try:
            with _get("/api/v1", f"pods/{os.environ['KFP_POD_NAME']}", _CONNECT_S) as response:
                pod = json.load(response)
            limit = pod["spec"]["activeDeadlineSeconds"]
            began = datetime.fromisoformat(pod["status"]["startTime"])
        except (OSError, ValueError, LookupError, HTTPException):
            return False
        return (datetime.now(UTC) - began).total_seconds() >= limit

    def _watch(self) -> None:
        # takes a while, and the main thread has no need of it
        from http.client import HTTPException

        pause = threading.Event()
        while not self.ended:
            try:
                if not self._read_events():
                    break
            except (OSError, ValueError, LookupError, HTTPException):
                pass  # an outage: what was seen last still holds
            pause.wait(_PAUSE_S)
        self._answered.set()

    def _read_events(self) -> bool:
        """Read one watch to its end. Return False where it is refused, and always was."""
        # without a version of a list, a watch begins with what is there
        query = {
            "labelSelector": f"pipeline/runid={self._run_id}",
            "watch": "true",
            "timeoutSeconds": _WATCH_S,
        }
        workflows = f"workflows?{urlencode(query)}"
        with _get("/apis/argoproj.io/v1alpha1", workflows, _WATCH_S + _CONNECT_S) as response:
            if response.status in _REFUSED and self.ended is None:
                return False
            for line in response:
                event = json.loads(line)
                workflow = event["object"]
                self.ended = event["type"] == "DELETED" or _is_ended_by_a_person(workflow["spec"])
                self._answered.set()
                if self.ended and self._on_end is not None:
                    self._on_end()
        return True


def _is_ended_by_a_person(spec: dict[str, Any]) -> bool:
    """Tell whether a person ended the run of a Workflow.

    Kubeflow Pipelines sets its limit to zero then. Argo's own ``stop`` and ``terminate`` set
    ``shutdown``.
    """
    return spec.get("activeDeadlineSeconds") == 0 or bool(spec.get("shutdown"))


@contextmanager
def _get(api: str, what: str, seconds: float) -> Iterator[HTTPResponse]:
    """Ask the cluster around this pod for something of the pod's namespace."""
    import ssl
    from http.client import HTTPSConnection

    trusted = ssl.create_default_context(cafile=os.path.join(ACCOUNT, "ca.crt"))
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = int(os.environ.get("KUBERNETES_SERVICE_PORT") or 443)
    connection = HTTPSConnection(host, port, timeout=seconds, context=trusted)
    try:
        # the token is read each time, since the cluster exchanges it
        headers = {"Authorization": f"Bearer {_read('token')}", "Accept": "application/json"}
        connection.request("GET", f"{api}/namespaces/{_read('namespace')}/{what}", headers=headers)
        yield connection.getresponse()
    finally:
        connection.close()


def _read(name: str) -> str:
    with open(os.path.join(ACCOUNT, name), encoding="ascii") as file:
        return file.read().strip()
