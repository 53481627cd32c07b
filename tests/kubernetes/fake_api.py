"""Do what an API server does to any object, with errors, selectors, patches and indexes."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def selected(item: dict[str, Any], labels: str, fields: str) -> bool:
    """Tell whether an object matches selectors of labels and fields."""
    have = item["metadata"].get("labels") or {}
    rest = labels
    while rest:
        name, _, after = rest.partition(" in (")
        if after and "," not in name and "=" not in name:
            choice, _, rest = after.partition(")")
            if have.get(name) not in choice.split(","):
                return False
            rest = rest.lstrip(",")
            continue
        part, _, rest = rest.partition(",")
        key, equals, value = part.partition("=")
        if (equals and have.get(key) != value) or (not equals and key not in have):
            return False
    for part in filter(None, fields.split(",")):
        key, _, value = part.partition("=")
        found: Any = item
        for step in key.split("."):
            found = (found or {}).get(step)
        if found != value:
            return False
    return True


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with a merge patch (RFC 7386) applied."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Any, steps: Any) -> dict[str, Any]:
    """Return a merge patch that does to ``target`` what a JSON patch (RFC 6902) does.

    It knows four kinds of steps, on mappings.
    """
    change: dict[str, Any] = {}
    for step in steps:
        *path, last = [
            part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]
        ]
        old, new = target, change
        for part in path:
            old, new = old.get(part) or {}, new.setdefault(part, {})
        if step["op"] in ("add", "replace"):
            new[last] = step["value"]
        elif last not in old or (step["op"] == "test" and old[last] != step["value"]):
            raise ApiError(
                422, "Invalid", "the server rejected our request due to an error in our request"
            )
        elif step["op"] == "remove":
            new[last] = None
    return change


def ranges(numbers: set[int]) -> str:
    """Write indexes as a Job's status does, as in ``0,2-4``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
