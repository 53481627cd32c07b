"""Asking Slurm about jobs, many in one query.

First ``squeue`` is asked, then ``sacct``, then the record of completed jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, TypeVar

from transload.errors import SchedulerUnavailable
from transload.keeper import kernel, layout
from transload_slurm import commands
from transload_slurm.states import combined

_T = TypeVar("_T")

THREAD: Final = "transload-slurm-question"
"""Name of a thread that asks Slurm."""

_TIMEOUT_S: Final = 60.0
_PER_MINUTE: Final = 12
"""About how often Slurm is asked. Beyond half of that, answers are good for longer."""

_FRESH_S: Final = 0.2
_LOOK_S: Final = 0.1
_COST: Final = 5.0  # an answer is good for this many times the seconds that it took
_REMEMBER_S: Final = 30.0
_FORGET_S: Final = 5.0
_NO_ACCOUNTING_S: Final = 600.0
_ACCOUNTING_AWAY_S: Final = 10.0
_NOT_KEPT: Final = ("accounting storage is disabled", "job completion is disabled")
_UNREACHABLE_S: Final = 1.0
_CHUNK: Final = 1000


@dataclass(frozen=True, slots=True)
class Job:
    """What Slurm says of a job, all its components taken together.

    Args:
        id: its id, which is that of the leader of a heterogeneous job.
        name: its name there, which is the job id.
        state: Slurm's word.
        reason: why it waits, or how it ended.
        nodes: where it runs.
        source: which tool said so.
        start: when it started, or is to start, as Slurm writes local times.
        comment: the job's comment, or "" where the source does not say it.
    """

    id: str
    name: str
    state: str
    reason: str = ""
    nodes: str = ""
    source: str = "squeue"
    start: str = ""
    comment: str = ""


_Row = tuple[str, str, str, str, str, str, str]


def _merge(rows: list[_Row], source: str) -> dict[str, Job]:
    """Build jobs from rows of (id, name, state, reason, nodes, start, comment)."""
    grouped: dict[str, dict[str, _Row]] = {}
    for row in rows:
        base, _, component = row[0].partition("+")
        grouped.setdefault(base, {})[component] = row  # the last one counts
    jobs = {}
    for base, parts in grouped.items():
        state = combined(row[2] for row in parts.values())
        _, name, _, reason, _, start, comment = next(
            row for row in parts.values() if row[2] == state
        )
        nodes = ",".join(dict.fromkeys(row[4] for row in parts.values() if row[4]))
        jobs[base] = Job(base, name, state, reason, nodes, source, start, comment)
    return jobs


def squeue(*selection: str) -> dict[str, Job]:
    """Return the jobs that the controller knows, of a selection (``-j 1,2``, ``--name=x``).

    Raises:
        SchedulerUnavailable: if it cannot be asked.
    """
    answer = commands.run(
        ["squeue", "-h", "-t", "all", "-o", "%i|%j|%T|%r|%N|%S|%k", *selection], _TIMEOUT_S
    )
    if answer.code != 0:
        if "invalid job id" in answer.err.lower():
            return {}
        raise SchedulerUnavailable(f"squeue: {answer.complaint}")
    return _merge(
        [_row(line) for line in answer.out.splitlines() if line.count("|") >= 6], "squeue"
    )


def _row(line: str) -> _Row:
    """Return a line of squeue as a row. Slurm writes ``None`` and ``(null)`` for what is empty."""
    job_id, name, state, reason, nodes, start, comment = line.rstrip("\n").split("|", 6)
    if reason in ("None", "(null)"):
        reason = ""
    if comment == "(null)":
        comment = ""
    return job_id.strip(), name, state, reason, nodes, start, comment


def seconds_until(start: str) -> float:
    """Return the seconds until a time that Slurm has written, or 0 for ``N/A``."""
    when = epoch_of(start)
    if when is None:
        return 0.0
    return when - time.time()


def epoch_of(text: str) -> float | None:
    """Return seconds since the epoch of a time that Slurm has written, or None for ``N/A``."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


class NotKept(Exception):
    """This cluster keeps no such record, and says so."""


def sacct(job_ids: Collection[str], *, completed: bool) -> dict[str, Job]:
    """Return jobs from the accounting database.

    Args:
        job_ids: the jobs.
        completed: ask the record of completed jobs in its place.

    Raises:
        NotKept: where this cluster keeps no such thing.
        SchedulerUnavailable: if it cannot be read from here, or not now.
    """
    which = "-c" if completed else "-X"
    command = ["sacct", "-n", "-P", which, "-o", "JobID,JobName,State,NodeList"]
    answer = commands.run([*command, "-j", ",".join(job_ids)], _TIMEOUT_S)
    if answer.code != 0 and not answer.out.strip():
        if any(words in answer.err.lower() for words in _NOT_KEPT):
            raise NotKept(answer.complaint)
        raise SchedulerUnavailable(f"sacct: {answer.complaint}")
    rows: list[_Row] = []
    for line in answer.out.splitlines():
        if line.count("|") >= 3:
            job_id, name, state, nodes = line.split("|")[:4]
            rows.append((job_id, name, state, "", nodes, "", ""))
    return _merge(rows, "the record of completed jobs" if completed else "sacct")


class Jobs:
    """Answers about many jobs with few queries, each for all jobs asked for lately.

    One query is under way at a time, in a separate thread. Callers wait for it, or for the next
    one, which is for all that wait.

    Args:
        shared: a file of all processes of this user and machine that ask: they do so one at a time,
            each for all, and read each other's answers. By default this process asks alone.
    """

    def __init__(self, shared: str | None = None) -> None:
        self._lock = threading.Lock()
        self._shared = shared
        self._asked: dict[str, float] = {}
        self._known: dict[
            str, tuple[float, float, Job | None]
        ] = {}  # when it was asked for, when answered
        self._missed: dict[str, float] = {}
        self._dropped: dict[str, float] = {}
        self._good_for = _FRESH_S
        self._without: dict[str, float] = {}
        self._problem = (0.0, "")
        self._query: tuple[int, Future[None]] | None = None
        self._times: list[float] = []
        self.queries = 0

    def ask(
        self,
        job_ids: Collection[str],
        max_age: float = 0.0,
        enough: Callable[[], bool] | None = None,
    ) -> dict[str, Job | None]:
        """Return Slurm's rows of jobs, with None for a job that it does not know.

        Args:
            job_ids: ids, of heterogeneous jobs the leader's.
            max_age: seconds that an earlier answer may be old, at least a fraction of a second.
            enough: called now and then while Slurm takes its time. True ends the wait without an
                answer.

        Raises:
            SchedulerUnavailable: if the controller cannot be asked now.
        """
        came = time.monotonic()
        while True:
            with self._lock:
                now = time.monotonic()
                self._asked.update(dict.fromkeys(job_ids, now))
                if self._knows(job_ids, came - max_age, came):
                    return {job_id: self._known[job_id][2] for job_id in job_ids}
                query = self._under_way(now, came - max_age)
            if enough is None:
                wait([query])
            else:
                while not wait([query], _LOOK_S).done:
                    if enough():
                        return {}
            try:
                query.result()
            except SchedulerUnavailable as exc:
                raise SchedulerUnavailable(str(exc)) from exc

    def _knows(self, job_ids: Collection[str], oldest: float, came: float) -> bool:
        """Tell whether the answers are new enough for a question of that time. The lock is held."""
        oldest = min(oldest, came - self._good_for)
        return all(job_id in self._known and self._known[job_id][1] >= oldest for job_id in job_ids)

    def _under_way(self, now: float, oldest: float) -> Future[None]:
        """Return the query that is under way, which is begun now if there is none.

        The lock is held.
        """
        # a process that was forked off has not the thread of its parent
        if self._query is not None and self._query[0] == os.getpid() and not self._query[1].done():
            return self._query[1]
        if now < self._problem[0]:
            raise SchedulerUnavailable(self._problem[1])
        query = in_background(lambda: self._find(oldest))
        self._query = (os.getpid(), query)
        return query

    def _find(self, oldest: float) -> None:
        """Ask for jobs, and note the answers, unless another process has just done so."""
        with contextlib.ExitStack() as opened:
            held = -1
            if self._shared is not None:
                # without the lock each asks for itself
                with contextlib.suppress(OSError):
                    file = layout.locked(self._shared, _TIMEOUT_S)
                    held = opened.enter_context(file).fileno()
            if held >= 0:
                self._read(held)
            now = time.monotonic()
            with self._lock:
                self._asked = {
                    job_id: at for job_id, at in self._asked.items() if now - at < _REMEMBER_S
                }
                ids = sorted(self._asked, key=int)
                answered = held >= 0 and self._knows(ids, oldest, now)
            if now < self._problem[0]:
                raise SchedulerUnavailable(self._problem[1])
            try:
                if not answered:
                    self._ask_slurm(now, ids)
            finally:
                if held >= 0:
                    self._write(held)

    def _ask_slurm(self, now: float, ids: list[str]) -> None:
        found: dict[str, Job] = {}
        try:
            for start in range(0, len(ids), _CHUNK):
                self._count()
                found.update(squeue("-j", ",".join(ids[start : start + _CHUNK])))
        except SchedulerUnavailable as exc:
            # asking takes seconds then: those who ask next get the same answer
            self._problem = (time.monotonic() + _UNREACHABLE_S, str(exc))
            raise
        # one that was found missing a moment ago is not looked for again
        lately = {
            job_id
            for job_id, at in self._missed.items()
            if now - at < _FORGET_S and job_id not in found
        }
        for completed in (False, True):
            missing = [job_id for job_id in ids if job_id not in found and job_id not in lately]
            if missing and now >= self._without.get(str(completed), 0.0):
                found.update(self._recorded(missing, completed=completed))
        done = time.monotonic()
        with self._lock:
            self._good_for = max(_FRESH_S, _COST * (done - now), self._spacing(done))
            self._note({job_id: (now, done, found.get(job_id)) for job_id in ids})
            self._missed = {job_id: self._missed[job_id] for job_id in lately}
            self._missed.update(
                {job_id: done for job_id in ids if job_id not in found and job_id not in lately}
            )

    def _note(self, answers: Mapping[str, tuple[float, float, Job | None]]) -> None:
        """Note answers, but not of jobs that were changed since the question. The lock is held."""
        for job_id, answer in answers.items():
            known = self._known.get(job_id)
            if answer[0] >= self._dropped.get(job_id, 0.0) and (
                known is None or answer[1] > known[1]
            ):
                self._known[job_id] = answer
        self._known = {
            job_id: known for job_id, known in self._known.items() if job_id in self._asked
        }
        long_ago = time.monotonic() - 2 * _TIMEOUT_S
        self._dropped = {job_id: at for job_id, at in self._dropped.items() if at > long_ago}

    def _read(self, held: int) -> None:
        """Take over what processes of this machine have learnt from Slurm."""
        # new, or its writer was killed, or of another version
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), self._lock:
            said = json.loads(os.pread(held, os.fstat(held).st_size, 0))
            if said["boot"] == kernel.boot_id():
                for job_id, at in said["asked"].items():
                    self._asked[job_id] = max(at, self._asked.get(job_id, 0.0))
                self._note(
                    {each: (*at, job and Job(**job)) for each, (*at, job) in said["known"].items()}
                )
                self._times = said["times"]
                self._good_for = said["good_for"]
                self._missed = said["missed"]
                self._without = said["without"]
                self._problem = tuple(said["problem"])

    def _write(self, held: int) -> None:
        with self._lock:
            said = {
                "boot": kernel.boot_id(),
                "asked": self._asked,
                "known": {
                    each: (*at, job and asdict(job)) for each, (*at, job) in self._known.items()
                },
                "times": self._times,
                "good_for": self._good_for,
                "missed": self._missed,
                "without": self._without,
                "problem": self._problem,
            }
        text = json.dumps(said).encode()
        with contextlib.suppress(OSError):
            os.ftruncate(held, os.pwrite(held, text, 0))

    def _count(self) -> None:
        self.queries += 1
        self._times = [*self._times, time.monotonic()]

    def _spacing(self, now: float) -> float:
        """Return for how long an answer must do so that a minute's questions are enough."""
        self._times = [at for at in self._times if now - at < 60.0]
        if len(self._times) < _PER_MINUTE // 2:
            return 0.0
        return 60.0 / (_PER_MINUTE - _PER_MINUTE // 2)

    def _recorded(self, job_ids: list[str], *, completed: bool) -> dict[str, Job]:
        """Return what a record holds of jobs.

        A record that cannot be read is left alone for a while.
        """
        self._count()
        try:
            return sacct(job_ids, completed=completed)
        except NotKept:
            pause = _NO_ACCOUNTING_S
        except SchedulerUnavailable:
            # the database restarts, say: it must be asked again long before anybody gives a job up
            # for lost
            pause = _ACCOUNTING_AWAY_S
        self._without[str(completed)] = time.monotonic() + pause
        return {}

    def accepted(self, job_id: str, name: str) -> None:
        """Note a job that Slurm has just accepted, so that it is not asked for a moment."""
        now = time.monotonic()
        with self._lock:
            self._known[job_id] = (now, now, Job(job_id, name, "PENDING", source="sbatch"))

    def asked_at(self, job_id: str, job: Job | None) -> float:
        """Return when Slurm was asked for this answer, by the monotonic clock.

        It is 0 if there is a newer answer.
        """
        with self._lock:
            known = self._known.get(job_id)
        if known is None or known[2] is not job:
            return 0.0
        return known[0]

    def drop(self, job_id: str) -> None:
        """Forget what is known of a job that was changed, also what is being asked now."""
        with self._lock:
            self._known.pop(job_id, None)
            self._dropped[job_id] = time.monotonic()


def in_background(work: Callable[[], _T]) -> Future[_T]:
    """Do something in a daemon thread, and return the future of its result."""
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as exc:  # whoever reads the result gets it
            answer.set_exception(exc)

    threading.Thread(target=run, daemon=True, name=THREAD).start()
    return answer
