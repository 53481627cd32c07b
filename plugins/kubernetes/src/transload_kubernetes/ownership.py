"""Whose an object on the cluster is. Names follow from app ids, and those of two apps may come out the same. Pure."""

from __future__ import annotations

import copy
from typing import Any

from transload.errors import SubmitError
from transload_kubernetes import names


def owned(item: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """Return an object that goes when the record of its app goes."""
    item = copy.deepcopy(item)
    metadata = record["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
    item["metadata"]["ownerReferences"] = [owner]
    item["metadata"]["namespace"] = metadata["namespace"]
    return item


def is_of(item: dict[str, Any], base: str) -> bool:
    """Tell whether an object says that it is of the app whose names start with ``base``."""
    return bool((item["metadata"].get("labels") or {}).get(names.LABEL_APP) == base)


def owned_by_same(found: dict[str, Any], item: dict[str, Any]) -> bool:
    """Tell whether an object that was found goes with the same record as the one that was to be made."""
    record = item["metadata"]["ownerReferences"][0]["uid"]
    return any(owner.get("uid") == record for owner in found["metadata"].get("ownerReferences") or ())


def taken(found: dict[str, Any], kind: str) -> SubmitError:
    """Return the error for an object that has a name which an app needs.

    Args:
        found: the object.
        kind: its kind, which an answer may leave out.
    """
    metadata = found["metadata"]
    ours = (metadata.get("labels") or {}).get(names.LABEL_APP)
    whose = (metadata.get("annotations") or {}).get(names.ANNOTATION_APP_ID) or ours
    of = f"of app {whose}" if whose else "of somebody else's"
    return SubmitError(
        f"{kind} {metadata['name']} of namespace {metadata['namespace']} is one {of}, and this app needs that name: "
        "choose another app id or role name"
    )
