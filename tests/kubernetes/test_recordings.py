"""Lives of apps on a real cluster (Kubernetes 1.36.2, JobSet 0.11), replayed through what judges
them.

``lives/lives.json.xz``: name of the life → every change of its record, Jobs, JobSet and pods, in
order. What an earlier version of this plugin noted as final is left out here: the end is to be seen
from the objects alone.
"""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.specs import AppState, AppStatus
from transload_kubernetes.decide import decide
from transload_kubernetes.plan import Facts
from transload_kubernetes.states import seconds

S, F, C = AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED


@functools.cache
def lives() -> dict[str, list[dict[str, Any]]]:
    """Return all lives."""
    data = lzma.decompress(Path(__file__).with_name("lives").joinpath("lives.json.xz").read_bytes())
    found: dict[str, list[dict[str, Any]]] = json.loads(data)
    return found


def replay(name: str) -> Iterator[AppStatus]:
    """Yield the status after each change, up to the first that is final."""
    there: dict[tuple[str, str], dict[str, Any]] = {}
    began: float | None = None
    for change in lives()[name]:
        item = json.loads(json.dumps(change["object"]))
        if change["kind"] == "ConfigMap":
            (item.get("data") or {}).pop("ended", None)
            began = began or seconds(item["metadata"]["creationTimestamp"])
        key = (change["kind"], item["metadata"]["uid"])
        if change["type"] == "DELETED":
            there.pop(key, None)
        else:
            there[key] = item
        of = {
            kind: [item for (each, _), item in there.items() if each == kind]
            for kind in ("ConfigMap", "JobSet")
        }
        if not of["ConfigMap"] or began is None:
            continue
        jobs, pods = (
            [item for (each, _), item in there.items() if each == kind] for kind in ("Job", "Pod")
        )
        facts = Facts(
            of["ConfigMap"][0], jobs, pods, jobset=of["JobSet"][0] if of["JobSet"] else None
        )
        if facts.kind != "app" or "submitted" not in facts.data:
            continue
        status = decide(facts, began + change["t"]).status
        yield status
        if status.is_terminal():
            return


ENDS: dict[str, tuple[AppState, int, list[int | None]]] = {
    "b1": (S, 0, [0]),
    "b3": (F, 0, [0, 1, 2]),
    "badimage": (F, 0, [None]),
    "bigcpu": (F, 0, [None]),
    "cancel1": (C, 0, [None, None]),
    "drain1": (S, 0, [0]),
    "evict": (S, 0, [0]),
    "js1": (S, 0, [0, 0]),
    "js4": (S, 1, [0, 0]),
    "js5": (F, 1, [9, 9]),
    "js7": (F, 0, [None, None]),
    "killforce": (F, 0, [None]),
    "killpod": (F, 0, [3]),
    "minrep": (S, 0, [5, 0, 0]),
    "node2": (S, 0, [0]),
    "node3": (S, 0, [0]),
    "noentry": (F, 0, [128]),
    "oommain": (F, 0, [-9]),
    "pre-low": (S, 0, [0]),
    "q2": (F, 0, [None]),
    "re-application": (S, 1, [0]),
    "re2-role": (S, 1, [0, 0, 0, 0]),
    "susp1": (S, 0, [0, 0]),
    "susp3": (S, 0, [0, 0]),
}
"""Life → how it ends, how often something was started again, exit codes of the replicas."""


@pytest.mark.parametrize("name", ENDS)
def test_every_life_ends_as_it_did(name: str) -> None:
    """State, restarts and exit codes at the end are those of the real app."""
    *_, last = replay(name)
    codes = [replica.exit_code for role in last.roles for replica in role.replicas]
    assert (last.state, last.num_restarts, codes) == ENDS[name]
    for role in last.roles:
        for replica in role.replicas:
            if replica.start_time and replica.end_time:
                assert 0 <= replica.end_time - replica.start_time < 3600


INTERRUPTED = {"drain1": "drained", "evict": "drained", "node3": "node", "pre-low": "preempted"}
"""Life → what interrupted its replica."""


@pytest.mark.parametrize("name", ENDS)
def test_interruptions_are_told_from_failures(name: str) -> None:
    """What the cluster ended for its own reasons is counted apart, with its cause."""
    seen = list(replay(name))
    causes = [each.cause for status in seen for each in status.roles[0].replicas[0].earlier]
    assert set(causes) == {INTERRUPTED[name]} if name in INTERRUPTED else not causes
    assert seen[-1].interruptions == int(name in INTERRUPTED)
    if name in INTERRUPTED:
        words = f"was interrupted ({INTERRUPTED[name]})"
        assert any(words in status.msg for status in seen if status.state is AppState.PENDING)


@pytest.mark.parametrize("name", ["b3", "minrep", "oommain"])
def test_a_last_failure_is_no_new_start(name: str) -> None:
    """Between a pod's end and the Job's verdict a replica that is given up does not look as if it
    started again.
    """
    seen = [
        tuple(replica.state for role in status.roles for replica in role.replicas)
        for status in replay(name)
    ]
    for k in range(len(seen[0])):
        states = [each[k] for each in seen]
        ran = states.index(AppState.RUNNING)
        assert AppState.PENDING not in states[ran:], states


def test_a_node_that_does_not_answer_is_told() -> None:
    """The pod's phase stays Running. The message says that its node does not answer."""
    texts = [status.msg for status in replay("node2") if "does not answer" in status.msg]
    assert texts and any("DeletionByTaintManager" in text for text in texts)


@pytest.mark.parametrize(("name", "how"), [("killpod", "exit code 3"), ("killforce", "failed")])
def test_a_deleted_pod_is_named(name: str, how: str) -> None:
    """Of a replica whose pod was deleted, at once or with its grace period, the message says so."""
    *_, last = replay(name)
    assert last.msg == f"main/0 {how}: another user or program deleted its pod"


def test_what_holds_an_app_back_is_told() -> None:
    """Queues, places and images."""
    for name, words in (
        ("susp1", "waits in queue"),
        ("bigcpu", "Unschedulable"),
        ("badimage", "InvalidImageName"),
    ):
        assert any(words in status.msg for status in replay(name)), name
