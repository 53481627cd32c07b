"""The rules of an app's attempts: what follows when a replica ends. Events in, a verdict out.

Whoever looks after an app on an engine without such rules of its own (the local supervisor, Docker's
keeper, the wrapper in a Slurm job) tells an `Gang` what happens to its replicas, and does what it
says: `App.restarts` are to be ended and started again, `App.final` is the app's end. Nothing here
makes a system call or looks at a clock.

It runs on cluster nodes and in processes that must start in milliseconds: one file, Python 3.8, and
it imports nothing (``signal`` and ``json`` once a replica has failed).
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than all of this file
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

__all__ = [
    "ASKS_AGAIN",
    "LONGEST_ERROR",
    "TERMINAL",
    "Gang",
    "Replica",
    "Restart",
    "error_line",
    "exit_text",
    "needed_replicas",
    "read_error",
    "total_usage",
    "traceback_error",
]


TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")

DELAY_S = 1.0
"""Seconds before the first retry; doubled for each further failure in a row."""
LONGEST_DELAY_S = 300.0
HEALTHY_S = 600.0
"""An attempt that ran for so long ends the row."""

LONGEST_ERROR = 1 << 16
"""Bytes that are read of what a replica says of its own failure."""

ASKS_AGAIN = 75
"""The exit code by which a program says, after a notice, that it wants to go on later."""

FRUITLESS = 5
"""So many interruptions in a row without a new checkpoint or a larger step end the app: those that
a program asked for, and ends of segments."""

_KILLED = ": nobody here sent it; perhaps the system was out of memory"
_LONGEST_LINE = 300
_TRACEBACK = "Traceback (most recent call last):"
_CHILD_FAILED = ".ChildFailedError:"
_IGNORED = "Exception ignored "
_KEPT_ATTEMPTS = 8  # of each replica: the status is written anew at each change


def needed_replicas(role: Mapping[str, Any]) -> int:
    """Return how many replicas of a role must end well for it to succeed.

    Args:
        role: its record, with ``num_replicas`` and ``min_replicas`` (None: all).
    """
    least: int | None = role["min_replicas"]
    if least is None:
        least = role["num_replicas"]
    return least


def exit_text(code: int | None) -> str:
    """Return ``"exit code 3"``, ``"killed by SIGKILL"`` or ``"failed"`` when the code is not known.

    A shell says of a program that died by a signal that it ended with 128 and the signal's number:
    that is named, too.
    """
    if code is None:
        return "failed"
    if 0 <= code <= 128:
        return f"exit code {code}"
    import signal

    if code > 128:
        try:
            return f"exit code {code} (128 + {signal.Signals(code - 128).name})"
        except ValueError:
            return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def read_error(data: bytes) -> str:
    """Return what a replica has written to its error file (``TRANSLOAD_ERROR_FILE``) as JSON text;
    "" for nothing.

    Any text will do; the form of torchelastic's files is kept.
    """
    import json

    text = data.decode("utf-8", "replace").strip()
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        found = text
    if found is None:
        return ""
    found = found if isinstance(found, dict) else {"message": str(found)}
    # bytes of a file name that are not UTF-8 are lone surrogates, which no host can be told
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace").decode()


def error_line(error: str) -> str:
    """Return the first line of the message in what `read_error` returned, as ``ValueError: no such
    thing``.
    """
    import json

    message = json.loads(error).get("message") if error else None
    if isinstance(message, dict):
        message = message.get("message")
    lines = [line.strip() for line in str(message or "").splitlines() if line.strip()]
    return "".join(map(_seen, lines[0][:_LONGEST_LINE])) if lines else ""


def _seen(char: str) -> str:
    """Return a character, or its escape if it could move a terminal's cursor or turn its text
    around.
    """
    if char.isprintable() or char in "\t\xa0\u3000":
        return char
    return char.encode("unicode_escape").decode("ascii")


def traceback_error(tail: bytes, mixed: bool = False) -> str:
    """Return the exception that a Python program ended with, by the end of its standard error, as
    `read_error` would.

    Empty if there is none. An exception that the program went on after is none: its traceback has
    other lines behind it, save those that Python writes while it ends.

    Args:
        tail: the end of what this attempt of the program wrote.
        mixed: standard output is in it, too, of which Python may write the rest when it ends.
    """
    text = tail.decode("utf-8", "replace").rstrip().splitlines()
    found = [each for each in map(_Traceback, _starts(text)) if each.read(text)]
    if not found:
        return ""
    last = found[-1]
    if (
        _CHILD_FAILED in last.line
    ):  # torchrun's own: what the first of its processes said of itself comes before
        own = [
            each
            for each in found
            if each.prefix == found[0].prefix and _CHILD_FAILED not in each.line
        ]
        last = own[-1] if own else last
    elif not mixed and _went_on(text[last.end :]):
        return ""
    import json

    callstack = "\n".join([*last.frames, last.line])
    return json.dumps({"message": {"message": last.line, "extraInfo": {"py_callstack": callstack}}})


def _starts(text: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of the lines that tracebacks begin at, but for those that ended nothing."""
    for number, line in enumerate(text):
        ignored = number > 0 and text[number - 1].startswith(_IGNORED)
        if line.endswith(_TRACEBACK) and not ignored:
            yield number


def _went_on(rest: Sequence[str]) -> bool:
    """Tell whether lines after an exception are more than its message, if that is indented, and
    Python's last words.
    """
    lines = iter(rest)
    for line in lines:
        if line.startswith(
            _IGNORED
        ):  # with a traceback of its own, up to the line that is not indented
            for inner in lines:
                if not inner.startswith((" ", _TRACEBACK)):
                    break
        elif line.strip() and not line.startswith((" ", "\t")) and not _is_warning(line):
            return True
    return False


def _is_warning(line: str) -> bool:
    """Tell whether this is one of Python's warnings: ``file.py:3: ResourceWarning: …``."""
    kind = line.partition("Warning: ")[0]
    return kind != line and kind.rpartition(":")[2].strip().isidentifier() and ":" in kind


class _Traceback:
    """A traceback in the lines of an output, from the number of its first line on."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start  # number of the line after its exception
        self.prefix = ""  # of torchrun's processes each has its own
        self.frames: list[str] = []
        self.line = ""  # its exception

    def read(self, text: Sequence[str]) -> bool:
        """Read it from these lines; False if it has no end."""
        self.prefix = text[self.start][: -len(_TRACEBACK)]
        for number, line in enumerate(text[self.start :], self.start):
            line = line[len(self.prefix) :] if line.startswith(self.prefix) else " "
            if self.frames and not line.startswith(" "):
                self.line, self.end = line, number + 1
                return line.partition(":")[0].replace(".", "").isidentifier()
            self.frames.append(line)
        return False


def retry_delay(failures: int, first: float = DELAY_S) -> float:
    """Return the seconds to wait before a retry that ``failures`` in a row came before; ``first``:
    before the first.
    """
    return min(first * 2.0 ** min(failures, 60), max(first, LONGEST_DELAY_S))


def total_usage(parts: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the highest peak and the sum of CPU time, in JSON form (`transload.specs.Usage`); {}
    if none is known.
    """
    known = [each for each in parts if each]
    peaks = [each["peak_memory"] for each in known if each.get("peak_memory") is not None]
    seconds = [each["cpu_seconds"] for each in known if each.get("cpu_seconds") is not None]
    found = {"peak_memory": max(peaks)} if peaks else {}
    return {**found, "cpu_seconds": round(sum(seconds), 3)} if seconds else found


def _ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``11th``."""
    ending = "th"
    if number % 100 not in (11, 12, 13):
        ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _time_text(seconds: float) -> str:
    """Return ``45 s``, ``5 min`` or ``3 h 12 min``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Replica:
    """One replica, and what its latest attempt is doing.

    ``usage``, in JSON form (`transload.specs.Usage`), is to be set before it is told to have ended;
    ``used`` is what the attempts before took.
    """

    def __init__(self, role: int, k: int) -> None:
        self.role = role  # number of its role
        self.k = k  # its number within the role
        self.state = "SUBMITTED"  # name of an `AppState`
        self.alive = False  # it was told to start and has not ended
        self.stopping = False  # it was told to end: whatever comes of it is no failure
        self.waiting = False  # it is to be started again
        self.attempt = 0  # how often it was started again after a failure
        self.interruptions = 0  # how often it was started again after an interruption
        self.interrupted = 0  # how many of these it counts against its role's interruptions
        self.kill_at: float | None = None  # when its time after a notice is over, caller's clock
        self.noticed = ""  # what the notice was for: a cause, ``limit``, or ""
        self.cause = ""  # why the attempt ended, if its role may be interrupted
        self.step: float | None = None  # the step that it reported last
        self.spent = 0  # how many of these restarts its own failures took from its role's retries
        self.row = 0  # how many failures in a row came before this attempt
        self.host = ""
        self.error = ""  # what it said of its failure, as `read_error` returns it
        self.code: int | None = None  # exit code of the attempt; −N for a death by signal N
        self.start: float | None = None  # of the attempt, seconds since the epoch
        self.end: float | None = None
        self.usage: dict[str, Any] | None = None
        self.used: dict[str, Any] = {}
        self.earlier: list[dict[str, Any]] = []  # the attempts before, in JSON form

    @property
    def run(self) -> int:
        """The number of its attempt, failures and interruptions counted together."""
        return self.attempt + self.interruptions

    def begin_again(self, cause: str = "") -> None:
        """Put the attempt that has ended to the earlier ones.

        Args:
            cause: what interrupted it, or the replica that it is started again with; "": it is
                started again after a failure.
        """
        attempt = {
            "state": self.state,
            "exit_code": self.code,
            "start_time": self.start,
            "end_time": self.end,
        }
        if self.cause or cause:
            attempt["cause"] = self.cause or cause
        if self.step is not None:
            attempt["step"] = self.step
        self.earlier = [*self.earlier, attempt][-_KEPT_ATTEMPTS:]
        if cause:
            self.interruptions += 1
        else:
            self.attempt += 1
        self.kill_at = None
        self.noticed = self.cause = ""
        self.used = total_usage((self.used, self.usage))
        self.state, self.waiting, self.stopping = "PENDING", False, False
        self.code = self.start = self.end = self.usage = None
        self.error = ""

    def as_json(self, role: str) -> dict[str, Any]:
        """Return the JSON form of a `ReplicaStatus`, and what a later `Gang` counts on from."""
        found = {
            "id": self.k,
            "state": "PENDING" if self.waiting and not self.alive else self.state,
            "role": role,
            "hostname": self.host,
            "exit_code": self.code,
            "start_time": self.start,
            "end_time": self.end,
            "restarts": self.attempt,
        }
        usage = total_usage((self.used, self.usage))
        more = {
            "earlier": self.earlier,
            "spent": self.spent,
            "interruptions": self.interruptions,
            "interrupted": self.interrupted,
            "step": self.step,
            "usage": usage,
            "structured_error_msg": self.error,
        }
        return {**found, **{name: value for name, value in more.items() if value}}


class _Ended:
    """How an attempt ended that did not end well: ``now`` is the caller's clock."""

    def __init__(self, replica: Replica, why: str, retry: bool, now: float, cause: str) -> None:
        self.replica = replica
        self.why = why
        self.retry = retry
        self.now = now
        self.cause = cause  # what interrupted it; "": it failed


class Restart:
    """Replicas, in the order of the app, that are to be ended and then started again, together, not
    before ``due``.

    ``cause`` is what interrupted them, "" if one of them has failed.
    """

    def __init__(self, replicas: list[Replica], due: float, cause: str = "") -> None:
        self.replicas = replicas
        self.due = due
        self.cause = cause

    def is_ready(self, now: float) -> bool:
        """Tell whether none of them runs any more and the delay is over."""
        return now >= self.due and not any(replica.alive for replica in self.replicas)


class Gang:
    """The replicas of an app and what follows from their ends.

    Times are seconds on one clock of the caller's, `Replica.start` and `Replica.end` seconds since
    the epoch.

    Args:
        roles: of each role ``name``, ``num_replicas``, ``min_replicas`` (None: all),
            ``max_retries``, ``retry_policy`` (``REPLICA``, ``ROLE`` or ``APPLICATION``) and,
            optional, ``retry_delay`` (seconds), ``max_interruptions`` (0), ``notice`` (seconds of
            time after it), ``notice_signal`` (its number) and ``checkpoints`` (whether it has a
            folder for them).
        timeout: how long the app may take; None: no limit.
        only: number of the one replica that is looked after here; None: all.
        before: what `as_json` returned, with `counts` under ``counts``, before the engine ended the
            app to start it again; None: it did not.
        segment: how long the app may run at a time; None: no such limit.
        cause: with ``before``: why the engine started it again, if that is an interruption.
        judged: with ``cause``: that interruption was counted before the engine ended the app.
        mark: what the folders for checkpoints look like (see `mark`).

    Attributes:
        state: what the app is doing, name of an `AppState`.
        msg: why.
        final: (state, message) once the end is decided; what still runs is to be ended.
        restarts: what is to be started again.
        interrupted: the engine is ending the app for a reason of its own.
        engine_end: when the engine ends the app by a limit of its own, on the caller's clock, for
            which notices are due as well; None: no such limit.
        mark: a text that changes when something in the folders for checkpoints does; kept up by
            the caller before it lets conclusions be drawn; "": nobody looks.
    """

    ON_REQUEST = "cancelled on request"
    """Message of an app whose end was asked for through us, the same on every scheduler."""

    def __init__(
        self,
        roles: Sequence[Mapping[str, Any]],
        timeout: float | None = None,
        only: int | None = None,
        before: Mapping[str, Any] | None = None,
        *,
        segment: float | None = None,
        cause: str = "",
        mark: str = "",
        judged: bool = False,
    ) -> None:
        self.roles = roles
        self.timeout = timeout
        self.segment = segment
        self.segment_began: float | None = None
        self.engine_end: float | None = None
        self.mark = mark
        self.replicas = [
            Replica(i, k)
            for i, role in enumerate(roles)
            for k in range(role["num_replicas"])
            if only in (None, k)
        ]
        self.alone = only is not None
        self.state, self.msg = "SUBMITTED", ""
        self.final: tuple[str, str] | None = None
        self.restarts: list[Restart] = []
        self.interrupted = False
        self.began: float | None = None
        self.requeues = self.app_restarts = 0
        self.role_restarts = [0] * len(roles)
        self.app_interruptions = 0
        self.role_interruptions = [0] * len(roles)
        self.fruitless = 0  # how many interruptions in a row came to nothing new
        self.step: float | None = None  # the largest that was reported
        self._seen_mark = mark
        self._seen_step: float | None = None
        self._failures: list[_Ended] = []
        self._first = self._error = ""
        if before is not None:
            self._go_on(before, cause, judged)

    def _go_on(self, before: Mapping[str, Any], cause: str, judged: bool) -> None:
        """Count on where the engine interrupted the app."""
        self.count_on(before.get("counts") or {})
        if cause and judged:
            pass
        elif cause and any(self._most_interruptions(role) for role in range(len(self.roles))):
            self.app_interruptions += 1
            self._note_fruit(cause)
        else:
            self.requeues += 1
            cause = ""
        known = {
            (role["role"], old["id"]): old
            for role in before.get("roles", ())
            for old in role["replicas"]
        }
        for replica in self.replicas:
            old = known.get((self.roles[replica.role]["name"], replica.k))
            if old:
                replica.state = old["state"] if old["state"] in TERMINAL else "CANCELLED"
                replica.code = old["exit_code"]
                replica.start, replica.end = old["start_time"], old["end_time"]
                replica.attempt, replica.spent = old["restarts"], old.get("spent", 0)
                replica.earlier, replica.used = list(old.get("earlier", ())), old.get("usage") or {}
                replica.interruptions = old.get("interruptions", 0)
                replica.interrupted = old.get("interrupted", 0)
                replica.step = old.get("step")
                if not (judged and self._is_done(replica)):
                    replica.begin_again(cause)

    def count_on(self, counts: Mapping[str, Any]) -> None:
        """Take over what `counts` returned before."""
        self.requeues = counts.get("requeues", 0)
        self.app_restarts = counts.get("app", 0)
        self.role_restarts = list(counts.get("roles") or self.role_restarts)
        self.began = counts.get("began")
        self.app_interruptions = counts.get("interruptions", 0)
        self.role_interruptions = list(counts.get("role_interruptions") or self.role_interruptions)
        self.fruitless = counts.get("fruitless", 0)
        self._seen_mark = counts.get("mark", "")
        self._seen_step = counts.get("seen_step")
        self.step = counts.get("step")

    # -------------------------------------------------------------------------------------------------------
    # events

    def begin(self, now: float) -> None:
        """Note that the app's time runs, and that of its first segment, unless it does already."""
        if self.began is None:
            self.began = now
        if self.segment_began is None:
            self.segment_began = now

    def starting(self, replica: Replica) -> None:
        """Note that a replica was told to start."""
        if self.state not in TERMINAL:
            replica.alive, replica.state = True, "PENDING"

    def started(self, replica: Replica, at: float, host: str = "") -> None:
        """Note that an attempt of a replica runs, since when (seconds since the epoch) and
        where.
        """
        if self.state not in TERMINAL:
            replica.alive, replica.state = True, "RUNNING"
            replica.start, replica.host = at, host

    def ended(
        self,
        replica: Replica,
        code: int | None,
        at: float,
        now: float | None = None,
        *,
        why: str = "",
        error: str = "",
        retry: bool = True,
        cause: str = "",
    ) -> None:
        """Note that an attempt has ended; `settle` draws the conclusions.

        Args:
            replica: which.
            code: its exit code, None if it is not known.
            at: when, seconds since the epoch.
            now: the same on the caller's clock, if that is another.
            why: what happened, where that says more than the exit code.
            error: what the replica itself said of it, as `read_error` returns it.
            retry: False if it cannot be started again.
            cause: what interrupted it, where the engine knows: ``preempted``, ``node``, ``evicted``,
                ``drained`` or ``requested``. After a notice it need not be given.
        """
        if not replica.alive:
            return
        replica.alive = False
        replica.code, replica.end = code, at
        if replica.stopping or self.interrupted:
            replica.state = "CANCELLED"
            return
        if code == 0 and not why:
            replica.state = "SUCCEEDED"
            return
        may_be = self._most_interruptions(replica.role) > 0
        cause = cause or self._cause_by_notice(replica, code)
        if not may_be:
            cause = ""
        elif not cause:
            replica.cause = "failed"
        replica.state = "CANCELLED" if cause else "FAILED"
        replica.error = error
        why = why or exit_text(code) + (_KILLED if code == -9 else "")
        when = at if now is None else now
        self._failures.append(_Ended(replica, why, retry, when, cause))

    def _cause_by_notice(self, replica: Replica, code: int | None) -> str:
        """Return what interrupted a replica that had a notice, by its exit code; "" for a failure.

        Its own exit code 75 says so. Of a notice that an end was sure to follow, a death by its
        signal or by KILL does as well.
        """
        noticed = replica.noticed
        if noticed in ("", "limit"):
            return ""
        if code == ASKS_AGAIN:
            return noticed
        if self._obeyed(replica) and noticed != "requested":
            return noticed
        return ""

    def _obeyed(self, replica: Replica) -> bool:
        """Tell whether a replica ended as its notice asks: by exit code 75, its signal, or KILL."""
        ends = [ASKS_AGAIN]
        for number in (9, self.roles[replica.role].get("notice_signal", 15)):
            ends += [-number, 128 + number]
        return replica.code in ends

    def notices(self, now: float) -> list[Replica]:
        """Return the replicas that are due a notice, since their time or segment is near its end.

        Their signal is to be sent to their main process, and `notified` to be called.
        """
        end, _ = self._next_end()
        if end is None:
            return []
        return [
            replica
            for replica in self._without_notice()
            if now >= end - self.roles[replica.role]["notice"]
        ]

    def notified(self, replica: Replica, now: float, cause: str = "") -> None:
        """Note that a replica was sent its notice: from then on no other signal is due to it, but
        KILL at `Replica.kill_at`, if it is to be ended by then.

        Args:
            replica: which.
            now: the caller's clock.
            cause: what it is for: ``preempted``, ``drained``, ``requested`` …; "": the end of its
                time or segment.
        """
        end, near = self._next_end()
        seconds = self.roles[replica.role].get("notice") or 0.0
        replica.kill_at = now + seconds
        replica.noticed = cause or near or "requested"
        if not cause and end is not None:
            replica.kill_at = min(replica.kill_at, end)

    def _without_notice(self) -> list[Replica]:
        """Return the replicas that run, and have a notice still to come."""
        return [
            replica
            for replica in self.replicas
            if replica.alive
            and not replica.stopping
            and replica.kill_at is None
            and self.roles[replica.role].get("notice")
        ]

    def _next_end(self) -> tuple[float | None, str]:
        """Return when the app's time or its segment is over, whichever comes first, and which."""
        limit = self.deadline
        segment = self.segment_end
        if self.engine_end is not None and (limit is None or self.engine_end < limit):
            limit = self.engine_end
        if segment is not None and (limit is None or segment < limit):
            return segment, "segment"
        return limit, "limit" if limit is not None else ""

    @property
    def segment_end(self) -> float | None:
        """When its segment is over; None: it has none, or its end is decided."""
        if self.segment is None or self.segment_began is None:
            return None
        if self.final is not None or self.interrupted:
            return None
        return self.segment_began + self.segment

    def advanced(self, replica: Replica, step: float) -> None:
        """Note the step that a replica has reported last."""
        replica.step = step
        if self.step is None or step > self.step:
            self.step = step

    def end(self, state: str, msg: str) -> bool:
        """Bring the app to this end; False if another one was decided before, or the engine is at
        it.

        What runs is to be ended, nothing is started any more.
        """
        if self.final is not None or self.interrupted:
            return False
        self.final, self.msg = (state, msg), msg
        self._stop_all()
        return True

    def interrupt(self) -> None:
        """Note that the engine is ending the app by itself: what that means, the engine says, or
        starts it again.
        """
        self.interrupted = True
        self._stop_all()

    def _stop_all(self) -> None:
        self.restarts, self._failures = [], []
        for replica in self.replicas:
            replica.waiting = False
            replica.stopping = replica.alive

    # ----------------------------------------------------------------------------------------------------
    # the rules

    def settle(self, now: float | None = None) -> None:
        """Draw all conclusions from what has happened.

        Args:
            now: the caller's clock; None: the time limit is not looked at.
        """
        failures, self._failures = self._failures, []
        for failure in failures:
            if failure.cause:
                self._judge_interruption(failure)
            else:
                self._judge(failure)
        if self.final is not None or self.interrupted or self.began is None:
            return
        if self.is_idle:
            good = self.succeeded()
            self.end(
                "SUCCEEDED" if good else "FAILED", "" if good else "too few replicas ended well"
            )
        elif self.deadline is not None and now is not None and now >= self.deadline:
            self.end("FAILED", self._timed_out())
        elif self.segment_end is not None and now is not None and now >= self.segment_end:
            self._end_segment(now)

    def _timed_out(self) -> str:
        if self.timeout is None:
            return "its limit of time has run out"
        return f"timed out after {self.timeout:g} s"

    def _end_segment(self, now: float) -> None:
        """Have all that runs ended and started again: its segment is over."""
        running = [replica for replica in self.replicas if replica.alive and not replica.waiting]
        if running:
            first = running[0]
            self._judge_interruption(_Ended(first, "", True, now, "segment"))
        else:  # those that wait begin the next one
            self.segment_began = None

    def _most_interruptions(self, role: int) -> int:
        return int(self.roles[role].get("max_interruptions") or 0)

    def _judge_interruption(self, ended: _Ended) -> None:
        replica = ended.replica
        cause = ended.cause
        if self.final is not None or replica.waiting:
            return
        most = self._most_interruptions(replica.role)
        what = f"{self.name(replica)} was interrupted ({cause}){self._how_far(replica, ended)}"
        spent = self._spend_interruption(replica, cause)
        if spent > most or not ended.retry:
            if spent > most:
                what += f", and its {most} interruptions are used up"
            self.end("FAILED", what)
            return
        self._note_fruit(cause)
        if self.fruitless >= FRUITLESS:
            self.end("FAILED", f"{what}: {self.no_fruit()}")
            return
        scope = self._scope_of_interruption(replica, cause)
        delay = 0.0
        if cause != "segment":
            delay = self._delay(replica, scope)
        self.restart(scope, ended.now + delay, cause)
        self.msg = f"{what}; started again, {_ordinal(spent)} of {most}"

    def _how_far(self, replica: Replica, ended: _Ended) -> str:
        """Return how far an attempt came, for a message: at which step, after what time."""
        text = ""
        if replica.step is not None:
            text = f" at step {replica.step:,}"
        if replica.start is not None and replica.end is not None:
            text += f" after {_time_text(replica.end - replica.start)}"
        elif ended.cause == "segment" and self.segment is not None:
            text += f" after {_time_text(self.segment)}"
        return text

    def _spend_interruption(self, replica: Replica, cause: str) -> int:
        """Count an interruption; return the how-manieth it is of its kind."""
        policy = self.roles[replica.role]["retry_policy"]
        if cause == "segment" or policy not in ("REPLICA", "ROLE"):
            self.app_interruptions += 1
            return self.app_interruptions
        if policy == "ROLE":
            self.role_interruptions[replica.role] += 1
            return self.role_interruptions[replica.role] + self.app_interruptions
        replica.interrupted += 1
        return replica.interrupted + self.app_interruptions

    def _scope_of_interruption(self, replica: Replica, cause: str) -> list[Replica]:
        """Return whom an interruption starts again."""
        policy = self.roles[replica.role]["retry_policy"]
        if cause == "segment":
            return [each for each in self.replicas if not self._is_done(each)]
        if policy == "REPLICA":
            return [replica]
        if policy == "ROLE":
            return [each for each in self.replicas if each.role == replica.role]
        return list(self.replicas)

    def _is_done(self, replica: Replica) -> bool:
        """Tell whether a replica has ended well, and stays so while others are started again."""
        alone = self.roles[replica.role]["retry_policy"] == "REPLICA"
        return alone and replica.state == "SUCCEEDED"

    def _note_fruit(self, cause: str) -> None:
        """Count an interruption that came to nothing new, if it is one that may go on for ever.

        Only where there is something to see it by: a folder for checkpoints, or steps.
        """
        if cause not in ("segment", "requested"):
            return
        is_seen = self.step is not None or any(role.get("checkpoints") for role in self.roles)
        further = self.step is not None and (self._seen_step is None or self.step > self._seen_step)
        if further or self.mark != self._seen_mark or not is_seen:
            self.fruitless = 0
        else:
            self.fruitless += 1
        self._seen_mark = self.mark
        self._seen_step = self.step

    def no_fruit(self) -> str:
        """Return why an app is not started again that came to nothing new; "" if that is not so."""
        if self.fruitless < FRUITLESS:
            return ""
        return f"{FRUITLESS} in a row without a new checkpoint or a larger step"

    def why_not_again(self) -> str:
        """Return why an app does not go on that the engine started again; "" if it does."""
        if not self.covers_requeue():
            return "its retries are used up"
        most = max(self._most_interruptions(role) for role in range(len(self.roles)))
        if self.app_interruptions > most:
            return f"its {most} interruptions are used up"
        return self.no_fruit()

    def _judge(self, ended: _Ended) -> None:
        replica = ended.replica
        why = ended.why
        now = ended.now
        if self.final is not None or replica.waiting:
            return
        if replica.noticed == "limit" and self._obeyed(replica):
            self.end("FAILED", self._timed_out())
            return
        said = error_line(replica.error)
        reason = f"{self.name(replica)} failed ({why})" + (f": {said}" if said else "")
        scope: list[Replica] = []
        if ended.retry and replica.noticed != "limit":  # else its time would be over at once
            scope = self._scope(replica)
        if scope:
            self._restart(replica, scope, now)
            self.msg = f"{reason}; started again"
            return
        if not self._first:
            self._first, self._error = reason, replica.error
        if not self._holds(replica.role):
            self.end(
                "FAILED",
                reason if self._first == reason else f"{reason}; before that {self._first}",
            )

    def _scope(self, failed: Replica) -> list[Replica]:
        """Return whom a failure starts again; nobody when the retries are used up."""
        role = self.roles[failed.role]
        most = role["max_retries"]
        if role["retry_policy"] == "REPLICA":
            return [failed] if failed.spent < most else []
        if role["retry_policy"] == "ROLE":
            again = self.role_restarts[failed.role] + self.requeues < most
            return [r for r in self.replicas if r.role == failed.role] if again else []
        return list(self.replicas) if self.app_restarts + self.requeues < most else []

    def _restart(self, failed: Replica, scope: list[Replica], now: float) -> None:
        role = self.roles[failed.role]
        if role["retry_policy"] == "REPLICA":
            failed.spent += 1
        elif role["retry_policy"] == "ROLE":
            self.role_restarts[failed.role] += 1
        else:
            self.app_restarts += 1
        self.restart(scope, now + self._delay(failed, scope))

    def _delay(self, ended: Replica, scope: Iterable[Replica]) -> float:
        """Return the seconds before a restart, and count the row of those that it starts again."""
        ran = (ended.end or 0.0) - ended.start if ended.start is not None else 0.0
        row = 0 if ran >= HEALTHY_S else ended.row
        for replica in scope:
            replica.row = row + 1
        return retry_delay(row, self.roles[ended.role].get("retry_delay", DELAY_S))

    def restart(self, replicas: Iterable[Replica], due: float, cause: str = "") -> None:
        """Have replicas ended and started again, not before ``due``; takes over narrower restarts
        that it covers.

        Args:
            replicas: which.
            due: the caller's clock.
            cause: what interrupted them; "": one of them has failed.
        """
        scope = set(replicas)
        for narrow in [each for each in self.restarts if scope & set(each.replicas)]:
            self.restarts.remove(narrow)
            scope.update(narrow.replicas)
            due = max(due, narrow.due)
            if not narrow.cause:
                cause = ""
        for replica in scope:
            replica.waiting, replica.stopping = True, replica.alive
        self.restarts.append(
            Restart([replica for replica in self.replicas if replica in scope], due, cause)
        )

    def skip(self, seconds: float) -> None:
        """Note that the app waited for so long, which its time limit does not count."""
        if self.began is not None:
            self.began += seconds

    def renew(self, restart: Restart, now: float | None = None) -> list[Replica]:
        """Begin the next attempt of the replicas of a restart, all of which have ended; return
        them.

        Args:
            restart: which.
            now: the caller's clock, from which the next segment counts; needed where there are
                segments.
        """
        self.restarts.remove(restart)
        for replica in restart.replicas:
            replica.begin_again(restart.cause)
        is_whole = len(restart.replicas) == len(self.replicas)
        if restart.cause == "segment" or is_whole or self.segment_began is None:
            self.segment_began = now
        return restart.replicas

    def _holds(self, role: int) -> bool:
        """Tell whether enough replicas of a role may still end well."""
        mine = [replica for replica in self.replicas if replica.role == role]
        good = [
            replica
            for replica in mine
            if replica.waiting or replica.state not in ("FAILED", "CANCELLED")
        ]
        return len(good) >= self.needed(role)

    def needed(self, role: int) -> int:
        """Return how many replicas of a role must end well."""
        wanted: int | None = None if self.alone else self.roles[role]["min_replicas"]
        return (
            sum(1 for replica in self.replicas if replica.role == role)
            if wanted is None
            else wanted
        )

    def succeeded(self) -> bool:
        """Tell whether enough replicas of every role ended well."""
        good = [0] * len(self.roles)
        for replica in self.replicas:
            good[replica.role] += replica.state == "SUCCEEDED"
        return all(count >= self.needed(role) for role, count in enumerate(good))

    def covers_requeue(self) -> bool:
        """Tell whether the retries of some role cover that the engine has started the app again by
        itself.
        """
        return self.requeues + self.app_restarts <= max(
            int(role["max_retries"]) for role in self.roles
        )

    # ----------------------------------------------------------------------------------------------------
    # what is so

    @property
    def is_idle(self) -> bool:
        """True if nothing runs and nothing is to be started again."""
        return not self.restarts and not any(replica.alive for replica in self.replicas)

    @property
    def deadline(self) -> float | None:
        """When its time is over; None: there is no limit, it has not begun, or its end is
        decided.
        """
        if self.timeout is None or self.began is None or self.final is not None or self.interrupted:
            return None
        return self.began + self.timeout

    def next_end(self) -> float | None:
        """Return when its time or segment is over, or the first notice of that is due; None:
        never.
        """
        end, _ = self._next_end()
        if end is None:
            return None
        notices: list[float] = [
            end - self.roles[each.role]["notice"] for each in self._without_notice()
        ]
        if end == self.engine_end:  # what the engine ends is not ended here
            return min(notices, default=None)
        return min([end, *notices])

    def due(self) -> float | None:
        """Return when to look again though nothing happens: a time limit, the end of a delay; None:
        never.
        """
        dues = [
            each.due
            for each in self.restarts
            if not any(replica.alive for replica in each.replicas)
        ]
        end = self.next_end()
        if end is not None:
            dues.append(end)
        return min(dues) if dues else None

    def name(self, replica: Replica) -> str:
        """Return ``role 'trainer', replica 2``."""
        return f"role {self.roles[replica.role]['name']!r}, replica {replica.k}"

    def refresh(self) -> None:
        """Set the app's state from its replicas', as long as it goes on."""
        if self.state in TERMINAL:
            return
        if any(replica.state == "RUNNING" for replica in self.replicas):
            self.state = "RUNNING"
        elif self.final is None and (
            self.state == "RUNNING" or any(replica.attempt for replica in self.replicas)
        ):
            self.state = "PENDING"

    def finish(self, at: float) -> bool:
        """Set the state that was decided; False if that was done before. It never changes again.

        Replicas that never came to an end of their own get it too.

        Args:
            at: now, seconds since the epoch: the end of those of which none is known.
        """
        if self.final is None or self.state in TERMINAL:
            return False
        self.state, self.msg = self.final
        for replica in self.replicas:
            replica.alive = False
            if replica.state not in TERMINAL:
                replica.state = (
                    "CANCELLED" if self.state == "CANCELLED" or replica.start is None else "FAILED"
                )
            if replica.end is None:
                replica.end = at
        return True

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form of an `AppStatus`."""
        roles: list[dict[str, Any]] = [
            {"role": role["name"], "replicas": []} for role in self.roles
        ]
        counted = (self.requeues, self.app_restarts)
        for replica in self.replicas:
            role = roles[replica.role]
            role["replicas"].append(replica.as_json(role["role"]))
        return {
            "schema": 1,
            "state": self.state,
            "num_restarts": sum(
                (*counted, *self.role_restarts, *(replica.spent for replica in self.replicas))
            ),
            "msg": self.msg,
            **({"structured_error_msg": self._error} if self._error else {}),
            "roles": roles,
        }

    def counts(self) -> dict[str, Any]:
        """Return what an `Gang` needs besides `as_json` to count on (``before``)."""
        counts: dict[str, Any] = {"requeues": self.requeues, "app": self.app_restarts}
        more = {
            "interruptions": self.app_interruptions,
            "role_interruptions": any(self.role_interruptions) and self.role_interruptions,
            "fruitless": self.fruitless,
            "mark": self._seen_mark,
            "step": self.step,
            "seen_step": self._seen_step,
        }
        counts.update({name: value for name, value in more.items() if value})
        return {**counts, "roles": self.role_restarts, "began": self.began}
