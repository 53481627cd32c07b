"""Decide without any I/O whether to submit, attach, collect or go on to the next attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from transload.runner.clusters import Cluster
from transload.specs import AppState, AppStatus, CfgVal, is_terminal, looks_secret
from transload.specs.serialization import SCHEMA, reading

__all__ = [
    "Action",
    "Again",
    "AttachRecord",
    "AttachStore",
    "Attached",
    "decide",
    "decide_earlier",
]


class Action(str, Enum):
    """What to do about one attempt."""

    SUBMIT = "submit"  # it never existed
    ATTACH = "attach"  # it is on its way
    COLLECT = "collect"  # it has ended, and that is the answer
    NEXT = "next"  # it has ended, and the orchestrator asks again, so look at the next attempt
    WAIT_END = "wait_end"  # it is being cancelled: wait for its end, then decide again
    WAIT_KNOWN = "wait_known"  # the scheduler cannot say: wait, as long as patience lasts
    GONE = "gone"  # it existed and does not any more: lost, unless a later attempt is there
    LOST = "lost"  # its handle was stored and it is gone


class Again(Enum):
    """How this try of a step asks, compared with the try that submitted the newest of its jobs.

    - ``NO``: it is the same asking, as with a retry.
    - ``YES``: a person asks anew, so that the step runs again.
    - ``LATER``: the job was submitted by a later try than this one, which is over.
    - ``FOREIGN``: the job may be one of another installation with the same names.
    """

    NO = "no"
    YES = "yes"
    LATER = "later"
    FOREIGN = "foreign"


def decide(
    status: AppStatus | None,
    resubmit_on: frozenset[AppState],
    *,
    existed: bool = False,
    handle_stored: bool = False,
) -> Action:
    """Return the action for an attempt. ``status`` is None only if the job is provably absent.

    With ``existed``, an absent job was submitted once. With ``handle_stored``, the orchestrator has
    the handle of this very attempt.
    """
    if status is None and handle_stored:
        return Action.LOST
    if status is None and existed:
        return Action.GONE
    if status is None:
        return Action.SUBMIT
    if status.state is AppState.UNKNOWN:
        return Action.WAIT_KNOWN
    if is_terminal(status.state):
        if status.state in resubmit_on:
            return Action.NEXT
        return Action.COLLECT
    if status.cancel_requested and AppState.CANCELLED in resubmit_on:
        return Action.WAIT_END
    return Action.ATTACH


def decide_earlier(status: AppStatus | None, *, existed: bool = False) -> Action:
    """Return what to do about an earlier generation's job, which is nothing once it has ended."""
    if status is None or is_terminal(status.state):
        return Action.NEXT
    if status.state is AppState.UNKNOWN:
        return Action.WAIT_KNOWN
    return Action.WAIT_END


@dataclass(frozen=True, slots=True)
class Attached:
    """How an orchestrator got its job, which is by ``submit``, ``attach`` or ``collect``.

    ``attempt`` is that of the generation, None where every run has a fresh id. ``status`` is the
    latest one, None right after a submit.
    """

    handle: str
    app_id: str
    attempt: int | None
    action: Action
    status: AppStatus | None = None


class AttachStore(Protocol):
    """Where an orchestrator keeps one small JSON object for one unit of work.

    An orchestrator that has no such place gives None. A store that cannot be reached raises an
    exception of the orchestrator's. Before the submit that fails the step. Once there is a job, the
    record is put again later.
    """

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None."""

    def put(self, record: dict[str, Any]) -> None:
        """Store ``record``. When this returns, it survives the death of the process."""


@dataclass(slots=True)
class AttachRecord:
    """What an orchestrator stores about its unit of work.

    It is written before the submit (without handle), and after it (with).
    """

    chain: str  # what the ids of the step's jobs begin with (see `chain_of`)
    attempt: int  # the number of the latest
    app_id: str  # its intended id
    scheduler: str  # where it is submitted
    handle: str | None = None  # once it is submitted
    cfg: dict[str, CfgVal] = field(default_factory=dict)  # run options without secrets
    lost: bool = False  # it was found to be lost, and the orchestrator was notified
    cluster: Cluster | None = None  # which one the scheduler is

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values. Options whose name looks secret are left out."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["cluster"] = None if self.cluster is None else self.cluster.to_dict()
        values["cfg"] = {key: value for key, value in self.cfg.items() if not looks_secret(key)}
        return {"schema": SCHEMA, **values}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> AttachRecord:
        """Read what `to_dict` returned, and ignore unknown fields.

        Raises:
            SpecError: if it is not such a record, or of a newer schema.
        """
        with reading("stored record", data) as values:
            known = {
                name: values[name] for name in AttachRecord.__dataclass_fields__ if name in values
            }
            cluster = known.pop("cluster", None)
            record = AttachRecord(**known, cluster=Cluster.from_dict(cluster) if cluster else None)
            record.attempt = int(record.attempt)
            return record
