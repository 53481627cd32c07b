"""Strategic merge of an overlay into an object, as ``kubectl patch`` does it: lists of named things merge by name."""

from __future__ import annotations

import copy
from typing import Any, Final

from transload.errors import SpecError

# Lists that merge, and what tells two elements apart (patchMergeKey of the Kubernetes API); others are replaced.
_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
}


def merge(target: Any, overlay: Any, path: str) -> Any:
    """Return ``target`` with ``overlay`` merged into it; neither is changed.

    None deletes a field; ``$patch: replace`` in a mapping replaces all of it; ``$patch: delete`` in an element of a
    list removes that element.

    Raises:
        SpecError: if an element of a merging list lacks its key.
    """
    if not isinstance(overlay, dict) or not isinstance(target, dict) or overlay.get("$patch") == "replace":
        return _plain(overlay)
    merged = copy.deepcopy(target)
    for name, value in overlay.items():
        inner = f"{path}.{name}"
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = merge(merged.get(name, {}), value, inner)
        elif isinstance(value, list):
            key = _merge_key(name, value)
            merged[name] = _merge_list(merged.get(name) or [], value, key, inner) if key else copy.deepcopy(value)
        else:
            merged[name] = value
    return merged


def _merge_key(name: str, value: list[Any]) -> str | None:
    if name == "ports":  # of a container, not of a Service
        return "containerPort" if all(isinstance(each, dict) and "containerPort" in each for each in value) else None
    return _KEYS.get(name)


def _merge_list(target: list[Any], overlay: list[Any], key: str, path: str) -> list[Any]:
    merged = copy.deepcopy(target)
    for number, each in enumerate(overlay):
        if not isinstance(each, dict) or key not in each:
            raise SpecError(f"{path}[{number}]: must be a mapping with {key!r}, which tells what to merge it into")
        place = next((index for index, old in enumerate(merged) if old.get(key) == each[key]), None)
        if each.get("$patch") == "delete":
            merged = [old for old in merged if old.get(key) != each[key]]
        elif place is None:
            merged.append(_plain(each))
        else:
            merged[place] = merge(merged[place], each, f"{path}[{number}]")
    return merged


def _plain(value: Any) -> Any:
    """Return a copy without directives."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if name != "$patch" and each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
