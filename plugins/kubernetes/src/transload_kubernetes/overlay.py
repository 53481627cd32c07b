"""Merge an overlay into an object by strategic merge, like ``kubectl patch``.

Lists of named elements merge by name.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from transload.errors import SpecError

# The lists that merge, and the key by which their elements match (patchMergeKey of the Kubernetes
# API). All other lists are replaced.
_KEYS: Final = {
    **dict.fromkeys(
        ("containers", "initContainers", "ephemeralContainers", "env", "volumes"), "name"
    ),
    **dict.fromkeys(("imagePullSecrets", "resourceClaims"), "name"),
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
}


def merge(target: Any, overlay: Any, path: str) -> Any:
    """Return ``target`` with ``overlay`` merged into it. Neither is changed.

    None deletes a field. ``$patch: replace`` in a mapping replaces all of it. ``$patch: delete`` in
    an element of a list removes that element.

    Raises:
        SpecError: if an element of a merging list lacks its key.
    """
    if not isinstance(overlay, dict):
        return copy.deepcopy(overlay)
    merged: dict[str, Any] = {}
    if isinstance(target, dict) and overlay.get("$patch") != "replace":
        merged = copy.deepcopy(target)
    for name, value in overlay.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, list) and name in _KEYS:
            merged[name] = _merge_list(merged.get(name) or [], value, _KEYS[name], f"{path}.{name}")
        elif name != "$patch":
            merged[name] = merge(merged.get(name), value, f"{path}.{name}")
    return merged


def _merge_list(merged: list[Any], overlay: list[Any], key: str, path: str) -> list[Any]:
    for number, each in enumerate(overlay):
        if not isinstance(each, dict) or key not in each:
            raise SpecError(
                f"{path}[{number}]: must be a mapping with the key {key!r}, by which it merges"
            )
        place = _place_of(merged, key, each[key])
        is_deleted = each.get("$patch") == "delete"
        if is_deleted and place is not None:
            del merged[place]
        elif place is not None:
            merged[place] = merge(merged[place], each, f"{path}[{number}]")
        elif not is_deleted:
            merged.append(merge({}, each, f"{path}[{number}]"))
    return merged


def _place_of(elements: list[Any], key: str, value: Any) -> int | None:
    """Return the index of the element that has a value under a key, or None if there is none."""
    for index, element in enumerate(elements):
        if element.get(key) == value:
            return index
    return None
