"""Derive the names and labels of the objects on a cluster from the job id."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from transload.errors import SpecError
from transload.schedulers.chains import chain_and_number

DEFAULT_NAMESPACE: Final = "default"
MAIN: Final = "main"
"""Name of the container of the program."""
LABEL_MANAGED: Final = "app.kubernetes.io/managed-by"
MANAGED: Final = "transload"
OWN: Final = "transload.io/"
"""Prefix of transload's labels and annotations."""
LABEL_APP: Final = "transload.io/app"
LABEL_CHAIN: Final = "transload.io/chain"
"""Label of all objects of a job whose id ends in a number, with what comes before it."""
LABEL_ROLE: Final = "transload.io/role"
LABEL_ATTEMPT: Final = "transload.io/attempt"
LABEL_RECORD: Final = "transload.io/record"
ANNOTATION_APP_ID: Final = "transload.io/app-id"
ANNOTATION_DIGEST: Final = "transload.io/digest"
ANNOTATION_ENVIRONMENT: Final = "transload.io/environment"
"""Annotation of a pod that names the packages which it installs."""
ANNOTATION_INTERRUPTIONS: Final = "transload.io/interruptions"
"""Annotation of a Job of a later attempt with the number of attempts after an interruption."""
ANNOTATION_HELD: Final = "transload.io/held"
"""Annotation of a Job or JobSet that is suspended until its submit is complete.

Its value is the uid of the job's record.
"""
JOBSET_API: Final = ("jobset.x-k8s.io", "v1alpha2")
"""API group and version of JobSets. A cluster has them only if they were installed."""
JOBSET_RESTARTS: Final = "jobset.sigs.k8s.io/restart-attempt"
"""Label and annotation of a JobSet's objects, with the number of its restarts before them."""
JOB: Final = "batch.kubernetes.io/job-name"
"""Label of a pod with the name of the Job that made it."""
KUEUE_API: Final = ("kueue.x-k8s.io", "v1beta2")
"""API group and version of Workloads. A cluster has them only if Kueue was installed."""
QUEUE: Final = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
QUEUE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-{}-topology"
QUEUE_MIN: Final = "kueue.x-k8s.io/job-min-parallelism"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED: Final = "batch.kubernetes.io/job-index-ignored-failure-count"

_BASE: Final = 36
_RANK0: Final = "-rank0"
_PLAIN: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?\Z")
_DASHLESS: Final = re.compile(r"[a-z][a-z0-9]{0,11}\Z")
_ATTEMPT: Final = re.compile(r"a(\d+)r(\d+)\Z")
_KEY: Final = re.compile(r"[A-Za-z0-9_]{1,200}\Z")
NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


def parse_app_id(app_id: str) -> tuple[str, str]:
    """Split ``namespace:name``. The default namespace is ``default``.

    Raises:
        SpecError: if the namespace or the name is not allowed.
    """
    namespace, colon, name = app_id.partition(":")
    if not colon:
        return DEFAULT_NAMESPACE, app_id
    if not name:
        raise SpecError(f"app_id={app_id!r}: must be NAMESPACE:NAME")
    if not NAMESPACE.match(namespace):
        raise SpecError(
            f"app_id={app_id!r}: namespace must be 1 to 63 lower-case letters, digits and '-'"
        )
    return namespace, name


def label(text: str, limit: int) -> str:
    """Return ``text`` if it is a DNS label of at most ``limit`` characters, else a short form.

    The short form ends in a digest.
    """
    if len(text) <= limit and _PLAIN.match(text):
        return text
    readable = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[: limit - 8].strip("-")
    if not readable[:1].isalpha():
        readable = f"a{readable}"[: limit - 8]
    return f"{readable}-{hashlib.sha256(text.encode()).hexdigest()[:7]}"


def base_name(app_id: str) -> str:
    """Return the prefix of the names of a job's objects, which its record and Service bear."""
    name = parse_app_id(app_id)[1]
    if name.endswith(_RANK0):
        name += "."  # this is not a valid label, so `label` shortens it with a digest
    return label(name, _BASE)


def place(app_id: str) -> tuple[str, str]:
    """Return the namespace of a job, and the prefix of the names of its objects."""
    return parse_app_id(app_id)[0], base_name(app_id)


def id_labels(app_id: str) -> dict[str, str]:
    """Return the labels of all objects of a job, by which they and those of its chain are found."""
    labels = {LABEL_MANAGED: MANAGED, LABEL_APP: base_name(app_id)}
    found = chain_and_number(app_id)
    if found is not None:
        labels[LABEL_CHAIN] = chain_label(found[0])
    return labels


def chain_label(chain: str) -> str:
    """Return the value of the label for a chain of jobs, in one namespace."""
    return label(parse_app_id(chain)[1], 63)


def role_label(role: str) -> str:
    """Return the form of a role's name that is used in names and labels.

    It has no dash and does not look like an attempt. So the part behind the last dash of a Job's
    name is unambiguous, and no two jobs need the same name.
    """
    if _DASHLESS.match(role) and not _ATTEMPT.match(role):
        return role
    readable = re.sub(r"[^a-z0-9]", "", role.lower()).lstrip("0123456789")[:4]
    return f"{readable}x{hashlib.sha256(role.encode()).hexdigest()[:7]}"


def job_name(base: str, role: str, attempt: Attempt = (0, 0)) -> str:
    """Return the name of a role's Job, short enough for host names of 63 characters."""
    first = f"{base}-{role_label(role)}"
    if attempt == (0, 0):
        return first
    return f"{first}-{attempt_text(attempt)}"


Attempt = tuple[int, int]
"""The restarts of the whole job, and those of the role alone."""


def attempt_text(attempt: Attempt) -> str:
    """Return an attempt as text for names and labels."""
    return f"a{attempt[0]}r{attempt[1]}"


def read_attempt(text: str) -> Attempt:
    """Parse what `attempt_text` returned. Any other text means the first attempt."""
    match = _ATTEMPT.match(text)
    if match is None:
        return (0, 0)
    return int(match.group(1)), int(match.group(2))


def attempt_of(item: Mapping[str, Any]) -> Attempt:
    """Return the attempt to which a Job or pod belongs. A JobSet counts its own attempts."""
    labels = labels_of(item)
    restarts = str(labels.get(JOBSET_RESTARTS, ""))
    if restarts.isdigit():
        return int(restarts), 0
    return read_attempt(labels.get(LABEL_ATTEMPT, ""))


def labels_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an object, or {} if it has none."""
    return (item.get("metadata") or {}).get("labels") or {}


def annotations_of(item: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object, or {} if it has none."""
    return (item.get("metadata") or {}).get("annotations") or {}


def rank0_name(base: str) -> str:
    """Return the name of the Service of replica 0 of the first role, in every attempt."""
    return f"{base}{_RANK0}"


def secret_name(base: str) -> str:
    """Return the name of the Secret that holds a job's resolved secrets."""
    return f"{base}-env"


def secret_key(role: str, variable: str) -> str:
    """Return the key of a variable in the job's Secret."""
    # keys may have capital letters and "_", names may not. The first "." ends the role.
    key = variable
    if not _KEY.match(variable):
        key = label(variable, 40)
    return f"{role_label(role)}.{key}"
