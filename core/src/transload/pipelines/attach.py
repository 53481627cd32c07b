"""Define what an orchestrator stores about the job of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from transload.pipelines.chain import Action, Newest
from transload.runner.schedulers import Cluster
from transload.specs import AppState, AppStatus, CfgVal, is_terminal, looks_secret
from transload.specs.serialization import SCHEMA, reading

__all__ = ["AttachRecord", "AttachStore", "Attached", "decide_earlier"]


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

    ``attempt`` is the job's number in the chain. ``status`` is the latest one, None right after a
    submit.
    """

    handle: str
    app_id: str
    attempt: int
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
