"""Find the exception that ended a program, in the end of its output.

It is loaded when a replica has failed that did not report its error itself. It runs on cluster
nodes, so it keeps to Python 3.8.
"""

from __future__ import annotations

from .failures import ASKS_AGAIN, exit_text, is_about_peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

__all__ = ["traceback_error"]

_TRACEBACK = "Traceback (most recent call last):"
_IGNORED = "Exception ignored "
_OF_TORCHRUN = "torch.distributed.elastic."
_FOLLOWS = (1, -15)  # exit codes of what an exception, or torchrun itself, has ended


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
    by_itself = [process for process in report if process.code not in _FOLLOWS]
    if by_itself:
        first = by_itself[0]
        asks_again = all(process.code == ASKS_AGAIN for process in by_itself)
        said = f"rank {first.rank} {exit_text(first.code)}"
        return _as_error(said, code=ASKS_AGAIN if asks_again else None)
    if raised:
        return raised[0]
    return found[-1].as_error()


def _as_error(line: str, callstack: str = "", code: int | None = None) -> str:
    """Return an error in the form of `read_error`.

    Args:
        line: its message.
        callstack: the lines of its traceback.
        code: the exit code of torchrun's processes, where that says what follows.
    """
    import json

    said: dict[str, Any] = {"message": line, "extraInfo": {}}
    if callstack:
        said["extraInfo"] = {"py_callstack": callstack}
    if code is not None:
        said["errorCode"] = code  # as torchelastic has it
    return json.dumps({"message": said})


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
