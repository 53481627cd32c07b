"""Strategic merge of an overlay into an object, as ``kubectl patch`` does it.

Lists of named things merge by name.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from transload.errors import SpecError

# Lists that merge, and what tells two elements apart (patchMergeKey of the Kubernetes API); others
# are replaced.
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
    """Return ``target`` with ``overlay`` merged into it; neither is changed.

    None deletes a field; ``$patch: replace`` in a mapping replaces all of it; ``$patch: delete`` in
    an element of a list removes that element.

    Raises:
        SpecError: if an element of a merging list lacks its key.
    """
    if not isinstance(overlay, dict):
        return copy.deepcopy(overlay)
    merged = (
        copy.deepcopy(target)
        if isinstance(target, dict) and overlay.get("$patch") != "replace"
        else {}
    )
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
                f"{path}[{number}]: must be a mapping with {key!r}, which tells what to merge it "
                "into"
            )
        place = next(
            (index for index, old in enumerate(merged) if old.get(key) == each[key]), len(merged)
        )
        new = merge(merged[place] if place < len(merged) else {}, each, f"{path}[{number}]")
        merged[place : place + 1] = [] if each.get("$patch") == "delete" else [new]
    return merged
