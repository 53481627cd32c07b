"""Names and labels of a job's containers, their network, and the mark of its end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from transload.schedulers.chains import chain_and_number

PREFIX: Final = "transload."
"""What the names of volumes of jobs, and labels, start with."""

CHECKPOINT_DIR: Final = "TRANSLOAD_CHECKPOINT_DIR"
"""The variable that names the folder of a role's checkpoints."""

ERROR_FILE: Final = "/tmp/transload-error.json"  # noqa: S108 - in a container, which is the replica's own
"""Where a program in a container says why it failed."""

PROGRESS_FILE: Final = "/tmp/transload-progress.json"  # noqa: S108 - as above
"""Where a program in a container of another machine's engine says how far it is."""

LABEL_APP: Final = "transload.app-id"
LABEL_ASKED: Final = "transload.asked."
"""Begins the labels that say who asked for a job (`transload.schedulers.asked.asked_words`)."""
LABEL_CHAIN: Final = "transload.chain"
"""Label of all that is made for a job whose id ends in a number, with what comes before it."""
LABEL_SUBMIT: Final = "transload.submit"
LABEL_OWNER: Final = "transload.owner"
LABEL_DIGEST: Final = "transload.digest"
LABEL_RECORD: Final = "transload.record"
"""Label of the containers of the first replica, with the record of the job."""
LABEL_ROLE: Final = "transload.role"
LABEL_REPLICA: Final = "transload.replica"
LABEL_ATTEMPT: Final = "transload.attempt"
LABEL_HOST: Final = "transload.host"
LABEL_GPUS: Final = "transload.gpus"
LABEL_END: Final = "transload.end"
LABEL_WORKSPACE: Final = "transload.workspace"

OF: Final = {
    "app_id": LABEL_APP,
    "chain": LABEL_CHAIN,
    "owner": LABEL_OWNER,
    "role": LABEL_ROLE,
    "replica": LABEL_REPLICA,
}
"""What containers are asked for by, and the label of each."""

MAKING: Final = "making"
"""The stage of a submit in which whoever finds its keeper dead takes the job back."""

NETWORK: Final = "transload"
"""Stands in a request for the network of all jobs of several replicas (`network_name`)."""

_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}\Z")
_NOT_SAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_DNS: Final = re.compile(r"[^a-z0-9-]+")


def short_hash(text: str, length: int = 8) -> str:
    """Return the first hex digits of a digest of ``text``."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def base_name(app_id: str) -> str:
    """Return the part of names that means a job, without dots.

    It is the job's id where possible.
    """
    if _SAFE.match(app_id):
        return app_id
    readable = _NOT_SAFE.sub("-", app_id).strip("-_")[:48] or "app"
    return f"{readable}-{short_hash(app_id)}"


def id_labels(app_id: str) -> dict[str, str]:
    """Return the labels of what is made for a job, by which it and its chain are found."""
    labels = {LABEL_APP: app_id}
    found = chain_and_number(app_id)
    if found is not None:
        labels[LABEL_CHAIN] = found[0]
    return labels


def container_name(app_id: str, role: str, replica: int, attempt: int) -> str:
    """Return the name of the container of one attempt of a replica."""
    return f"{base_name(app_id)}.{role}.{replica}.{attempt}"


def network_name(owner: str) -> str:
    """Return the name of the network of all jobs of an owner that have several replicas."""
    return f"{NETWORK}-{owner[:8]}"


def mark_name(app_id: str) -> str:
    """Return the name of the empty volume whose label says how a job is to end."""
    return f"{PREFIX}{base_name(app_id)}.end"


def host_prefix(app_id: str) -> str:
    """Return what the host names of a job begin with."""
    return f"{short_hash(app_id, 10)}-"


def host_names(app_id: str, roles: Sequence[tuple[str, int]]) -> list[list[str]]:
    """Return the host name of each replica, as the others of the job reach it.

    The network is shared with other jobs, so the names tell the job, too.

    Args:
        app_id: the job.
        roles: name and number of replicas of each role.
    """
    labels: list[str] = []
    for name, _ in roles:
        label = _NOT_DNS.sub("-", name.lower()).strip("-")[:40] or "role"
        while label in labels:  # "a_b" and "a.b" are two roles and must stay two hosts
            label = f"{label[:40]}-{short_hash(name, 4)}"
        labels.append(label)
    start = host_prefix(app_id)
    return [
        [f"{start}{label}-{k}" for k in range(count)]
        for label, (_, count) in zip(labels, roles, strict=True)
    ]
