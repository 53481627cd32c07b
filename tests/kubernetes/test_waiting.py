"""Why a pod waits, in words."""

from __future__ import annotations

import pytest

from transload_kubernetes.states import HOPELESS, stuck
from transload_kubernetes.waiting import in_words

_NO_VICTIM = "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
_NO_HELP = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            f"0/3 nodes are available: 3 Insufficient nvidia.com/gpu. {_NO_VICTIM}",
            "no node takes it; of 3, 3 have too little nvidia.com/gpu left",
        ),
        (
            (
                f"0/3 nodes are available: 3 Insufficient nvidia.com/gpu. no new claims to deallocate, "
                f"{_NO_HELP}"
            ),
            (
                "no node takes it; of 3, 3 have too little nvidia.com/gpu left; no node has that much "
                "at all, so it can never start"
            ),
        ),
        (
            (
                "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: a100}, 1 node(s) were "
                f"unschedulable, 1 node(s) didn't match Pod's node affinity/selector. {_NO_HELP}"
            ),
            (
                "no node takes it; of 3, 1 has the taint gpu=a100, which run option tolerations would "
                "allow, 1 has been taken out of service (cordoned), 1 has other labels than run option "
                "node_selector wants"
            ),
        ),
        (
            (
                "0/2 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/"
                "control-plane: }, 1 Insufficient cpu."
            ),
            (
                "no node takes it; of 2, 1 has the taint node-role.kubernetes.io/control-plane, which "
                "run option tolerations would allow, 1 has too little cpu left"
            ),
        ),
        (
            "0/1 nodes are available: 1 of a future version.",
            "no node takes it; of 1, 1: of a future version",
        ),
        ("0/0 nodes are available: .", "the cluster has no node"),
        ("something else", ""),
    ],
)
def test_in_words(message: str, words: str) -> None:
    """What the cluster's scheduler says of its nodes, and whether time can help."""
    assert in_words(message) == words


def test_a_request_that_no_node_can_meet_is_hopeless() -> None:
    """Its status says how to end it."""
    message = f"0/3 nodes are available: 3 Insufficient cpu. {_NO_HELP}"
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    text = stuck({"status": {"phase": "Pending", "conditions": [condition]}})
    assert text.startswith("Unschedulable: no node takes it")
    assert any(word in text for word in HOPELESS)
