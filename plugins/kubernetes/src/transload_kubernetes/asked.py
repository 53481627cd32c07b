"""Show on a job's objects who asked for it: a user, a commit, an orchestrator's task. Pure."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from transload.schedulers.asked import asked_words
from transload_kubernetes.convert import KubernetesRequest

PREFIX: Final = "asked.transload.io/"
"""Begins the names of such annotations and labels. The rest is one of `asked_words`."""
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def with_asked(request: KubernetesRequest, asked: Mapping[str, Any]) -> KubernetesRequest:
    """Return a request whose Jobs and pods have the words of whoever asked.

    All are annotations. Those that are short enough are labels, too, in which characters that no
    label can have are dashes.
    """
    annotations, labels = _marks(asked)
    if not annotations:
        return request
    made = replace(request, jobs=copy.deepcopy(request.jobs), jobset=copy.deepcopy(request.jobset))
    for metadata in _metadata(made):
        metadata["annotations"] = {**annotations, **(metadata.get("annotations") or {})}
        metadata["labels"] = {**labels, **(metadata.get("labels") or {})}
    return made


def _marks(asked: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return annotations and labels for what was asked."""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    for word, value in asked_words(asked).items():
        name = _NO_NAME.sub("-", word)
        if not _NAME.fullmatch(name):
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        annotations[PREFIX + name] = text
        short = _NO_NAME.sub("-", text)
        if isinstance(value, str | int) and _NAME.fullmatch(short):
            labels[PREFIX + name] = short
    return annotations, labels


def _metadata(request: KubernetesRequest) -> Iterator[dict[str, Any]]:
    """Yield the metadata of a request's Jobs or JobSet, and of their pods."""
    jobs = list(request.jobs)
    if request.jobset is not None:
        yield request.jobset["metadata"]
        jobs += [each["template"] for each in request.jobset["spec"]["replicatedJobs"]]
    for job in jobs:
        yield job["metadata"]
        yield job["spec"]["template"].setdefault("metadata", {})
