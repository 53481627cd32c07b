"""Jobs of an engine that were submitted from other machines, as far as their containers tell.

Their records, retries and limits are where they were submitted. What is said of them here never
contradicts what their keepers decide: where that is not known, it is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from transload.keeper import layout
from transload.schedulers.api import AppDescription
from transload.schedulers.folder import store
from transload.specs import AppDef, AppState, AppStatus
from transload_docker import names, states
from transload_docker.engine import Box, Engine, in_parallel, latest

_REMEMBERED: Final = 10_000
_ENDED: Final = ("exited", "dead")


@dataclass(slots=True)
class Foreign:
    """A job that was submitted from another machine.

    Args:
        app_id: its id.
        boxes: its containers.
        mark: how it is to end, or None if nobody has said so.
        ends: of each container that has ended, what the engine says of it.
    """

    app_id: str
    boxes: list[Box]
    mark: dict[str, str] | None
    ends: dict[str, dict[str, Any]]

    @property
    def record(self) -> dict[str, Any]:
        """What its labels say of its submit, {} if nothing that can be read."""
        for box in self.boxes:
            text = box.labels.get(names.LABEL_RECORD)
            if text is not None:
                try:
                    found = layout.loads(text.encode())
                except ValueError:
                    return {}
                return found if isinstance(found, dict) else {}
        return {}

    @property
    def app(self) -> AppDef | None:
        """Its definition, if that can be read."""
        return store.app_of(f"elsewhere {self.app_id}", self.record)

    @property
    def digest(self) -> str:
        """The digest of its definition."""
        return self.boxes[0].labels.get(names.LABEL_DIGEST, "")

    @property
    def is_begun(self) -> bool:
        """Tell whether it was started, and not only made."""
        return any(box.status != "created" for box in self.boxes)

    def status(self) -> AppStatus:
        """Return how it is doing."""
        replicas = [self._replica(box) for box in latest(self.boxes).values()]
        roles: dict[str, list[dict[str, Any]]] = {}
        for replica in replicas:
            roles.setdefault(replica["role"], []).append(replica)
        state, msg = self._state(replicas)
        shown = {
            "schema": 1,
            "state": state,
            "msg": msg,
            "roles": [{"role": name, "replicas": found} for name, found in roles.items()],
            "cancel_requested": self.mark is not None and self.mark["state"] == "CANCELLED",
            "engine": {"containers": ", ".join(b.name for b in latest(self.boxes).values())},
        }
        return AppStatus.from_dict(shown)

    def _replica(self, box: Box) -> dict[str, Any]:
        role, k = box.key
        found: dict[str, Any] = {"id": k, "role": role, "hostname": box.name}
        end = self.ends.get(box.id)
        if end is None:
            return {**found, "state": states.STATES.get(box.status, AppState.UNKNOWN).name}
        state = states.replica_state(end["Status"], end["ExitCode"], end.get("Error", ""))
        return {
            **found,
            "state": state.name,
            "exit_code": states.exit_code(end["ExitCode"]),
            "start_time": states.seconds(end.get("StartedAt")),
            "end_time": states.seconds(end.get("FinishedAt")),
            "restarts": box.attempt,
        }

    def _state(self, replicas: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
        """Return the state of the job, and why."""
        seen = {replica["state"] for replica in replicas}
        msg = self.mark["msg"] if self.mark is not None else ""
        if seen & {"RUNNING", "PENDING"}:
            return "RUNNING", msg
        if "UNKNOWN" in seen:
            return "UNKNOWN", msg
        if self.mark is not None:
            return self.mark["state"], msg
        if "SUBMITTED" in seen:
            return "SUBMITTED", msg
        bad = [replica for replica in replicas if replica["state"] == "FAILED"]
        if self._may_go_on(bool(bad)):
            machine = (self.record.get("asked") or {}).get("machine", "another machine")
            return "UNKNOWN", (
                f"its containers have ended, and {machine}, where it was submitted, has not said "
                "yet what follows"
            )
        if self._succeeded(replicas):
            return "SUCCEEDED", ""
        return "FAILED", (
            f"role {bad[0]['role']!r}, replica {bad[0]['id']} failed (exit code "
            f"{bad[0]['exit_code']})"
        )

    def _succeeded(self, replicas: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether enough replicas of each role have succeeded."""
        good = [replica["role"] for replica in replicas if replica["state"] == "SUCCEEDED"]
        if self.app is None:
            return len(good) == len(replicas)
        return all(good.count(role.name) >= role.needed_replicas for role in self.app.roles)

    def _may_go_on(self, has_failed: bool) -> bool:
        """Tell whether a replica may be started again, or be missing."""
        if self.app is None:
            return has_failed
        if len(latest(self.boxes)) < sum(role.num_replicas for role in self.app.roles):
            return True
        again = any(role.max_retries or role.interruptions_allowed for role in self.app.roles)
        return has_failed and again

    def description(self) -> AppDescription:
        """Return what is known of it."""
        record = self.record
        return AppDescription(
            self.app_id,
            self.status(),
            self.app,
            session=record.get("session"),
            cfg=dict(record.get("cfg") or {}),
            digest=self.digest or None,
            tracker_base=record.get("tracker_base"),
            parent_run_id=record.get("parent_run_id"),
            created=record.get("created"),
            asked=dict(record.get("asked") or {}),
        )


class Elsewhere:
    """Finds the jobs of an engine that were submitted from other machines.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ends: dict[str, dict[str, Any]] = {}  # what cannot change, by the container's id
        self._died: set[str] = set()

    def doubt(self, container_id: str) -> None:
        """Look closely at a container from now on: a list shows its end later than an event."""
        self._died.add(container_id)

    def find(self, owner: str, **labels: str) -> dict[str, Foreign]:
        """Return the jobs with these labels that have another owner, by their ids."""
        by_id: dict[str, list[Box]] = {}
        for box in self._engine.boxes(**labels):
            if box.owner != owner:
                by_id.setdefault(box.app_id, []).append(box)
        if not by_id:
            return {}
        marks = self._engine.marks(**labels)
        found = {
            app_id: Foreign(app_id, sorted(boxes, key=_order), marks.get(app_id), self._ends)
            for app_id, boxes in by_id.items()
        }
        self._look_at_ends([box for boxes in by_id.values() for box in latest(boxes).values()])
        return found

    def _look_at_ends(self, boxes: Collection[Box]) -> None:
        if len(self._ends) > _REMEMBERED:
            self._ends.clear()
            self._died.clear()
        ended = [
            box
            for box in boxes
            if (box.status in _ENDED or box.id in self._died) and box.id not in self._ends
        ]
        for error in in_parallel(self._look, ended):
            raise error

    def _look(self, box: Box) -> None:
        found = self._engine.inspect(box.id)
        if found is not None and found["State"]["Status"] in _ENDED:
            self._ends[box.id] = found["State"]

    def cancel(self, foreign: Foreign, msg: str, owner: str) -> None:
        """Ask for the end of a job: its keeper, by a mark, and the engine, if that has no keeper."""
        self._engine.mark(foreign.app_id, "CANCELLED", msg, owner)
        alive = [box for box in foreign.boxes if box.status in states.ALIVE]
        for error in in_parallel(lambda box: self._engine.stop(box.id), alive):
            raise error

    def remove(self, foreign: Foreign) -> None:
        """Remove the containers of a job that has ended, and its mark."""
        for error in in_parallel(lambda box: self._engine.remove_container(box.id), foreign.boxes):
            raise error
        self._engine.unmark(foreign.app_id)


def _order(box: Box) -> tuple[int, tuple[str, int]]:
    return box.attempt, box.key
