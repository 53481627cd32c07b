"""Say in words why no node takes a pod, from what the cluster's scheduler says of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_NODES: Final = re.compile(r"0/(?P<all>\d+) nodes are available: (?P<rest>.*)", re.DOTALL)
_NOT_HELPFUL: Final = re.compile(
    r"preemption: (0/(?P<all>\d+) nodes are available: )?(?P<count>\d+) "
    r"Preemption is not helpful for scheduling\.?$"
)
_PART: Final = re.compile(r"(?P<count>\d+) (?P<why>[^,{]*(\{[^}]*\})?[^,]*)(, |$)")
_WORDS: Final[Mapping[str, str]] = {
    r"Insufficient (\S+)": "{0} too little {1} left",
    r"node\(s\) had untolerated taints? ?\{(\S+?): (\S*?)\}": (
        "{0} the taint {1}={2}, which run option tolerations would allow"
    ),
    r"node\(s\) had untolerated taint\(s\)": (
        "{0} taints, which run option tolerations would allow"
    ),
    r"node\(s\) didn't match Pod's node affinity/selector": (
        "{0} other labels than run option node_selector wants"
    ),
    r"node\(s\) were unschedulable": "{0} been taken out of service (cordoned)",
    r"node\(s\) had volume node affinity conflict": "{0} no access to a volume of the job",
    r"node\(s\) didn't have free ports.*": "{0} a port of the job in use",
    r"Too many pods": "{0} as many pods as it takes",
}
"""The scheduler's words about nodes → the same for people, with ``{0}`` for the number of nodes."""


def in_words(message: str) -> str:
    """Return in words why no node takes a pod, or ``""`` if the message has another form.

    Args:
        message: that of the pod's condition ``PodScheduled``, or of an event ``FailedScheduling``.
    """
    match = _NODES.search(message)
    if match is None:
        return ""
    count = int(match["all"])
    if not count:
        return "the cluster has no node"
    reasons = match["rest"].partition(". ")[0].removesuffix(".")
    parts = [_part(int(each["count"]), each["why"]) for each in _PART.finditer(reasons)]
    text = f"no node takes it; of {count}, {', '.join(parts)}"
    if _is_too_large(reasons, match["rest"], count):
        text += "; no node has that much at all, so it can never start"
    return text


def _part(count: int, why: str) -> str:
    have = f"{count} have"
    if count == 1:
        have = "1 has"
    for pattern, words in _WORDS.items():
        found = re.fullmatch(pattern, why.strip())
        if found is not None:
            return words.format(have, *found.groups()).replace("=,", ",")
    return f"{count}: {why.strip()}"


def _is_too_large(reasons: str, message: str, count: int) -> bool:
    """Tell whether no node could take a pod even if it were empty.

    Then the scheduler finds nobody whose end would help, although only room is missing.
    """
    found = _NOT_HELPFUL.search(message)
    if found is None or int(found["count"]) != count:
        return False
    whys = [each["why"].strip() for each in _PART.finditer(reasons)]
    return bool(whys) and all(why.startswith("Insufficient ") for why in whys)
