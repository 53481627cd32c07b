"""Start ``torchrun`` so that the error of a run is that of its processes.

It is not torchrun's own traceback.
"""

from __future__ import annotations

import shlex
from typing import Final

from transload.components.programs.record import START
from transload.specs.own_programs import OWN_PROGRAMS

LAUNCH: Final = """\
def launch():
    import json, logging, os, signal, sys, time

    def quiet(record):  # a rendezvous that went away with its host: a line will do
        record.exc_info = None
        return True

    def first_line(text):
        return str(text).strip().partition("\\n")[0]

    if sys.path[:1] == [""]:
        del sys.path[0]
    sys.argv[0] = "torchrun"
    level = os.environ.get("TORCH_CPP_LOG_LEVEL")
    if level is None and "TORCH_DISTRIBUTED_DEBUG" not in os.environ:
        os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # of this process alone
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import main

    if level is None:
        os.environ.pop("TORCH_CPP_LOG_LEVEL", None)
    logging.getLogger("torch.distributed.elastic.rendezvous.dynamic_rendezvous").addFilter(quiet)

    # who was lost says why; what the others say follows from it
    words = "Connection closed by peer", "Connection reset by peer", "DistBackendError", "DistNetworkError"

    def speaks_of_peer(text):
        return any(word in text for word in words)

    def end(line, said, lost):
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(each, signal.SIG_DFL)  # no longer torchrun's, which raise
        path = os.environ.get("TRANSLOAD_ERROR_FILE")
        try:
            with open(path or os.devnull, "ab+") as file:
                file.seek(0)
                text = file.read().decode("utf-8", "replace")
                if not text.strip() or (not lost and '"py_callstack"' in text and speaks_of_peer(text)):
                    file.truncate(0)
                    file.write(said or json.dumps({"message": {"message": line}}).encode())
        except (OSError, ValueError):
            pass
        sys.stderr.write("dist: {}\\n".format(line))
        sys.stderr.flush()
        if lost:
            time.sleep(3)
        sys.exit(1)

    # a notice is handed on to the ranks, and torchrun waits until each of them has ended
    notice = getattr(signal, "SIG" + os.environ.get("TRANSLOAD_NOTICE_SIGNAL", ""), None)
    contexts, notices = [], []

    def hand_on(number, frame):
        if notices:  # the second one is meant for torchrun
            raise SignalException("got signal {}".format(number), sigval=signal.Signals(number))
        notices.append(number)
        for context in contexts:
            tell(context)

    def tell(context):
        for process in processes(context):
            if process.poll() is None:
                process.send_signal(notice)

    def processes(context):
        return [handler.proc for handler in context.subprocess_handlers.values()]

    def took_notice(codes):
        return notices and all(code in (0, 75, -notice) for code in codes)

    def listen():
        from torch.distributed.elastic.multiprocessing.api import PContext, SubprocessContext

        start, poll = PContext.start, SubprocessContext._poll

        def started(self):
            start(self)
            contexts[:] = [self]
            if not notices:
                signal.signal(notice, hand_on)
            else:  # it came while they were started
                tell(self)

        def polled(self):
            codes = [process.poll() for process in processes(self)]
            ended = [code for code in codes if code is not None]
            if len(ended) < len(codes) and took_notice(ended):
                return None
            return poll(self)

        PContext.start, SubprocessContext._poll = started, polled

    def end_by_notice():
        codes = [process.poll() for context in contexts for process in processes(context)]
        if took_notice(codes) and all(codes):
            if -notice in codes:
                signal.signal(notice, signal.SIG_DFL)
                os.kill(os.getpid(), notice)
            sys.exit(75)

    if notice is not None:
        listen()
    try:
        return main()
    except SignalException as error:
        number = int(error.sigval)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    except RendezvousError as error:
        return end(first_line("{}: {}".format(type(error).__name__, error.__cause__ or error)), None, True)
    except ChildFailedError as error:
        failures = error.failures
        end_by_notice()

    said = {}
    for rank, each in failures.items():
        message = each.message.get("message") if isinstance(each.message, dict) else None
        said[rank] = str(message or "")

    def order(rank):
        asked = failures[rank].exitcode == -signal.SIGTERM  # by torchrun, which ends the others
        return asked, speaks_of_peer(said[rank]), failures[rank].timestamp

    rank = min(failures, key=order)
    failure, body = failures[rank], None
    if said[rank]:
        line = "rank {} failed: {}".format(rank, first_line(said[rank]))
        try:
            with open(failure.error_file, "rb") as file:
                body = file.read()
        except OSError:
            pass
    elif failure.exitcode < 0:
        line = "rank {} killed by {}".format(rank, signal.Signals(-failure.exitcode).name)
    else:
        line = "rank {} ended with exit code {}".format(rank, failure.exitcode)
    end(line, body, speaks_of_peer(said[rank]))


launch()
"""
"""The text for the Python of ``torchrun``, with the standard library, torch and Python 3.8 only.

A replica whose peer was lost waits for three seconds. So the lost one ends first, and its error is
reported.
"""

_FIND: Final = r"""
type -P torchrun >/dev/null || { echo "torchrun is not on PATH: install torch where the job runs" >&2; exit 127; }
first= second=
{ { read -r first; read -r second; } <"$(type -P torchrun)"; } 2>/dev/null
case $first in
'#!/bin/sh') second=${second#"'''exec' "}; second=${second%' "$0" "$@"'}; second=${second#\"}; agent=("${second%\"}");;
*) agent=(${first#"#!"});;
esac
""".lstrip()
"""Finds the interpreter in the first lines of ``torchrun``. A long path is in the second line."""

RECORDED: Final = f"""\
{_FIND}case ${{agent[*]}} in
*python*)
set -- --no-python ${{PYTHON_EXEC:-"${{agent[@]}}"}} -u -c {shlex.quote(START)} "$@"
agent+=(-c {shlex.quote(LAUNCH)});;
*) agent=(torchrun);;
esac
TORCHELASTIC_ERROR_FILE=/dev/null exec "${{agent[@]}}" """
"""The beginning of the shell command, before ``torchrun``'s arguments and the program (``"$@"``).

The interpreter of torchrun starts each process, as torchrun itself does, and writes the error file.
torchrun's own copy of that file is thrown away, since it may be one that cannot be removed. A
torchrun that is no Python program runs unchanged.
"""

OWN_PROGRAMS[RECORDED] = "# transload.components.programs.torchrun\ntorchrun "
