"""Look after all jobs of a user on one engine, in a process of the user.

It restarts replicas, ends replicas together with others, keeps time limits, does cancels, and notes
final states. All that it knows is on the engine. So it may be killed at any moment, and the next
client that looks starts another one. It ends when there is no job to look after.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Final

from transload.errors import SchedulerUnavailable, TransloadError
from transload.schedulers.cancelling import request_text
from transload.schedulers.changes import Changes
from transload_docker import names, notices
from transload_docker.decide import CANCEL, END, FAILURE, Decision, Renewal, decide
from transload_docker.engine import Engine, EngineError, in_parallel
from transload_docker.gpus import settle
from transload_docker.home import Home
from transload_docker.plan import DELETED, ENDED, STOP, Container, Facts, Plan
from transload_docker.signs import Signs
from transload_docker.submit import renewed, take_back
from transload_docker.watch import EngineWatch

ENV_LINGER: Final = "TRANSLOAD_DOCKER_LINGER"
_LINGER_S: Final = 5.0
_RESYNC_S: Final = 30.0
_BUSY_S: Final = 0.1
_PATIENCE_S: Final = 1800.0
_MAX_LOG_BYTES: Final = 1 << 20
_TURNS: Final = 20
_STARTS: Final = 3
_KILL_AGAIN_S: Final = 1.0


class Supervisor:
    """The supervisor of the jobs of one owner on one engine.

    It ends after ``linger`` seconds without a job.
    """

    def __init__(self, engine: Engine, home: Home, linger: float = _LINGER_S) -> None:
        self.engine = engine
        self.home = home
        self.linger = linger
        self._killed: dict[str, float] = {}  # container id → when it is killed again (monotonic)
        self._due: dict[str, float] = {}  # job id → when to look again (monotonic)
        self._refused: dict[str, int] = {}  # container id → how often the engine would not start it
        self._signs: dict[str, Signs] = {}  # job id → its signs of life
        self._changes = Changes()
        self.stopped = False

    def stop(self) -> None:
        """End soon. Jobs go on, and wait for the next supervisor."""
        self.stopped = True
        self._changes.add()

    def has_work(self) -> bool:
        """Tell whether there is a job to look after."""
        return any(self._is_ours(facts) for facts in self.engine.notes().values())

    def run(self) -> None:
        """Look after jobs until there has been none for a while, or no engine for too long."""
        self.home.sweep_withdrawals()
        watch = EngineWatch(self.engine, self._changes.add)
        try:
            self._loop(watch)
        finally:
            watch.close()

    def _loop(self, watch: EngineWatch) -> None:
        quiet_since = seen = time.monotonic()
        resync = 0.0
        changed: set[str] = set()
        while not self.stopped and os.path.isdir(self.home.folder):
            now = time.monotonic()
            try:
                if now >= resync:
                    changed |= self._all()
                    resync = now + _RESYNC_S
                changed |= {app_id for app_id, due in self._due.items() if due <= now}
                for app_id in changed:
                    self._look_safely(app_id)
                self._look_for_signs()
                seen = time.monotonic()
            except SchedulerUnavailable:
                if now - seen > _PATIENCE_S:
                    return
                resync = 0.0
            watch.update(list(self._due))
            changed = set()
            now = time.monotonic()
            if self._due or not resync:  # an engine that is away may have jobs
                quiet_since = now
            elif now - quiet_since >= self.linger:
                return
            if resync:
                signs = [each.due for each in self._signs.values()]
                ends = [*(self._due.values() or [quiet_since + self.linger]), *signs, resync]
            else:
                ends = [now + 1.0]
            changed = self._changes.wait(max(0.0, min(ends) - now))

    def _all(self) -> set[str]:
        """Return the ids of all jobs to look after, and remove what belongs to no job."""
        notes = self.engine.notes()
        found = {app_id for app_id, facts in notes.items() if self._is_ours(facts)}
        for app_id in self._unclaimed(notes):
            with contextlib.suppress(EngineError):  # the next round tries again
                self._clear(app_id)
        settle(self.engine, self.home)
        for app_id in set(self._due) - found:
            self._forget(app_id)
        return found

    def _is_ours(self, facts: Facts) -> bool:
        if facts.plan is None or facts.ended is not None:
            return False
        stopped_by = (facts.stop or {}).get("owner")
        return self.home.owner in (facts.plan.owner, stopped_by)

    def _unclaimed(self, notes: dict[str, Facts]) -> set[str]:
        """Return jobs of which there are containers or a network of this owner, but no record."""
        ours = {"label": [f"{names.LABEL_OWNER}={self.home.owner}"]}
        rows = self.engine.query(
            lambda api: api.containers(all=True, filters=ours) + api.networks(filters=ours)
        )
        ids = {row["Labels"][names.LABEL_APP] for row in rows}
        return {app_id for app_id in ids if _has_no_record(notes.get(app_id, Facts()))}

    def _clear(self, app_id: str) -> None:
        """Remove what a submit or a delete has left whose process was killed."""
        with self.home.lock(app_id, patience=0.0) as got:
            if not got:
                return
            facts = self._facts(app_id)
            if not _has_no_record(facts):
                return
            in_parallel(lambda c: self.engine.remove_container(c.id), facts.containers)
            self.engine.remove_network(names.network_name(app_id))
            for kind in facts.kinds - {DELETED}:
                self.engine.forget(app_id, kind)
            self.home.remove_signs(app_id)

    def _facts(self, app_id: str) -> Facts:
        return self.engine.facts(app_id).get(app_id, Facts())

    # -- one job

    def _look_safely(self, app_id: str) -> None:
        """Do `_look`. Trouble with one job does not concern the others."""
        try:
            self._look(app_id)
        except EngineError as exc:
            _log(f"job {app_id}: {exc}")
            self._due[app_id] = time.monotonic() + 1.0
        except SchedulerUnavailable:
            raise
        except Exception:  # unforeseen facts, perhaps of another version
            _log(f"job {app_id}: {traceback.format_exc()}")
            self._due[app_id] = time.monotonic() + _RESYNC_S

    def _look(self, app_id: str) -> None:
        """Look at a job, and do the next steps until there is none."""
        for _ in range(_TURNS):
            facts = self._facts(app_id)
            if facts.plan is None or not self._is_ours(facts):
                self._forget(app_id)
                return
            self._see(facts, facts.plan)
            decision = decide(facts, time.time())
            has_steps = self._has_steps(decision) or bool(facts.undelivered(self.home.owner))
            if not has_steps and not self.home.is_withdrawn(facts.plan.uid):
                self._due[app_id] = self._next(decision)
                return
            with self.home.lock(app_id, patience=0.0) as got:
                if not got:
                    self._due[app_id] = time.monotonic() + _BUSY_S
                    return
                # others may have acted before this process had the lock
                facts = self._facts(app_id)
                if facts.plan is not None and self.home.is_withdrawn(facts.plan.uid):
                    take_back(self.engine, app_id, facts)
                    self.home.remove_signs(app_id)
                elif facts.plan is not None and self._is_ours(facts):
                    self._see(facts, facts.plan)
                    self._act(facts, facts.plan, decide(facts, time.time()))
        self._due[app_id] = time.monotonic() + _BUSY_S

    def _see(self, facts: Facts, plan: Plan) -> None:
        """Keep the signs of life that facts show, and add to the facts what is known here."""
        if plan.owner == self.home.owner:
            if plan.app_id not in self._signs:
                self._signs[plan.app_id] = Signs(self.engine, self.home, plan)
            self._signs[plan.app_id].see(facts)
        self.home.complete(facts)

    def _look_for_signs(self) -> None:
        """See how far the jobs are, and whether one has stalled."""
        for app_id, signs in self._signs.items():
            try:
                signs.look()
            except EngineError as exc:
                _log(f"job {app_id}: {exc}")

    def _forget(self, app_id: str) -> None:
        """Look after a job no more."""
        self._due.pop(app_id, None)
        signs = self._signs.pop(app_id, None)
        if signs is not None:
            signs.close()

    def _has_steps(self, decision: Decision) -> bool:
        steps = (
            decision.stop,
            decision.end,
            decision.warn,
            self._to_kill(decision),
            decision.renew,
            decision.start,
            decision.note,
        )
        return any(steps)

    def _to_kill(self, decision: Decision) -> list[Container]:
        """Return the containers to kill, without those that were killed just now."""
        now = time.monotonic()
        return [each for each in decision.kill if self._killed.get(each.id, 0.0) <= now]

    def _next(self, decision: Decision) -> float:
        now = time.monotonic()
        dues = [self._killed[each.id] for each in decision.kill if each.id in self._killed]
        if decision.due is not None:
            dues.append(now + max(0.0, decision.due - time.time()))
        return min(dues, default=now + _RESYNC_S)

    def _act(self, facts: Facts, plan: Plan, decision: Decision) -> None:
        app_id = plan.app_id
        if decision.stop is not None:
            note = stop_note(*decision.stop, self.home.owner, decision.status.failed)
            self.engine.note(app_id, STOP, note, plan.uid)
        notices.send_missing(self.engine, facts, self.home.owner)
        notices.send(self.engine, plan, decision.warn, "", self.home.owner)
        notices.send(self.engine, plan, decision.end, END, self.home.owner)
        for container in self._to_kill(decision):
            self.engine.signal(container.id, "SIGKILL")
            self._killed[container.id] = time.monotonic() + _KILL_AGAIN_S
        if plan.owner == self.home.owner:
            self._renew(facts, plan, decision.renew)
            self._start(plan, decision.start)
        if decision.note:
            if plan.network:  # before the note: nobody looks after a job that has ended
                with contextlib.suppress(EngineError):
                    self.engine.remove_network(plan.network)
            self.engine.note(app_id, ENDED, decision.status.to_json(), plan.uid)
            settle(self.engine, self.home)

    def _renew(self, facts: Facts, plan: Plan, renewals: Sequence[Renewal]) -> None:
        if renewals:
            notices.forget_past(self.engine, plan.app_id, facts)
        for renewal in renewals:
            last = renewal.last
            self.home.forget_progress(plan.app_id, last.role, last.replica)
            try:
                renewed(self.engine, plan.app_id, renewal, plan.network)
            except EngineError as exc:
                self._give_up(plan, last, exc)
                return

    def _start(self, plan: Plan, containers: Sequence[Container]) -> None:
        ordered = list(containers)  # in the order of the plan
        for part in (ordered[:1], ordered[1:]):
            # rank 0 first, which the others look for
            in_parallel(lambda container: self._start_one(plan, container), part)

    def _start_one(self, plan: Plan, container: Container) -> None:
        try:
            self.engine.call(lambda api: api.start(container.id))
        except EngineError as exc:
            # usually the engine notes the reason with the container, which has failed then
            self._refused[container.id] = self._refused.get(container.id, 0) + 1
            if self._refused[container.id] >= _STARTS:
                self._give_up(plan, container, exc)

    def _give_up(self, plan: Plan, container: Container, exc: EngineError) -> None:
        msg = f"role {container.role!r}, replica {container.replica} cannot be started again: {exc}"
        note = stop_note(FAILURE, msg, self.home.owner, (container.role, container.replica))
        self.engine.note(plan.app_id, STOP, note, plan.uid)


def _has_no_record(facts: Facts) -> bool:
    """Tell whether a job has no record, not even one that cannot be read."""
    return facts.plan is None and not facts.unread


def stop_note(reason: str, msg: str, owner: str, failed: tuple[str, int] | None = None) -> str:
    """Return the text of the note that a job is being ended, with what failed first."""
    note = {"reason": reason, "msg": msg, "time": time.time(), "owner": owner, "failed": failed}
    return json.dumps(note)


def cancel_note(owner: str) -> str:
    """Return the text of the note that a job was cancelled through transload."""
    return stop_note(CANCEL, request_text(), owner)


def main(argv: Sequence[str]) -> int:
    """Look after the jobs on the engine ``argv[0]``, unless another process does so already."""
    home = Home(argv[0])
    _limit_log(home)
    engine = Engine(argv[0])
    supervisor = Supervisor(engine, home, float(os.environ.get(ENV_LINGER) or _LINGER_S))
    signal.signal(signal.SIGTERM, lambda *_: supervisor.stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        lock = home.supervisor_lock()
        if lock is None:
            return 0
        try:
            supervisor.run()
        except Exception:
            _log(traceback.format_exc())
            return 1
        finally:
            os.close(lock)
        # whoever submitted a job just now saw the lock taken, and started no other supervisor
        try:
            if supervisor.stopped or not supervisor.has_work():
                return 0
        except TransloadError:
            return 0


def _log(text: str) -> None:
    print(time.strftime("%FT%TZ", time.gmtime()), text, file=sys.stderr, flush=True)  # noqa: T201 - it is keeper.log


def _limit_log(home: Home) -> None:
    path = os.path.join(home.folder, "keeper.log")
    with contextlib.suppress(OSError):
        if os.path.getsize(path) > _MAX_LOG_BYTES:
            os.truncate(path, 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
