"""Decide without any I/O whether to submit, attach, collect or go on to the next attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from transload.runner.schedulers import Cluster
from transload.specs import AppState, AppStatus, CfgVal, is_terminal, looks_secret
from transload.specs.serialization import SCHEMA, reading

__all__ = [
    "Action",
    "Again",
    "AttachRecord",
    "AttachStore",
    "Attached",
    "Newest",
    "decide",
    "decide_earlier",
]


class Action(str, Enum):
    """What to do about the newest job of a step's chain."""

    SUBMIT = "submit"  # there is none
    ATTACH = "attach"  # it is on its way
    COLLECT = "collect"  # it has ended, and that is the answer
    NEXT = "next"  # it has ended, and the step is to run again
    WAIT_END = "wait_end"  # it is being cancelled: wait for its end, then decide again
    END = "end"  # a person asks anew: end it, wait for its end, then decide again
    WAIT_KNOWN = "wait_known"  # the scheduler cannot say: wait, as long as patience lasts
    GONE = "gone"  # it existed and does not any more
    OVER = "over"  # a later try has submitted it: this one is over
    FOREIGN = "foreign"  # it may be another installation's, and it runs


class Again(Enum):
    """How this try of a step asks, compared with the try that submitted the newest of its jobs.

    - ``NO``: it is the same asking, as with a retry.
    - ``IF_ENDED``: the same, but it may be a person who runs the step again. A job that was
      cancelled does not stay so then. One that runs is the step's.
    - ``YES``: a person asks anew, so that the step runs again.
    - ``LATER``: the job was submitted by a later try than this one, which is over.
    - ``FOREIGN``: the job may be one of another installation with the same names.
    """

    NO = "no"
    IF_ENDED = "if_ended"
    YES = "yes"
    LATER = "later"
    FOREIGN = "foreign"

    @property
    def is_same(self) -> bool:
        """Return whether a job that runs is the one that this try asks for."""
        return self in (Again.NO, Again.IF_ENDED)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest job of a step's chain, as its scheduler knows it.

    Args:
        handle: its handle. It is the one that the first job will get if there is none, and None if
            the scheduler cannot say which job is the newest.
        number: its number in the chain, or None if the chain has no job.
        status: its status, or None if there is no job, or it is gone.
        again: how this try asks, compared with the one that submitted it.
        digest: the digest of its definition, or None if it is not known.
        here: whether the current settings would submit to the same scheduler and cluster.
        elsewhere: it may be there, on a machine that this one cannot see.
    """

    handle: str | None
    number: int | None = None
    status: AppStatus | None = None
    again: Again = Again.NO
    digest: str | None = None
    here: bool = True
    elsewhere: bool = False


_ENDED_BADLY: Final = frozenset({AppState.FAILED, AppState.CANCELLED})


def decide(newest: Newest, resubmit_on: frozenset[AppState]) -> Action:
    """Return what to do about the newest job of a chain."""
    status = newest.status
    if newest.again is Again.LATER:
        return Action.OVER
    if status is None:
        return Action.SUBMIT if newest.number is None else Action.GONE
    if status.state is AppState.UNKNOWN:
        return Action.WAIT_KNOWN
    has_ended = is_terminal(status.state)
    if newest.again is Again.FOREIGN:
        return Action.NEXT if has_ended else Action.FOREIGN
    if newest.again is Again.YES:
        return Action.NEXT if has_ended else Action.END
    if newest.again is Again.IF_ENDED:
        resubmit_on = _ENDED_BADLY
    if has_ended:
        return Action.NEXT if status.state in resubmit_on else Action.COLLECT
    if status.cancel_requested and AppState.CANCELLED in resubmit_on:
        return Action.WAIT_END
    return Action.ATTACH


def decide_earlier(newest: Newest) -> Action:
    """Return what to do about a job of an earlier identity, which is nothing once it has ended."""
    status = newest.status
    if status is None or is_terminal(status.state):
        return Action.NEXT
    if status.state is AppState.UNKNOWN:
        return Action.WAIT_KNOWN
    return Action.WAIT_END


@dataclass(frozen=True, slots=True)
class Attached:
    """How an orchestrator got its job, which is by ``submit``, ``attach`` or ``collect``.

    ``attempt`` is the job's number in the chain, None where every run has a fresh id. ``status`` is
    the latest one, None right after a submit.
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
    """What an orchestrator stores about the job of a step.

    It is written before the submit (without handle), and after it (with). It is a hint. It says
    where a job was submitted, should the settings name another place by now, and that a loss was
    reported. What is done is decided by what the schedulers say.
    """

    chain: str  # what the ids of the step's jobs begin with (see `chain_of`)
    attempt: int  # the number of the latest
    app_id: str  # its intended id
    scheduler: str  # where it is submitted
    handle: str | None = None  # once it is submitted
    cfg: dict[str, CfgVal] = field(default_factory=dict)  # run options without secrets
    lost: bool = False  # it was found to be lost, and the orchestrator was notified
    cluster: Cluster | None = None  # which one the scheduler is
    asked: dict[str, Any] | None = None  # the words of the try that submitted it
    place: str = ""  # the machine of the process that stored it (see `where`)

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
