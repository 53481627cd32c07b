"""Find out whether somebody asked for the end of this process.

A signal does not say who sent it.

A worker that is stopped, a machine that is drained, and a parent that was killed all send SIGTERM.
A person's cancel does so too. So a process that is ended asks, and cancels its job only if that end
was asked for.
"""

from __future__ import annotations

import contextvars
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from transload.errors import SchedulerUnavailable, TransloadError
from transload.runner.job_env import ENV_JOB_ID
from transload.specs import AppState

if TYPE_CHECKING:
    from transload.runner import Runner

Asked = Callable[[], bool | None]
"""Tells whether somebody asked for the end of an orchestrator's step, or None if unknown now."""

LONGEST: Final = 3.0
"""Seconds in which an answer must come, since what is being ended is killed soon."""

_PAUSE: Final = 0.3


def inside_job() -> bool:
    """Tell whether this process is one of a job's."""
    return bool(os.environ.get(ENV_JOB_ID))


def interrupted() -> bool:
    """Tell whether a person's Ctrl-C (SIGINT) is ending this process.

    Inside a job, only one at a terminal counts, since any other signal there comes from the job's
    scheduler.
    """
    if not may_be_by_hand():
        return False
    return (
        any(isinstance(each, KeyboardInterrupt) for each in _handled()) or _interrupted_event_loop()
    )


def may_be_by_hand() -> bool:
    """Tell whether SIGINT may be a person's Ctrl-C in this process.

    That is so outside of a job, or at a terminal.
    """
    return not inside_job() or _at_a_terminal()


def _at_a_terminal() -> bool:
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _handled() -> Iterator[BaseException]:
    """Yield the exceptions that the main thread handles at this moment, the latest first."""
    found = sys._current_exceptions().get(threading.main_thread().ident or 0)
    # before Python 3.12: type, value, traceback
    latest: object = found[1] if isinstance(found, tuple) else found
    while isinstance(latest, BaseException):
        yield latest
        latest = latest.__context__


def _interrupted_event_loop() -> bool:
    """Tell whether ``asyncio.run`` has got SIGINT.

    It then cancels its main task, and raises only after that one's end.
    """
    handler = signal.getsignal(signal.SIGINT)
    loop_runner = getattr(getattr(handler, "func", None), "__self__", None)
    return bool(getattr(loop_runner, "_interrupt_count", 0))


def somebody_asked(runner: Runner, host: Asked) -> bool:
    """Tell whether somebody asked the step's orchestrator, or the job around it, for its end.

    This takes a few seconds at most. Without an answer in that time, the result is False.

    Args:
        runner: who finds the job that this process is in.
        host: what the orchestrator of the step says.
    """
    found: list[bool] = []
    context = contextvars.copy_context()

    def ask() -> None:
        end = time.monotonic() + LONGEST
        while not found:
            answers = [_asked_of_own_job(runner), _answer(host)]
            if True in answers:
                found.append(True)
            elif None not in answers or time.monotonic() > end:
                found.append(False)
            else:
                time.sleep(_PAUSE)

    thread = threading.Thread(target=context.run, args=(ask,), name="transload-asking", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is ending
        ask()
    else:
        thread.join(LONGEST)
    return found == [True]


def _answer(host: Asked) -> bool | None:
    try:
        return host()
    except Exception:  # whatever keeps an orchestrator from answering, it did not say yes
        return None


def _asked_of_own_job(runner: Runner) -> bool | None:
    """Tell whether somebody asked for the end of this process's job, or None if not known."""
    handle = os.environ.get(ENV_JOB_ID)
    if not handle:
        return False
    try:
        status = runner.status(handle)
    except SchedulerUnavailable:
        return None
    except TransloadError:  # its scheduler is not known here
        return False
    if status is None:
        return False
    if status.state is AppState.UNKNOWN:
        return None
    return status.cancel_requested or status.state is AppState.CANCELLED
