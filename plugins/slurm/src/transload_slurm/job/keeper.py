"""The batch script's one command, which runs a job: the loop of a keeper, and what Slurm adds to it.

Slurm may signal a job, end it, start it again, and give it a further allocation.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import sys
import time

from transload.keeper import layout
from transload.keeper.failures import LONGEST_ERROR, exit_text
from transload.keeper.loop import Loop
from transload.keeper.rules import TERMINAL, Gang

from .agent import LOOK_S, SENT, STREAMS, catch, patiently, root_of, start_number
from .limits import SlurmLimit
from .requeue import cause_of, go_on, job_now
from .starts import Start, claim, job_id
from .steps import complain
from .tasks import Signalled, Tasks, Terminated

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from transload.keeper.launcher import Event

WITHDRAWN = 79
"""Exit code of a job that finds its submit withdrawn, or done again by another."""

STATES = "states.jsonl"
"""The file in a job's folder that says what it is doing."""

_SIGNAL_S = 1.0
_MARGIN_S = 15.0
"""Seconds before Slurm's own limit at which a segment ends, to end replicas and to go on."""
_LEAVES = ("segment", "preempted")
"""After an interruption by these the job goes on in a further allocation, not in this one."""
_GOES_ON = ("", "RUNNING", "CONFIGURING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED")
"""Slurm's words for a job that has not ended. The word is "" if Slurm does not answer."""
_UNKNOWN_TO_SH = {
    "source": "write `. FILE`",
    "module": "begin with `. /etc/profile.d/modules.sh`",
    "ml": "begin with `. /etc/profile.d/modules.sh`",
    "conda": "begin with `. FOLDER/etc/profile.d/conda.sh`",
}
"""What a prologue calls as from bash → what to write, as it is run by /bin/sh."""


class SlurmKeeper(Loop):
    """Runs one job to its end.

    Args:
        folder: the job's folder.
        plan: its ``plan.json``.
        start: which start of the job this is.
        before: the ``states.jsonl`` of an earlier start, or None if there was none.
        prologue: exit code of the prologue, if it has failed, or 0 if it has not.
    """

    launcher: Tasks
    tick = 0.1

    def __init__(
        self,
        folder: str,
        plan: dict[str, Any],
        start: Start,
        before: dict[str, Any] | None,
        prologue: int = 0,
    ) -> None:
        cause = cause_of(before, folder)
        app = Gang(
            _rules(plan),
            plan["timeout"],
            before,
            segment=plan["segment"],
            cause=cause,
            judged=bool((before or {}).get("next")),
        )
        self.selector = selectors.DefaultSelector()
        super().__init__(app, Tasks(folder, plan, app, self.selector), time.time)
        self.folder = folder
        self.plan = plan
        self.this_start = start
        self.prologue = prologue
        self.app.state = "PENDING"
        if before is not None and before.get("left_at"):
            self.app.skip(max(0.0, time.time() - before["left_at"]))  # in the queue
        if before is not None and cause:
            self.app.msg = before.get("msg", "")
        self.app.begin(time.time())
        self.leaving = ""  # why it goes on in a further allocation
        self.preempted = False
        self.progress_before = (before or {}).get("progress") or {}
        self.log_at = _size(os.path.join(folder, "batch.log"))
        self.dirty = True
        self.looked = time.monotonic()
        self.replaced = False
        self.doubtful: list[Terminated] = []
        self.patience = 0.0
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
        if self.this_start.number:
            refused = self.app.why_not_again()
        if self._is_cancelled():
            self.end("CANCELLED", Gang.ON_REQUEST)
        elif refused:
            again = "Slurm started the job again (a node was lost, or it was pre-empted)"
            self.end("FAILED", f"{again}, and {refused}")
        elif self.prologue:
            self._fail_by_prologue()
        else:
            self.start([each for each in self.app.replicas if each.attempt.state not in TERMINAL])
            self._ask_limit()
        while not self.step():
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
        logs = self.launcher.logs_of(first)
        output = "\n".join(_tail(os.path.join(logs, name)) for name in STREAMS)
        reason = f"the prologue failed ({exit_text(self.prologue)})"
        self.app.starting(first)
        self.app.started(first, now, os.uname().nodename)
        self.app.ended(first, self.prologue, now, why=reason, retry=False)
        if output.strip():
            last_line = output.strip().splitlines()[-1]
            reason += f": {last_line.strip()}{remedy_of(last_line)}"
        self.end("FAILED", reason)

    # -------------------------------------------------------------------------------------------------------
    # waiting

    def _wait(self) -> None:
        now = time.monotonic()
        dues = [now + self.pause(), self.looked + LOOK_S]
        if self.doubtful:
            dues.append(self.patience)
        for key, _ in self.selector.select(max(0.0, min(dues) - now)):
            if key.data is None:
                self._on_signal()
            elif key.data is self.limit:
                self._on_limit()
        if time.monotonic() >= self.looked + LOOK_S:
            self.looked = time.monotonic()
            if self.this_start.replaced():
                self._give_way()
            elif self._warns:  # a cancel waits for the notice, and may not have woken us
                self._look_for_cancel()
        if self.doubtful and (self.app.interrupted or time.monotonic() >= self.patience):
            self._judge_doubtful()

    @property
    def _leaves(self) -> str:
        """Return why what is to be started again starts in a further allocation, or "" for here."""
        causes = [each.cause for each in self.app.restarts if each.cause in _LEAVES]
        return next(iter(causes), "")

    def starts_again(self) -> bool:
        """Tell whether restarts are started here, and not in a further allocation."""
        return not self._leaves and not self.preempted

    def is_over(self) -> bool:
        """Tell whether this process has nothing to do any more."""
        goes_on = self.app.final is None and not self.app.interrupted
        alive = any(replica.attempt.alive for replica in self.app.replicas)
        if goes_on and not alive:
            self.leaving = self._leaves
        return bool(self.leaving) or (self.app.is_idle and not goes_on)

    def _look_for_cancel(self) -> None:
        if self.app.final is None and self._is_cancelled():
            self.end("CANCELLED", Gang.ON_REQUEST)

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
            self.launcher.pass_on(number)
        if signal.SIGTERM in numbers:
            # Slurm knows why (scancel, its limit, pre-emption), and signals the replicas itself
            self.dirty = True
            self.app.interrupt()

    def _received(self) -> set[int]:
        """Return the signals that have come since this was asked last."""
        try:
            return set(os.read(self.wake, 4096))
        except BlockingIOError:
            return set()

    # -------------------------------------------------------------------------------------------------------
    # what happens

    def take(self, event: Event) -> None:
        """Take an event to the rules, unless it may be Slurm's way to end the whole job."""
        attempt = event.replica.attempt
        if isinstance(event, Signalled):
            self._on_terminated()
        elif isinstance(event, Terminated) and (
            event.code is None or not (attempt.stopping or attempt.noticed)
        ):
            self.doubtful.append(event)
            self.patience = time.monotonic() + _SIGNAL_S
        else:
            super().take(event)

    def _judge_doubtful(self) -> None:
        """Judge the replicas that were terminated or lost, now that Slurm would have signalled us.

        Slurm may also have ended a part of the job only, or taken the node from us.
        """
        doubtful = self.doubtful
        self.doubtful = []
        if not self.app.interrupted and self.app.final is None:
            for role in sorted({event.replica.role for event in doubtful}):
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
        for event in doubtful:
            super().take(event)

    def _end_as_slurm(self, role: int, word: str) -> None:
        """End the job, since Slurm has ended it or a component of it."""
        what = "the job"
        if len(self.plan["roles"]) > 1:
            what = f"the component of role {self.plan['roles'][role]['name']!r}"
        state = "FAILED"
        if word == "CANCELLED":
            state = "CANCELLED"
        self.end(state, f"Slurm ended {what}: {word}")

    def stop(self, now: float) -> None:
        """Have ended what the rules say, with those that have to be started again as well."""
        for restart in list(self.app.restarts):
            bound = self.launcher.bound_to(restart.replicas)
            if bound:
                self.app.restart([*restart.replicas, *bound], restart.due)
        super().stop(now)

    def _give_way(self) -> None:
        """End without a result, since a newer start runs the job, or it was deleted."""
        if not self.replaced:
            self.replaced = True
            complain("Slurm has started the job anew, or the job was deleted: this start ends")
            self.end("CANCELLED", "")

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
        while not self.write():
            time.sleep(1.0)  # on a full disk, since the end must be readable
        if self.replaced:
            return self._dismiss(WITHDRAWN)
        if self.app.final is None:
            return self._dismiss(128 + signal.SIGTERM)
        return self._dismiss(int(self.app.state != "SUCCEEDED"))

    def _dismiss(self, code: int) -> int:
        """End the tasks, and return the exit code."""
        self.launcher.close()
        return code

    def _leave_allocation(self) -> None:
        """Have Slurm give the job a further allocation. If Slurm refuses, the job ends."""
        refused = ""
        self.app.refresh()
        while not self.write():
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

    # --------------------------------------------------------------------------------------------------------
    # writing

    def state(self) -> dict[str, Any]:
        """Return the state, with what a further start needs."""
        state = super().state()
        state["job"] = job_id()
        state["signalled"] = self.app.interrupted
        state["counts"] = self.app.counts()
        state["log_at"] = self.log_at
        state["nodes"] = _own_nodes()
        if self.leaving:
            state["next"] = self.leaving
        if self.leaving or self.app.interrupted:
            state["left_at"] = time.time()
        # at Slurm's limit a job with segments only ends its segment, and goes on in the next one
        limit = self.limit
        if limit.end is None or limit.seconds is None or self.app.segment is not None:
            return state
        if limit.end < state.get("ends_by", float("inf")):
            state.update(time_limit=limit.seconds, ends_by=limit.end)
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replace the state of the job, unless a newer start writes it."""
        if not self.replaced:
            self.this_start.write(STATES, json.dumps(state))

    def on_failed_write(self, error: OSError) -> None:
        """Find out whether a newer start writes the state."""
        if isinstance(error, FileNotFoundError) and self.this_start.replaced():
            self._give_way()
        else:
            complain(f"{error}")


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
    sys.exit(SlurmKeeper(folder, plan, start, before, int(prologue)).main())
