"""Send requests to a cluster through the official client.

Objects are plain mappings, in the form of the API.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from transload.errors import ConfigError, SchedulerUnavailable
from transload_kubernetes import names

_CONNECT_S: Final = 5
_READ_S: Final = 30
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
    "Job": ("/apis/batch/v1", "jobs"),
    "JobSet": (_JOBSETS, "jobsets"),
}
"""Kind of object → path of its API group, and the resource's name there."""
_KUBELETS: Final = "could not find the requested resource"
"""The API server's message for a kubelet's 404; a 404 of its own names the object."""


class ClusterError(Exception):
    """The cluster refused a request.

    Args:
        status: the HTTP status.
        reason: the API's name for the error, such as ``AlreadyExists``.
        message: the cluster's message.

    Attributes:
        of_secret: whether it is the answer to a request to create a Secret.
