"""Decide what follows when a replica of a job ends, by the rules of retries.

The keepers of local, Docker and Slurm jobs use them, since their engines have no such rules. A
keeper reports to a `Gang` what happens to the replicas. The gang decides. `Gang.restarts` are
to be ended and started again, and `Gang.final` is the end of the job. Nothing here makes a system
call or reads a clock.

This file runs on cluster nodes, and in processes that must start within milliseconds. So it keeps
to Python 3.8, and imports ``signal`` and ``json`` only when a replica has failed.
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
    "cancelled_for",
    "error_line",
    "exit_text",
    "is_about_peer",
    "needed_replicas",
    "read_error",
    "total_usage",
    "traceback_error",
]


TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")

DELAY_S = 1.0
"""Seconds before the first retry. Each further failure in a row doubles them."""
LONGEST_DELAY_S = 300.0
HEALTHY_S = 600.0
"""Seconds that an attempt must run so that its failure begins a new row."""

LONGEST_ERROR = 1 << 16
"""Bytes that are read of a replica's error file."""

ASKS_AGAIN = 75
"""The exit code by which a program asks, after a notice, to be started again later."""

FRUITLESS = 5
"""Interruptions in a row, without a new checkpoint or a larger step, that end the job.

Only those that a program asked for count, and ends of segments."""

_KILLED = ": transload did not send it; perhaps the system was out of memory"
_LONGEST_LINE = 300
_TRACEBACK = "Traceback (most recent call last):"
_OF_TORCHRUN = "torch.distributed.elastic."
_ABOUT_A_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "DistBackendError",
    "DistNetworkError",
)
_FOLLOWS = (1, -15)  # exit codes of what an exception, or torchrun itself, has ended
PEER_S = 3.0
"""Seconds for which a failure that is about a lost replica waits for the failure of that one."""
_IGNORED = "Exception ignored "
_KEPT_ATTEMPTS = 8  # of each replica, since the status is written anew at each change


def needed_replicas(role: Mapping[str, Any]) -> int:
    """Return how many replicas of a role must succeed for the role to succeed.

    Args:
        role: its record, with ``num_replicas`` and ``min_replicas`` (None means all).
    """
    least: int | None = role["min_replicas"]
    if least is None:
        least = role["num_replicas"]
    return least


def exit_text(code: int | None) -> str:
    """Return ``"exit code 3"``, ``"killed by SIGKILL"`` or, for an unknown code, ``"failed"``.

    A shell returns 128 plus the signal's number for a program that a signal has killed. The text
    names that signal, too.
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
    """Return the content of a replica's error file as JSON text, or "" if it is empty.

    The file (``TRANSLOAD_ERROR_FILE``) may hold any text. The form of torchelastic's files is kept.
    """
    import json

    text = data.decode("utf-8", "replace").strip()
    if not text:
        return ""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    if found is None:
        return ""
    if not isinstance(found, dict):
        found = {"message": str(found)}
    # a file name may have lone surrogates, which no orchestrator takes
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace").decode()


def error_line(error: str) -> str:
    """Return the first line of an error's message, such as ``ValueError: no such thing``.

    Args:
        error: as `read_error` returned it.
    """
    import json

    if not error:
        return ""
    message = json.loads(error).get("message")
    if isinstance(message, dict):
        message = message.get("message")
    lines = [line.strip() for line in str(message or "").splitlines() if line.strip()]
    if not lines:
        return ""
    return "".join(map(_harmless, lines[0][:_LONGEST_LINE]))


def _harmless(char: str) -> str:
    """Return a character, or its escape if it could change how a terminal shows the line."""
    if char.isprintable() or char in "\t\xa0\u3000":
        return char
    return char.encode("unicode_escape").decode("ascii")


def traceback_error(tail: bytes, mixed: bool = False) -> str:
    """Return the exception that a Python program ended with, in the form of `read_error`.

    It is found at the end of the program's standard error, and is "" if there is none. A program
    that went on after an exception did not end with it. Then other lines follow the traceback than
    those that Python writes at its end.

    Args:
        tail: the end of the output of this attempt of the program.
        mixed: standard output is in it, too. Python may write the rest of that when it ends.
    """
    text = tail.decode("utf-8", "replace").rstrip().splitlines()
    found = [each for each in map(_Traceback, _starts(text)) if each.read(text)]
    if not found:
        return ""
    last = found[-1]
    if last.is_of_torchrun():
        return _error_of_processes(found, _report_of_torchrun(text[last.end :]))
    if not mixed and _went_on(text[last.end :]):
        return ""
    return last.as_error()


def is_about_peer(error: str) -> bool:
    """Tell whether an error says that another process of a training was lost, which is the cause.

    Args:
        error: as `read_error` or `traceback_error` returned it.
    """
    return any(word in error for word in _ABOUT_A_PEER)


def _error_of_processes(found: Sequence[_Traceback], report: Sequence[_Process]) -> str:
    """Return why the processes of torchrun failed, which ends with a traceback of its own.

    That is the first exception that ended one of them, unless it says that another one was lost.
    Without any it is a process that a signal has killed, or with an exit code of its own.

    Args:
        found: the tracebacks in the output.
        report: the processes that torchrun itself says have failed.
    """
    # the last of each process, since it may have gone on after those before
    ends: dict[str, _Traceback] = {}
    for each in found:
        if not each.is_of_torchrun():
            ends[each.prefix.partition("[rank")[0] or each.prefix] = each
    raised = []
    for each in sorted(ends.values(), key=lambda each: each.start):
        names = [process for process in report if process.wrote(each.prefix)]
        if names or not report or not each.prefix:
            raised.append(each.as_error(names[0].rank if names else ""))
    own = [error for error in raised if not is_about_peer(error)]
    if own:
        return own[0]
    for process in report:
        if process.code not in _FOLLOWS:
            return _as_error(f"rank {process.rank} {exit_text(process.code)}")
    if raised:
        return raised[0]
    return found[-1].as_error()


def _as_error(line: str, callstack: str = "") -> str:
    """Return an error in the form of `read_error`."""
    import json

    more = {"py_callstack": callstack} if callstack else {}
    return json.dumps({"message": {"message": line, "extraInfo": more}})


class _Process:
    """A failed process in the report of torchrun."""

    def __init__(self) -> None:
        self.rank = ""
        self.local = ""
        self.code = 1

    def wrote(self, prefix: str) -> bool:
        """Tell whether lines with this prefix are the process's own."""
        if "[rank" in prefix:
            return f"[rank{self.rank}]:" in prefix
        named = prefix.partition("]:")[0]  # by torchrun: its role and the local rank
        return named[len(named.rstrip("0123456789")) :] == self.local


def _report_of_torchrun(text: Sequence[str]) -> list[_Process]:
    """Return the processes that torchrun says have failed, from the lines after its exception."""
    found: list[_Process] = []
    for line in text:
        name, _, value = line.partition(":")
        word = value.split()[:1]
        if name.strip() == "rank" and word:
            found.append(_Process())
            found[-1].rank = word[0]
            found[-1].local = value.rpartition(":")[2].strip(" )")
        elif name.strip() == "exitcode" and word and found:
            try:
                found[-1].code = int(word[0])
            except ValueError:
                continue
    return found


def _starts(text: Sequence[str]) -> Iterator[int]:
    """Yield the number of each line that begins a traceback, except of ignored exceptions."""
    for number, line in enumerate(text):
        ignored = number > 0 and text[number - 1].startswith(_IGNORED)
        if line.endswith(_TRACEBACK) and not ignored:
            yield number


def _went_on(rest: Sequence[str]) -> bool:
    """Tell whether the program went on after an exception.

    Args:
        rest: the lines that follow the exception. They may belong to its message, or be written by
            Python at its end.
    """
    lines = iter(rest)
    for line in lines:
        if line.startswith(_IGNORED):
            # its traceback follows, up to the first line that is not indented
            for inner in lines:
                if not inner.startswith((" ", _TRACEBACK)):
                    break
        elif line.strip() and not line.startswith((" ", "\t")) and not _is_warning(line):
            return True
    return False


def _is_warning(line: str) -> bool:
    """Tell whether a line is a warning of Python, such as ``file.py:3: ResourceWarning: …``."""
    before, found, _ = line.partition("Warning: ")
    _, colon, kind = before.rpartition(":")
    return bool(found) and bool(colon) and kind.strip().isidentifier()


class _Traceback:
    """A traceback in the lines of an output.

    Args:
        start: the number of its first line.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start  # number of the line after its exception
        self.prefix = ""  # each of torchrun's processes has another one
        self.frames: list[str] = []
        self.line = ""  # its exception

    def is_of_torchrun(self) -> bool:
        """Tell whether it is torchrun's own, and not that of one of its processes."""
        return self.line.startswith(_OF_TORCHRUN)

    def as_error(self, rank: str = "") -> str:
        """Return it in the form of `read_error`.

        Args:
            rank: the rank of the process, if it is one of torchrun's.
        """
        line = f"rank {rank}: {self.line}" if rank else self.line
        return _as_error(line, "\n".join([*self.frames, self.line]))

    def read(self, text: Sequence[str]) -> bool:
        """Read it from these lines, and return False if it has no end."""
        self.prefix = text[self.start][: -len(_TRACEBACK)]
        for number, line in enumerate(text[self.start :], self.start):
            inner = " "  # another process wrote this line
            if line.startswith(self.prefix):
                inner = line[len(self.prefix) :]
            if self.frames and not inner.startswith(" "):
                self.line = inner
                self.end = number + 1
                return inner.partition(":")[0].replace(".", "").isidentifier()
            self.frames.append(inner)
        return False


def retry_delay(failures: int, first: float = DELAY_S) -> float:
    """Return the seconds to wait before a retry.

    Args:
        failures: how many failures in a row there were before this one.
        first: the seconds before the first retry.
    """
    longest = max(first, LONGEST_DELAY_S)
    return min(first * 2.0 ** min(failures, 60), longest)


def total_usage(parts: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the highest peak of memory and the sum of CPU time, as far as they are known.

    Args:
        parts: each in the JSON form of `transload.specs.Usage`, as is the result.
    """
    known = [each for each in parts if each]
    peaks = [each["peak_memory"] for each in known if each.get("peak_memory") is not None]
    seconds = [each["cpu_seconds"] for each in known if each.get("cpu_seconds") is not None]
    found: dict[str, Any] = {}
    if peaks:
        found["peak_memory"] = max(peaks)
    if seconds:
        found["cpu_seconds"] = round(sum(seconds), 3)
    return found


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

    The caller sets ``usage``, the JSON form of `transload.specs.Usage`, before it calls
    `Gang.ended`. ``used`` is the usage of the attempts before.
    """

    def __init__(self, role: int, k: int) -> None:
        self.role = role  # number of its role
        self.k = k  # its number within the role
        self.state = "SUBMITTED"  # name of an `AppState`
        self.alive = False  # it is being started, or runs
        self.stopping = False  # it is being ended, so its exit code is no failure
        self.waiting = False  # it is to be started again
        self.attempt = 0  # how often it was started again after a failure
        self.interruptions = 0  # how often it was started again after an interruption
        self.interrupted = 0  # how many of these it counts against its role's interruptions
        self.kill_at: float | None = None  # when its time after a notice is over, caller's clock
        self.noticed = ""  # the reason of the notice, which is a cause, ``limit``, or ""
        self.cause = ""  # why the attempt ended, if its role may be interrupted
        self.step: float | None = None  # the step that it reported last
        self.spent = 0  # how many of its role's retries its own failures have used
        self.row = 0  # how many failures in a row came before this attempt
        self.host = ""
        self.error = ""  # its own report of the failure, as `read_error` returns it
        self.code: int | None = None  # exit code of the attempt, −N for a death by signal N
        self.start: float | None = None  # of the attempt, seconds since the epoch
        self.end: float | None = None
        self.usage: dict[str, Any] | None = None
        self.used: dict[str, Any] = {}
        self.earlier: list[dict[str, Any]] = []  # the attempts before, in JSON form

    @property
    def run(self) -> int:
        """Return the number of its attempt, counting failures and interruptions together."""
        return self.attempt + self.interruptions

    def begin_again(self, cause: str = "") -> None:
        """Move the attempt that has ended to the earlier ones, and expect the next.

        Args:
            cause: what interrupted it, or a replica that is started again together with it. It is
                "" after a failure.
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
        self.used = total_usage((self.used, self.usage))
        self.state = "PENDING"
        self.waiting = False
        self.stopping = False
        self.kill_at = None
        self.noticed = ""
        self.cause = ""
        self.code = None
        self.start = None
        self.end = None
        self.usage = None
        self.error = ""

    def take_over(self, before: Mapping[str, Any]) -> None:
        """Take over what `as_json` returned before the engine ended the job."""
        self.state = before["state"]
        if self.state not in TERMINAL:
            self.state = "CANCELLED"
        self.code = before["exit_code"]
        self.start = before["start_time"]
        self.end = before["end_time"]
        self.attempt = before["restarts"]
        self.spent = before.get("spent", 0)
        self.earlier = list(before.get("earlier", ()))
        self.used = before.get("usage") or {}
        self.interruptions = before.get("interruptions", 0)
        self.interrupted = before.get("interrupted", 0)
        self.step = before.get("step")

    def as_json(self, role: str) -> dict[str, Any]:
        """Return the JSON form of a `ReplicaStatus`, with the counts that a later `Gang` needs."""
        state = self.state
        if self.waiting and not self.alive:
            state = "PENDING"
        found = {
            "id": self.k,
            "state": state,
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
    """How an attempt ended that has failed or was interrupted.

    Args:
        replica: whose attempt.
        why: the reason, for a message.
        retry: False if it cannot be started again.
        now: when, on the caller's clock.
        cause: what interrupted it, or "" if it failed.
    """

    def __init__(self, replica: Replica, why: str, retry: bool, now: float, cause: str) -> None:
        self.replica = replica
        self.why = why
        self.retry = retry
        self.now = now
        self.cause = cause


class Restart:
    """Replicas that are to be ended and then started again, all of them together.

    Args:
        replicas: which, in the order of the job.
        due: before when they are not started, on the caller's clock.
        cause: what interrupted them, or "" if one of them has failed.
    """

    def __init__(self, replicas: list[Replica], due: float, cause: str = "") -> None:
        self.replicas = replicas
        self.due = due
        self.cause = cause

    def is_ready(self, now: float) -> bool:
        """Tell whether none of them runs any more and the delay is over."""
        return now >= self.due and not any(replica.alive for replica in self.replicas)


def cancelled_for(who: str) -> str:
    """Return the message of a job that was cancelled, with who asked for that if it is known."""
    if not who:
        return Gang.ON_REQUEST
    return f"{Gang.ON_REQUEST} of {who}"


class Gang:
    """The replicas of a job, and what follows when they end.

    Times are seconds on a clock of the caller's. `Replica.start` and `Replica.end` are seconds
    since the epoch.

    Args:
        roles: of each role ``name``, ``num_replicas``, ``min_replicas`` (None means all),
            ``max_retries`` and ``retry_policy`` (``REPLICA``, ``ROLE`` or ``APPLICATION``).
            Optional are ``retry_delay`` (seconds), ``max_interruptions`` (0), ``notice`` (seconds
            between it and the end), ``notice_signal`` (its number) and ``checkpoints`` (whether it
            has a folder for them).
        timeout: how long the job may take. None means no limit.
        before: what `as_json` returned before the engine started the job again, with `counts` under
            ``counts``. None means that this is the first start.
        segment: how long the job may run at a time. None means no such limit.
        cause: why the engine started the job again, if that is an interruption. It needs
            ``before``.
        judged: whether that interruption was counted before the engine ended the job. It needs
            ``cause``.
        mark: the first value of the attribute `mark`.

    Attributes:
        state: what the job is doing, name of an `AppState`.
        msg: why.
        final: (state, message) once the end is decided. All that still runs is to be ended.
        failed: (role, replica) of the first that failed for good.
        restarts: what is to be started again.
        interrupted: the engine is ending the job by itself.
        engine_end: when the engine ends the job by a limit that it keeps itself, on the caller's
            clock. None means no such limit. Notices are due before that end as well.
        mark: a text that changes when something in the folders for checkpoints does, or "" if that
            is unknown. The caller sets it before it calls `decide`.
    """

    ON_REQUEST = "cancelled on request"
    """Message of a job that was cancelled through transload, the same on every scheduler."""

    def __init__(
        self,
        roles: Sequence[Mapping[str, Any]],
        timeout: float | None = None,
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
            Replica(i, k) for i, role in enumerate(roles) for k in range(role["num_replicas"])
        ]
        self.state = "SUBMITTED"
        self.msg = ""
        self.final: tuple[str, str] | None = None
        self.restarts: list[Restart] = []
        self.interrupted = False
        self.began: float | None = None
        self.requeues = 0
        self.app_restarts = 0
        self.role_restarts = [0] * len(roles)
        self.app_interruptions = 0
        self.role_interruptions = [0] * len(roles)
        self.fruitless = 0  # how many interruptions in a row brought nothing new
        self.step: float | None = None  # the largest that was reported
        self._seen_mark = mark
        self._seen_step: float | None = None
        self._failures: list[_Ended] = []
        self.failed: tuple[str, int] | None = None
        self._first = ""  # why that replica failed
        self._error = ""  # the error that this replica reported
        if before is not None:
            self._go_on(before, cause, judged)

    def _go_on(self, before: Mapping[str, Any], cause: str, judged: bool) -> None:
        """Go on from where the engine ended the job to start it again."""
        self.count_on(before.get("counts") or {})
        may_be = any(self._most_interruptions(role) for role in range(len(self.roles)))
        if not cause or not (judged or may_be):
            self.requeues += 1
            cause = ""
        elif not judged:
            self.app_interruptions += 1
            self._note_fruit(cause)
        known = {
            (role["role"], old["id"]): old
            for role in before.get("roles", ())
            for old in role["replicas"]
        }
        for replica in self.replicas:
            old = known.get((self.roles[replica.role]["name"], replica.k))
            if old:
                replica.take_over(old)
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
        """Note when the job began, and its segment, unless that is known already."""
        if self.began is None:
            self.began = now
        if self.segment_began is None:
            self.segment_began = now

    def starting(self, replica: Replica) -> None:
        """Note that a replica is being started."""
        if self.state not in TERMINAL:
            replica.alive = True
            replica.state = "PENDING"

    def started(self, replica: Replica, at: float, host: str = "") -> None:
        """Note that an attempt of a replica runs.

        Args:
            replica: which.
            at: since when, seconds since the epoch.
            host: the name of its machine.
        """
        if self.state not in TERMINAL:
            replica.alive = True
            replica.state = "RUNNING"
            replica.start = at
            replica.host = host

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
        """Note that an attempt has ended. `decide` decides what follows.

        Args:
            replica: which.
            code: its exit code, None if it is not known.
            at: when, seconds since the epoch.
            now: the same on the caller's clock, if that is another.
            why: what happened, where that says more than the exit code.
            error: the replica's own report of it, as `read_error` returns it.
            retry: False if it cannot be started again.
            cause: what interrupted it, where the engine knows. It is ``preempted``, ``node``,
                ``evicted``, ``drained`` or ``requested``. After a notice it need not be given.
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
        """Return what interrupted a replica that had a notice, by its exit code.

        Exit code 75 always means an interruption. A death by the notice's signal, or by KILL, means
        one if the engine was sure to end the replica.

        Returns:
            The cause, or "" for a failure.
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
        """Tell whether a replica ended as its notice asks, by exit code 75, its signal, or KILL."""
        ends = [ASKS_AGAIN]
        for number in (9, self.roles[replica.role].get("notice_signal", 15)):
            ends += [-number, 128 + number]
        return replica.code in ends

    def notices(self, now: float) -> list[Replica]:
        """Return the replicas that are due a notice, since their time or segment is near its end.

        The caller sends the signal to their main processes, and calls `notified`.
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
        """Note that a replica was sent its notice.

        No other signal is due to it then, except KILL at `Replica.kill_at` if it is to end by then.

        Args:
            replica: which.
            now: the caller's clock.
            cause: the reason, such as ``preempted``, ``drained`` or ``requested``, or "" for the
                end of its time or segment.
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
        """Return the next end of the job's time or its segment, and its name.

        The name is ``limit`` or ``segment``, or "" if there is no such end.
        """
        limit = self.deadline
        segment = self.segment_end
        if self.engine_end is not None and (limit is None or self.engine_end < limit):
            limit = self.engine_end
        if segment is not None and (limit is None or segment < limit):
            return segment, "segment"
        if limit is None:
            return None, ""
        return limit, "limit"

    @property
    def segment_end(self) -> float | None:
        """Return when its segment is over, or None if it has none or its end is decided."""
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
        """Decide the end of the job. All that runs is to be ended, and nothing is started any more.

        Returns:
            False if another end was decided before, or the engine is ending the job.
        """
        if self.final is not None or self.interrupted:
            return False
        self.final = (state, msg)
        self.msg = msg
        self._stop_all()
        return True

    def interrupt(self) -> None:
        """Note that the engine is ending the job by itself.

        The engine decides whether that is its end, or starts it again.
        """
        self.interrupted = True
        self._stop_all()

    def _stop_all(self) -> None:
        self.restarts = []
        self._failures = []
        for replica in self.replicas:
            replica.waiting = False
            replica.stopping = replica.alive

    # ----------------------------------------------------------------------------------------------------
    # the rules

    def decide(self, now: float | None = None) -> None:
        """Decide what follows from all that was noted.

        Args:
            now: the caller's clock. None means that limits of time are not looked at.
        """
        for failure in self._take_failures(now):
            if failure.cause:
                self._judge_interruption(failure)
            else:
                self._judge(failure)
        if self.final is not None or self.interrupted or self.began is None:
            return
        if self.is_idle:
            self._end_idle()
        elif now is None:
            return
        elif self.deadline is not None and now >= self.deadline:
            self.end("FAILED", self._timed_out())
        elif self.segment_end is not None and now >= self.segment_end:
            self._end_segment(now)

    def _take_failures(self, now: float | None) -> list[_Ended]:
        """Return the failures that are to be judged now.

        One that is about a lost replica waits a while for the failure of that one, which is the
        cause.

        Args:
            now: as of `decide`.
        """
        failures = [each for each in self._failures if not each.cause]
        waiting = [each for each in failures if is_about_peer(each.replica.error)]
        taken = [each for each in self._failures if each not in waiting]
        goes_on = any(replica.alive for replica in self.replicas)
        due = self.failure_due()
        has_waited = now is not None and due is not None and now >= due
        if taken or has_waited or not goes_on:
            taken += waiting
            waiting = []
        self._failures = waiting
        return taken

    def _end_idle(self) -> None:
        """End the job, since nothing of it runs or is to be started again."""
        if self.succeeded():
            self.end("SUCCEEDED", "")
        else:
            self.end("FAILED", "too few replicas ended well")

    def _timed_out(self) -> str:
        if self.timeout is None:
            return "its limit of time has run out"
        return f"timed out after {self.timeout:g} s"

    def _end_segment(self, now: float) -> None:
        """Have all that runs ended and started again, since its segment is over."""
        running = [replica for replica in self.replicas if replica.alive and not replica.waiting]
        if running:
            first = running[0]
            self._judge_interruption(_Ended(first, "", True, now, "segment"))
        else:  # those that wait begin the next segment
            self.segment_began = None

    def _most_interruptions(self, role: int) -> int:
        return int(self.roles[role].get("max_interruptions") or 0)

    def _judge_interruption(self, ended: _Ended) -> None:
        """Decide what follows from an interruption."""
        replica = ended.replica
        cause = ended.cause
        if self.final is not None or replica.waiting:
            return
        most = self._most_interruptions(replica.role)
        what = f"{self.name(replica)} was interrupted ({cause}){self._how_far(replica, ended)}"
        spent = self._spend_interruption(replica, cause)
        if spent > most:
            self._fail(replica, f"{what}, and its {most} interruptions are used up")
            return
        if not ended.retry:
            self._fail(replica, what)
            return
        self._note_fruit(cause)
        if self.fruitless >= FRUITLESS:
            self._fail(replica, f"{what}: {self.no_fruit()}")
            return
        scope = self._scope_of_interruption(replica, cause)
        delay = 0.0
        if cause != "segment":
            delay = self._delay(replica, scope)
        self.restart(scope, ended.now + delay, cause)
        self.msg = f"{what}; started again, {_ordinal(spent)} of {most}"

    def _fail(self, replica: Replica, msg: str) -> None:
        """End the job, since a replica was interrupted and is not started again."""
        self._note_failed(replica)
        self.end("FAILED", msg)

    def _note_failed(self, replica: Replica) -> None:
        if self.failed is None:
            self.failed = (self.roles[replica.role]["name"], replica.k)

    def _how_far(self, replica: Replica, ended: _Ended) -> str:
        """Return for a message at which step, and after what time, an attempt ended."""
        text = ""
        if replica.step is not None:
            text = f" at step {replica.step:,}"
        if replica.start is not None and replica.end is not None:
            text += f" after {_time_text(replica.end - replica.start)}"
        elif ended.cause == "segment" and self.segment is not None:
            text += f" after {_time_text(self.segment)}"
        return text

    def _spend_interruption(self, replica: Replica, cause: str) -> int:
        """Count an interruption, and return how many there are of its kind."""
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
        """Return the replicas that are started again after an interruption."""
        policy = self.roles[replica.role]["retry_policy"]
        if cause == "segment":
            return [each for each in self.replicas if not self._is_done(each)]
        if policy == "REPLICA":
            return [replica]
        if policy == "ROLE":
            return [each for each in self.replicas if each.role == replica.role]
        return list(self.replicas)

    def _is_done(self, replica: Replica) -> bool:
        """Tell whether a replica has succeeded, and is not started again with others."""
        alone = self.roles[replica.role]["retry_policy"] == "REPLICA"
        return alone and replica.state == "SUCCEEDED"

    def _note_fruit(self, cause: str) -> None:
        """Count an interruption in a row without anything new, or begin a new row.

        Interruptions by the engine do not count, since they do not go on for ever. Something new is
        a change in a folder for checkpoints, or a larger step. A job with neither is not counted.
        """
        if cause not in ("segment", "requested"):
            return
        shows_it = self.step is not None or any(role.get("checkpoints") for role in self.roles)
        further = self.step is not None and (self._seen_step is None or self.step > self._seen_step)
        if shows_it and not further and self.mark == self._seen_mark:
            self.fruitless += 1
        else:
            self.fruitless = 0
        self._seen_mark = self.mark
        self._seen_step = self.step

    def no_fruit(self) -> str:
        """Return why a job without anything new is not started again, or "" if it may be."""
        if self.fruitless < FRUITLESS:
            return ""
        return f"{FRUITLESS} in a row without a new checkpoint or a larger step"

    def why_not_again(self) -> str:
        """Return why a job that the engine started again does not go on, or "" if it does."""
        if not self.covers_requeue():
            return "its retries are used up"
        most = max(self._most_interruptions(role) for role in range(len(self.roles)))
        if self.app_interruptions > most:
            return f"its {most} interruptions are used up"
        return self.no_fruit()

    def _judge(self, ended: _Ended) -> None:
        """Decide what follows from a failure."""
        replica = ended.replica
        if self.final is not None or replica.waiting:
            return
        if replica.noticed == "limit" and self._obeyed(replica):
            self.end("FAILED", self._timed_out())
            return
        reason = f"{self.name(replica)} failed ({ended.why})"
        said = error_line(replica.error)
        if said:
            reason += f": {said}"
        scope: list[Replica] = []
        if ended.retry and replica.noticed != "limit":  # its time is nearly over
            scope = self._scope(replica)
        if scope:
            self._spend_retry(replica)
            self.restart(scope, ended.now + self._delay(replica, scope))
            self.msg = f"{reason}; started again"
            return
        if not self._first:
            self._first = reason
            self._error = replica.error
            self._note_failed(replica)
        if self._can_succeed(replica.role):
            return
        if self._first != reason:
            reason += f"; before that {self._first}"
        self.end("FAILED", reason)

    def _scope(self, failed: Replica) -> list[Replica]:
        """Return the replicas to start again after a failure, or none without retries left."""
        role = self.roles[failed.role]
        policy = role["retry_policy"]
        if policy == "REPLICA":
            scope = [failed]
            spent = failed.spent
        elif policy == "ROLE":
            scope = [each for each in self.replicas if each.role == failed.role]
            spent = self.role_restarts[failed.role] + self.requeues
        else:
            scope = list(self.replicas)
            spent = self.app_restarts + self.requeues
        if spent >= role["max_retries"]:
            return []
        return scope

    def _spend_retry(self, failed: Replica) -> None:
        """Count a retry, where the role's policy counts it."""
        policy = self.roles[failed.role]["retry_policy"]
        if policy == "REPLICA":
            failed.spent += 1
        elif policy == "ROLE":
            self.role_restarts[failed.role] += 1
        else:
            self.app_restarts += 1

    def _delay(self, ended: Replica, scope: Iterable[Replica]) -> float:
        """Return the seconds before a restart, and count these replicas' failures in a row."""
        row = ended.row
        if ended.start is not None and (ended.end or 0.0) - ended.start >= HEALTHY_S:
            row = 0
        for replica in scope:
            replica.row = row + 1
        return retry_delay(row, self.roles[ended.role].get("retry_delay", DELAY_S))

    def restart(self, replicas: Iterable[Replica], due: float, cause: str = "") -> None:
        """Have replicas ended and started again. Restarts of some of them become part of this.

        Args:
            replicas: which.
            due: before when they are not started, on the caller's clock.
            cause: what interrupted them, or "" if one of them has failed.
        """
        scope = set(replicas)
        for narrow in [each for each in self.restarts if scope & set(each.replicas)]:
            self.restarts.remove(narrow)
            scope.update(narrow.replicas)
            due = max(due, narrow.due)
            if not narrow.cause:
                cause = ""
        for replica in scope:
            replica.waiting = True
            replica.stopping = replica.alive
        in_order = [replica for replica in self.replicas if replica in scope]
        self.restarts.append(Restart(in_order, due, cause))

    def skip(self, seconds: float) -> None:
        """Note that the job waited for these seconds. Its time limit does not count them."""
        if self.began is not None:
            self.began += seconds

    def renew(self, restart: Restart, now: float | None = None) -> list[Replica]:
        """Begin the next attempt of the replicas of a restart, and return them. All have ended.

        Args:
            restart: which.
            now: when the next segment begins, on the caller's clock. It is needed where there are
                segments.
        """
        self.restarts.remove(restart)
        for replica in restart.replicas:
            replica.begin_again(restart.cause)
        is_whole = len(restart.replicas) == len(self.replicas)
        if restart.cause == "segment" or is_whole or self.segment_began is None:
            self.segment_began = now
        return restart.replicas

    def _can_succeed(self, role: int) -> bool:
        """Tell whether enough replicas of a role may still succeed."""
        good = [
            replica
            for replica in self._of_role(role)
            if replica.waiting or replica.state not in ("FAILED", "CANCELLED")
        ]
        return len(good) >= self.needed(role)

    def _of_role(self, role: int) -> list[Replica]:
        return [replica for replica in self.replicas if replica.role == role]

    def needed(self, role: int) -> int:
        """Return how many replicas of a role must succeed."""
        return needed_replicas(self.roles[role])

    def succeeded(self) -> bool:
        """Tell whether enough replicas of every role have succeeded."""
        for role in range(len(self.roles)):
            good = [each for each in self._of_role(role) if each.state == "SUCCEEDED"]
            if len(good) < self.needed(role):
                return False
        return True

    def covers_requeue(self) -> bool:
        """Tell whether the retries of some role cover the restarts by the engine."""
        most = max(int(role["max_retries"]) for role in self.roles)
        return self.requeues + self.app_restarts <= most

    # ----------------------------------------------------------------------------------------------------
    # questions

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing runs and nothing is to be started again."""
        return not self.restarts and not any(replica.alive for replica in self.replicas)

    @property
    def deadline(self) -> float | None:
        """Return when its time is over.

        Returns:
            The time, or None if it has no limit, has not begun, or its end is decided.
        """
        if self.timeout is None or self.began is None or self.final is not None or self.interrupted:
            return None
        return self.began + self.timeout

    def next_end(self) -> float | None:
        """Return when its time or segment ends, or a notice of that is due, or None for never."""
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
        """Return when a limit, a notice or a restart is due, or None if only an event matters."""
        dues = [
            each.due
            for each in self.restarts
            if not any(replica.alive for replica in each.replicas)
        ]
        dues += [due for due in (self.next_end(), self.failure_due()) if due is not None]
        return min(dues) if dues else None

    def failure_due(self) -> float | None:
        """Return when a failure that is about a lost replica counts, or None if there is none."""
        return min((each.now + PEER_S for each in self._failures), default=None)

    def name(self, replica: Replica) -> str:
        """Return ``role 'trainer', replica 2``."""
        return f"role {self.roles[replica.role]['name']!r}, replica {replica.k}"

    def refresh(self) -> None:
        """Set the job's state from its replicas', as long as it goes on."""
        if self.state in TERMINAL:
            return
        if any(replica.state == "RUNNING" for replica in self.replicas):
            self.state = "RUNNING"
            return
        has_run = self.state == "RUNNING" or any(replica.attempt for replica in self.replicas)
        if self.final is None and has_run:
            self.state = "PENDING"

    def finish(self, at: float) -> bool:
        """Set the state that was decided, which never changes again.

        Replicas without an end get that state too.

        Args:
            at: the end of the replicas whose end is not known, seconds since the epoch.

        Returns:
            False if no end was decided, or the state was set before.
        """
        if self.final is None or self.state in TERMINAL:
            return False
        self.state, self.msg = self.final
        for replica in self.replicas:
            replica.alive = False
            if replica.state not in TERMINAL:
                replica.state = "FAILED"
                if self.state == "CANCELLED" or replica.start is None:
                    replica.state = "CANCELLED"
            if replica.end is None:
                replica.end = at
        return True

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form of an `AppStatus`."""
        restarts = self.requeues + self.app_restarts + sum(self.role_restarts)
        restarts += sum(replica.spent for replica in self.replicas)
        found: dict[str, Any] = {
            "schema": 1,
            "state": self.state,
            "num_restarts": restarts,
            "msg": self.msg,
        }
        if self.failed is not None:
            found["failed"] = list(self.failed)
        if self._error:
            found["structured_error_msg"] = self._error
        roles: list[dict[str, Any]] = [
            {"role": role["name"], "replicas": []} for role in self.roles
        ]
        for replica in self.replicas:
            role = roles[replica.role]
            role["replicas"].append(replica.as_json(role["role"]))
        found["roles"] = roles
        return found

    def counts(self) -> dict[str, Any]:
        """Return the counts that a later `Gang` needs besides `as_json` (see ``before``)."""
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
