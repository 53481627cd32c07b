"""The batch script's one command, which runs a job.

It starts the replicas, decides what follows from an end, and writes ``states.jsonl``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import selectors
import signal
import sys
import time

from transload.keeper import layout
from transload.keeper.failures import LONGEST_ERROR, exit_text, read_error
from transload.keeper.rules import TERMINAL, Gang, Replica
from transload.keeper.signs import (
    UPDATE_S,
    ProgressMeter,
    furthest_behind,
    stalled_text,
)
from transload.keeper.tracebacks import traceback_error

from .agent import (
    ERROR_FILE,
    LOOK_S,
    SENT,
    STREAMS,
    catch,
    patiently,
    root_of,
    start_number,
)
from .limits import SlurmLimit
from .rank0 import Rank0
from .requeue import cause_of, go_on
from .starts import Start, claim, job_id
from .steps import Step, complain, job_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WITHDRAWN = 79
"""Exit code of a job that finds its submit withdrawn, or done again by another."""

STATES = "states.jsonl"
"""The file in a job's folder that says what it is doing."""

_WRITE_S = 0.1
_KILL_S = 10.0
_SIGNAL_S = 1.0
_FAILED_WRITE_S = 1.0
_AGAIN_S = (1.0, 30.0)
_MARGIN_S = 15.0
"""Seconds before Slurm's own limit at which a segment ends, to end replicas and to go on."""
_LEAVES = ("segment", "preempted")
"""After an interruption by these the job goes on in a further allocation, not in this one."""
_TERMINATED = (-signal.SIGTERM, 128 + signal.SIGTERM)
_GOES_ON = ("", "RUNNING", "CONFIGURING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED")
"""Slurm's words for a job that has not ended. The word is "" if Slurm does not answer."""
_UNKNOWN_TO_SH = {
    "source": "write `. FILE`",
    "module": "begin with `. /etc/profile.d/modules.sh`",
    "ml": "begin with `. /etc/profile.d/modules.sh`",
    "conda": "begin with `. FOLDER/etc/profile.d/conda.sh`",
}
"""What a prologue calls as from bash → what to write, as it is run by /bin/sh."""


class Supervisor:
    """Runs one job to its end.

    Args:
        folder: the job's folder.
        plan: its ``plan.json``.
        start: which start of the job this is.
        before: the ``states.jsonl`` of an earlier start, or None if there was none.
        prologue: exit code of the prologue, if it has failed, or 0 if it has not.
    """

    def __init__(
        self,
        folder: str,
        plan: dict[str, Any],
        start: Start,
        before: dict[str, Any] | None,
        prologue: int = 0,
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.start = start
        self.prologue = prologue
        cause = cause_of(before, folder)
        self.app = Gang(
            _rules(plan),
            plan["timeout"],
            before,
            segment=plan["segment"],
            cause=cause,
            judged=bool((before or {}).get("next")),
        )
        self.app.state = "PENDING"
        if before is not None and before.get("left_at"):
            self.app.skip(max(0.0, time.time() - before["left_at"]))  # in the queue
        if before is not None and cause:
            self.app.msg = before.get("msg", "")
        self.app.begin(time.time())
        self.leaving = ""  # why it goes on in a further allocation
        self.preempted = False
        self.meters: dict[Replica, ProgressMeter] = {}
        self.progress: dict[str, Any] | None = (before or {}).get("progress")
        self.progress_before = self.progress
        self.has_news = False  # of progress, which is written once a second
        self.stalled: dict[Replica, str] = {}
        self.log_at = _size(os.path.join(folder, "batch.log"))
        self.stopped: set[Replica] = set()  # replicas that were sent a stop
        self.steps: dict[int, Step] = {}
        self.selector = selectors.DefaultSelector()
        self.dirty = True
        self.written = 0.0
        self.looked = time.monotonic()
        self.replaced = False
        self.doubtful: list[tuple[Replica, int | None, float]] = []
        self.patience = 0.0
        self.again: dict[int, float] = {}  # role -> when to try once more to start its tasks
        self.pause = _AGAIN_S[0]
        self.began_at: dict[Replica, int] = {}  # where in its stderr the latest attempt begins
        self.why: dict[int, str] = {}  # role -> srun's complaint when it ended
        self.rank0: Rank0 | None = None
        self.wake, woken = os.pipe()
        for end in (self.wake, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        catch([*SENT, signal.SIGCONT])
        self.selector.register(self.wake, selectors.EVENT_READ, None)
        self.limit = SlurmLimit()

    def main(self) -> int:
        """Run the job to its end, and return its exit code."""
        refused = ""
        if self.start.number:
            refused = self.app.why_not_again()
        if self._is_cancelled():
            self._finish("CANCELLED", Gang.ON_REQUEST)
        elif refused:
            again = "Slurm started the job again (a node was lost, or it was pre-empted)"
            self._finish("FAILED", f"{again}, and {refused}")
        elif self.prologue:
            self._fail_by_prologue()
        else:
            self.rank0 = Rank0(self.plan)
            self._start([each for each in self.app.replicas if each.attempt.state not in TERMINAL])
            self._ask_limit()
        while not self._over():
            self._wait()
        return self._end()

    def _ask_limit(self) -> None:
        """Find out how long Slurm lets this job run."""
        self.limit.ask()
        if self.limit.answer is not None:
            self.selector.register(self.limit.answer, selectors.EVENT_READ, self.limit)
        self._keep_limit()

    def _on_limit(self) -> None:
        answer = self.limit.answer
        if self.limit.read():
            self.selector.unregister(answer or 0)
            self.dirty = True
            self._keep_limit()

    def _keep_limit(self) -> None:
        """Have notices and the end of the segment come in time before Slurm's own limit."""
        end = self.limit.end
        if end is None:
            return
        if self.app.segment is None:
            self.app.engine_end = end
        elif self.app.segment_began is not None:
            most = end - _MARGIN_S - self.app.segment_began
            self.app.segment = max(1.0, min(self.app.segment, most))

    @property
    def _warns(self) -> bool:
        """True if a role gets a notice before it is ended."""
        return any(role["notice"] is not None for role in self.plan["roles"])

    def _is_cancelled(self) -> bool:
        return os.path.exists(os.path.join(self.folder, "cancel"))

    def _fail_by_prologue(self) -> None:
        """End the job as failed. The prologue has written into its first replica's log."""
        first = self.app.replicas[0]
        now = time.time()
        logs = self._logs_of(first)
        output = "\n".join(_tail(os.path.join(logs, name)) for name in STREAMS)
        reason = f"the prologue failed ({exit_text(self.prologue)})"
        self.app.starting(first)
        self.app.started(first, now, os.uname().nodename)
        self.app.ended(first, self.prologue, now, why=reason, retry=False)
        if output.strip():
            last_line = output.strip().splitlines()[-1]
            reason += f": {last_line.strip()}{remedy_of(last_line)}"
        self._finish("FAILED", reason)

    # ------------------------------------------------------------------------------------------------------
    # starting

    def _start(self, replicas: list[Replica]) -> None:
        for replica in replicas:
            self.app.starting(replica)
            self.stopped.discard(replica)
        roles = sorted({replica.role for replica in replicas})
        for role in roles:  # all steps first: they take a while to come up
            self._step(role)
        assert self.rank0 is not None
        host = self.rank0.host()
        for role in roles:
            mine = [replica for replica in replicas if replica.role == role]
            step = self._step(role)
            together = len({(replica.run, replica.restarts) for replica in mine}) == 1
            if together and len(mine) == self.plan["roles"][role]["num_replicas"]:
                step.tell(f"start * {mine[0].run} {host} {mine[0].restarts}")
            else:
                for replica in mine:
                    step.tell(f"start {replica.k} {replica.run} {host} {replica.restarts}")
        self.dirty = True

    def _step(self, role: int) -> Step:
        step = self.steps.get(role)
        if step is not None and step.broken:
            self._leave(step)
            step = None
        if step is None:
            step = self.steps[role] = patiently(lambda: Step(self.folder, self.plan, role))
            self.selector.register(step.reports, selectors.EVENT_READ, step)
            if step.noise is not None:
                self.selector.register(step.noise, selectors.EVENT_READ, (step,))
        return step

    def _leave(self, step: Step) -> None:
        """End the tasks of a role, and forget them."""
        self.selector.unregister(step.reports)
        if step.noise is not None:
            self.selector.unregister(step.noise)
        self.steps.pop(step.role, None)
        step.dismiss()
        step.wait(_KILL_S)

    # -------------------------------------------------------------------------------------------------------
    # waiting

    def _wait(self) -> None:
        now = time.monotonic()
        dues = [self.looked + LOOK_S - now]
        due = self.app.due()
        if due is not None:
            dues.append(due - time.time())
        if self.dirty:
            dues.append(self.written + _WRITE_S - now)
        dues += [due - now for due in self.again.values()]
        if self.doubtful:
            dues.append(self.patience - now)
        if self.has_news:
            dues.append(self.written + UPDATE_S - now)
        for key, _ in self.selector.select(max(0.0, min(dues))):
            if key.data is None:
                self._on_signal()
            elif isinstance(key.data, tuple):
                self._on_noise(*key.data)
            elif key.data is self.limit:
                self._on_limit()
            elif self.steps.get(key.data.role) is key.data:
                self._on_report(key.data)
        if time.monotonic() >= self.looked + LOOK_S:
            self.looked = time.monotonic()
            if self.start.replaced():
                self._give_way()
            elif self._warns:  # a cancel waits for the notice, and may not have woken us
                self._look_for_cancel()
        if self.doubtful and (self.app.interrupted or time.monotonic() >= self.patience):
            self._judge_doubtful()
        self._try_again()
        self._warn()
        self._decide()
        self._start_again()
        before = self.app.state
        self.app.refresh()
        if self.has_news and time.monotonic() >= self.written + UPDATE_S:
            self.dirty = True
        if self.dirty and (self.app.state != before or time.monotonic() >= self.written + _WRITE_S):
            self._write()

    def _warn(self) -> None:
        """Send a notice to the replicas whose time, or segment, is near its end."""
        now = time.time()
        for replica in self.app.notices(now):
            if replica.role in self.steps:
                self.steps[replica.role].tell(f"notice {replica.k}")
            self.app.notified(replica, now)

    def _start_again(self) -> None:
        """Start the replicas of restarts, here or in a further allocation."""
        alive = any(replica.attempt.alive for replica in self.app.replicas)
        leaves = [each.cause for each in self.app.restarts if each.cause in _LEAVES]
        if leaves or self.preempted:
            if leaves and not alive and self.app.final is None and not self.app.interrupted:
                self.leaving = leaves[0]
            return
        for restart in [each for each in self.app.restarts if each.is_ready(time.time())]:
            self._start(self.app.renew(restart, time.time()))

    def _look_for_cancel(self) -> None:
        if self.app.final is None and self._is_cancelled():
            self._finish("CANCELLED", Gang.ON_REQUEST)

    def _on_terminated(self) -> None:
        """Find out whether Slurm, which has signalled the tasks, pre-empts the job.

        With a time of grace only the tasks get its signal, which is their notice.
        """
        if self.preempted or self.app.final is not None or self.app.interrupted:
            return
        if not any(role["max_interruptions"] for role in self.plan["roles"]):
            return
        self.preempted = job_now(0).preempted
        if self.preempted:
            complain("Slurm pre-empts this job; it goes on later")
            for replica in self.app.replicas:
                if replica.attempt.alive and not replica.attempt.noticed:
                    self.app.notified(replica, time.time(), "preempted")

    def _on_signal(self) -> None:
        received = self._received()
        if signal.SIGCONT in received and self._warns:
            self._look_for_cancel()
        numbers = received & set(SENT)
        # a signal may come to this process alone (``scancel --batch``, ``--signal=B:USR1@60``)
        for number in sorted(numbers):
            for step in self.steps.values():
                step.tell(f"signal * {number}")
        if signal.SIGTERM in numbers:
            # Slurm knows why (scancel, its limit, pre-emption), and signals the replicas itself
            self.dirty = True
            self.app.interrupt()
            for replica in self.app.replicas:
                if replica.role in self.again:
                    self._judge(replica, None, time.time())

    def _received(self) -> set[int]:
        """Return the signals that have come since this was asked last."""
        try:
            return set(os.read(self.wake, 4096))
        except BlockingIOError:
            return set()

    def _on_report(self, step: Any) -> None:
        lines = step.lines()
        if lines is None:
            self._lost(step)
            return
        for line in lines:
            try:
                report = json.loads(line)
                replica = next(
                    r for r in self.app.replicas if (r.role, r.k) == (step.role, report["k"])
                )
            except (ValueError, KeyError, TypeError, StopIteration):
                complain(f"not a report: {line!r}")
                continue
            if report["run"] == replica.run and replica.attempt.alive:
                self._take_report(replica, report)

    def _take_report(self, replica: Replica, report: dict[str, Any]) -> None:
        """Do what follows from one report of a task."""
        event = report["e"]
        if event == "progress":
            self._on_progress(replica, report["report"])
            return
        self.dirty = True
        self.began_at[replica] = report.get("began_at", 0)
        if event == "started":
            self.app.started(replica, report["time"], report["host"])
            if replica in self.meters:
                self.meters[replica].pause()
        elif event == "signalled":
            self._on_terminated()
        elif event in ("stalled", "alive"):
            self._on_stall(replica, report)
        else:
            self._on_end(replica, report)

    def _on_end(self, replica: Replica, report: dict[str, Any]) -> None:
        self.stalled.pop(replica, None)
        replica.host = report["host"]
        replica.attempt.usage = report.get("usage")
        was_terminated = report.get("signalled") or report["code"] in _TERMINATED
        if was_terminated and not replica.attempt.stopping and not replica.attempt.noticed:
            self._in_doubt(replica, report["code"], report["time"])
        else:
            self._judge(replica, report["code"], report["time"], report.get("why", ""))

    def _on_progress(self, replica: Replica, report: dict[str, Any]) -> None:
        if replica not in self.meters:
            self.meters[replica] = ProgressMeter(self.progress_before)
        if not self.meters[replica].update(report):
            return
        self.has_news = True
        if "step" in report:
            self.app.advanced(replica, report["step"])
        self.progress = furthest_behind(meter.latest for meter in self.meters.values())

    def _on_stall(self, replica: Replica, report: dict[str, Any]) -> None:
        if report["e"] == "alive":
            self.stalled.pop(replica, None)
            return
        role = self.plan["roles"][replica.role]
        self.stalled[replica] = stalled_text(self.app.name(replica), role["stall_after"])
        complain(self.stalled[replica])

    def _lost(self, step: Step) -> None:
        """Note that the tasks of a role are gone, and with them the replicas that had not ended."""
        self._leave(step)
        self.dirty = True
        doubtful = [replica for replica, _, _ in self.doubtful]
        lost = [
            r
            for r in self.app.replicas
            if r.role == step.role and r.attempt.alive and r not in doubtful
        ]
        why = step.never_began()
        if lost and why and self.app.final is None and not self.app.interrupted:
            complain(
                f"no task of role {self.plan['roles'][step.role]['name']!r} was started; it is "
                "tried again"
            )
            self.app.msg = f"waiting for Slurm to start the replicas: srun: {why}"
            self.again[step.role] = time.monotonic() + self.pause
            self.pause = min(2 * self.pause, _AGAIN_S[1])
            return
        self.why[step.role] = step.complaint()
        for replica in lost:
            self._in_doubt(replica, None, time.time())

    def _try_again(self) -> None:
        """Start the tasks that Slurm could not start before, which is no failure of the job."""
        for role in [role for role, due in self.again.items() if time.monotonic() >= due]:
            del self.again[role]
            self.app.msg = ""
            self._start([r for r in self.app.replicas if r.role == role and r.attempt.alive])

    def _in_doubt(self, replica: Replica, code: int | None, when: float) -> None:
        """Note that a replica was terminated, or is gone.

        That is no failure if Slurm is about to signal this process too.
        """
        self.doubtful.append((replica, code, when))
        self.patience = time.monotonic() + _SIGNAL_S

    def _judge_doubtful(self) -> None:
        """Judge the replicas that were terminated or lost, now that Slurm would have signalled us.

        Slurm may also have ended a part of the job only, or taken the node from us.
        """
        doubtful = self.doubtful
        self.doubtful = []
        if not self.app.interrupted and self.app.final is None:
            for role in sorted({replica.role for replica, _, _ in doubtful}):
                now = job_now(role)
                if now.word == "COMPLETING":  # this hides how it ended
                    self.doubtful = doubtful
                    self.patience = time.monotonic() + _SIGNAL_S
                    return
                earlier = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
                if now.restarts > earlier or now.word in ("PENDING", "REQUEUED"):
                    self._give_way()
                elif now.word not in _GOES_ON:
                    self._end_as_slurm(role, now.word)
        for replica, code, when in doubtful:
            self._judge(replica, code, when)

    def _end_as_slurm(self, role: int, word: str) -> None:
        """End the job, since Slurm has ended it or a component of it."""
        what = "the job"
        if len(self.plan["roles"]) > 1:
            what = f"the component of role {self.plan['roles'][role]['name']!r}"
        state = "FAILED"
        if word == "CANCELLED":
            state = "CANCELLED"
        self._finish(state, f"Slurm ended {what}: {word}")

    def _on_noise(self, step: Step) -> None:
        """Note the replicas whose tasks were killed. Their role needs new tasks."""
        dead = step.dead_tasks()
        if dead is None:
            self.selector.unregister(step.noise or 0)
            step.noise = None
            return
        mine = [r for r in self.app.replicas if r.role == step.role and r.attempt.alive]
        lost = [r for r in mine if r.k in dead]
        if not lost or self.app.interrupted:
            return
        step.broken = self.dirty = True
        self.why[step.role] = step.complaint()
        for replica in lost:
            self._judge(replica, None, time.time())
        restart = next((each for each in self.app.restarts if set(lost) & set(each.replicas)), None)
        if restart is not None:  # all share the tasks that have to be replaced
            alive = [replica for replica in mine if replica.attempt.alive]
            self.app.restart([*restart.replicas, *alive], restart.due)
            self._decide()

    # -------------------------------------------------------------------------------------------------------
    # judging

    def _judge(self, replica: Replica, code: int | None, when: float, why: str = "") -> None:
        """Report a replica's end to the rules, and do what follows."""
        error = ""
        if code is None:
            why = "lost: its task ended without a report"
            complaint = self.why.get(replica.role)
            if complaint:
                why += f": {complaint}"
        elif code != 0:
            error = self._error_of(replica, code)
        self.app.ended(replica, code, when, time.time(), why=why, error=error)
        self._decide()

    def _error_of(self, replica: Replica, code: int) -> str:
        """Return a replica's report of its failure, else the exception at the end of its output."""
        logs = self._logs_of(replica)
        said = ""
        with contextlib.suppress(OSError):
            with open(os.path.join(logs, ERROR_FILE), "rb", opener=layout.open_own) as file:
                said = read_error(file.read(LONGEST_ERROR))
        if said or code != 1:  # what an interpreter exits with
            return said
        tail = _tail(os.path.join(logs, STREAMS[1]), self.began_at.get(replica, 0))
        return traceback_error(tail.encode())

    def _logs_of(self, replica: Replica) -> str:
        return os.path.join(
            self.folder, "logs", self.plan["roles"][replica.role]["name"], str(replica.k)
        )

    def _decide(self) -> None:
        """Do what the rules decide, and stop the replicas that are to end."""
        decided = self.app.final
        self.app.decide(time.time())
        self.dirty = self.dirty or self.app.final is not decided
        if not self.app.interrupted:  # else Slurm ends them
            self._stop([replica for replica in self.app.replicas if replica.attempt.stopping])

    def _stop(self, replicas: list[Replica]) -> None:
        for replica in replicas:
            if replica.attempt.alive and replica not in self.stopped:
                self.stopped.add(replica)
                if replica.role in self.again:  # it has not begun
                    self.app.ended(replica, None, time.time(), time.time())
                elif replica.role in self.steps:
                    self.steps[replica.role].tell(f"stop {replica.k}")

    def _finish(self, state: str, reason: str) -> None:
        self.dirty = self.app.end(state, reason) or self.dirty
        self._decide()

    def _give_way(self) -> None:
        """End without a result, since a newer start runs the job, or it was deleted."""
        if not self.replaced:
            self.replaced = True
            complain("Slurm has started the job anew, or the job was deleted: this start ends")
            self._finish("CANCELLED", "")
            self._stop(self.app.replicas)

    def _over(self) -> bool:
        if self.leaving:
            return True
        return self.app.is_idle and (self.app.final is not None or self.app.interrupted)

    # --------------------------------------------------------------------------------------------------------
    # ending

    def _end(self) -> int:
        """Write the end of the job, end the tasks, and return the exit code."""
        if self.leaving:
            self._leave_allocation()
        if self.leaving:
            return self._dismiss(0)
        self.app.finish(time.time())
        for replica in self.app.replicas:  # of a job that Slurm has ended
            if replica.attempt.state in ("PENDING", "RUNNING"):
                replica.attempt.state = "CANCELLED"
            if replica.attempt.end is None:
                replica.attempt.end = time.time()
        while not self._write():
            time.sleep(1.0)  # on a full disk, since the end must be readable
        if self.replaced:
            return self._dismiss(WITHDRAWN)
        if self.app.final is None:
            return self._dismiss(128 + signal.SIGTERM)
        return self._dismiss(int(self.app.state != "SUCCEEDED"))

    def _dismiss(self, code: int) -> int:
        """End the tasks, and return the exit code."""
        for step in self.steps.values():
            step.dismiss()
        for step in self.steps.values():
            step.wait(_KILL_S)
        return code

    def _leave_allocation(self) -> None:
        """Have Slurm give the job a further allocation. If Slurm refuses, the job ends."""
        refused = ""
        self.app.refresh()
        while not self._write():
            time.sleep(1.0)
        if not self._is_cancelled():
            complain(f"this allocation ends ({self.leaving}); the job goes on in the next one")
            refused = go_on()
        if refused:
            self._await_signal()
        if self._is_cancelled():
            self.leaving = ""
            self.app.end("CANCELLED", Gang.ON_REQUEST)
        elif refused and self.app.interrupted:  # Slurm ends this job, and says why
            self.leaving = ""
        elif refused:
            self.leaving = ""
            self.app.end("FAILED", f"{self.app.msg}: it cannot go on: {refused}")

    def _await_signal(self) -> None:
        """Give Slurm a moment: if it is ending this job, its signal has ended the tool as well."""
        select.select([self.wake], [], [], _SIGNAL_S)
        if signal.SIGTERM in self._received():
            self.app.interrupt()

    def _state(self) -> dict[str, Any]:
        more: dict[str, Any] = {"job": job_id(), "signalled": self.app.interrupted}
        more["counts"] = self.app.counts()
        more["log_at"] = self.log_at
        more["nodes"] = _own_nodes()
        if self.leaving:
            more["next"] = self.leaving
        if self.leaving or self.app.interrupted:
            more["left_at"] = time.time()
        found = {**self.app.as_json(), **more, **self._limits()}
        if self.progress:
            found["progress"] = self.progress
        if self.stalled and self.app.state == "RUNNING":
            found["msg"] = "; ".join(filter(None, [self.app.msg, *self.stalled.values()]))
            found["stalled"] = True
        return found

    def _limits(self) -> dict[str, float]:
        """Return the limit of time that counts, the job's own or Slurm's, and when it is over.

        At Slurm's limit a job with segments only ends its segment, and goes on in the next one.
        """
        found: dict[str, float] = {}
        if self.app.segment is not None:
            return self._limits_of_segments()
        if self.limit.end is not None and self.limit.seconds is not None:
            found = {"time_limit": self.limit.seconds, "ends_by": self.limit.end}
        own = self.app.timeout
        if own is None or self.app.began is None:
            return found
        if not found or self.app.began + own <= found["ends_by"]:
            found = {"time_limit": own, "ends_by": self.app.began + own}
        return found

    def _limits_of_segments(self) -> dict[str, float]:
        """Return the limit of a job with segments, and when its present segment is over."""
        found = {}
        if self.app.timeout is not None and self.app.began is not None:
            found = {
                "time_limit": self.app.timeout,
                "ends_by": self.app.began + self.app.timeout,
            }
        end = self.app.segment_end
        if end is not None:
            found["segment_ends"] = end
        return found

    def _write(self) -> bool:
        self.written = time.monotonic()
        if self.replaced:
            return True
        try:
            self.start.write(STATES, json.dumps(self._state()))
        except OSError as exc:
            if isinstance(exc, FileNotFoundError) and self.start.replaced():
                self._give_way()
                return True
            complain(f"{exc}")
            self.written += _FAILED_WRITE_S
            return False
        self.dirty = self.has_news = False
        return True


def _rules(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the roles as the rules of attempts take them, signals by number."""
    return [
        {
            **role,
            "notice_signal": int(getattr(signal, f"SIG{role['notice_signal']}")),
        }
        for role in plan["roles"]
    ]


def _own_nodes() -> str:
    """Return the nodes of this job, of all its components, as Slurm writes them."""
    first = os.environ.get("SLURM_JOB_NODELIST", "")
    parts = [
        os.environ.get(f"SLURM_JOB_NODELIST_HET_GROUP_{number}", "")
        for number in range(int(os.environ.get("SLURM_HET_SIZE") or 0))
    ]
    return ",".join(dict.fromkeys(filter(None, parts))) or first


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _tail(path: str, since: int = 0) -> str:
    """Return the end of a log, from ``since`` on, or "" if it cannot be read."""
    return layout.end_of_own(path, LONGEST_ERROR, since).decode("utf-8", "replace")


def remedy_of(line: str) -> str:
    """Return what to write in a prologue instead of what its last line of output says is not found.

    Returns:
        The advice, or ``""`` if none is known.
    """
    for name, remedy in _UNKNOWN_TO_SH.items():
        if line.rstrip().endswith((f" {name}: not found", f" {name}: command not found")):
            return f" (the prologue is run by /bin/sh: {remedy})"
    return ""


def main(folder: str, token: str, prologue: str = "0") -> None:
    """Run the job in ``folder``, unless its submit was withdrawn.

    ``prologue`` is the exit code of a failed prologue.
    """
    if not patiently(lambda: claim(folder, token)):
        complain("this submit was withdrawn, or done again: nothing to do")
        sys.exit(WITHDRAWN)
    with open(os.path.join(folder, "plan.json"), encoding="utf-8", opener=layout.open_own) as file:
        plan = json.load(file)
    start = Start(folder, start_number(), root_of(folder))
    if not patiently(start.enter):
        complain("Slurm has started the job anew: nothing to do for this start")
        sys.exit(WITHDRAWN)
    before = layout.read_json(os.path.join(folder, STATES))
    if before is not None and before["state"] in TERMINAL:
        complain("Slurm started the job again after it had ended: nothing to do")
        sys.exit(int(before["state"] != "SUCCEEDED"))
    if os.path.exists(os.path.join(folder, "slurm.json")):  # Slurm has reported its end since
        sys.exit(1)
    sys.exit(Supervisor(folder, plan, start, before, int(prologue)).main())
