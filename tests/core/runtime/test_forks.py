"""A forked child works, whatever another thread of its parent was doing at that moment."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BEGIN = """
    import os, signal, threading
    from transload.plugins import get_plugins, hookimpl
    from transload.runner import Runner, get_runner
    from transload.schedulers.local import create_local
    from transload.specs import AppDef, Role
    begun, never = threading.Event(), threading.Event()
    def block(*_, **__):
        begun.set()
        never.wait()
    def in_a_thread(work):
        threading.Thread(target=work, daemon=True).start()
        assert begun.wait(30)
    app = AppDef("demo", [Role("main", "", entrypoint="true")])
"""
PLUGINS = """
    class Slow:
        @hookimpl
        def transload_components(self, register):
            block()
    get_plugins().register(Slow(), "slow")
    in_a_thread(lambda: get_plugins().names("components"))
    def child():
        assert "local" in get_plugins().names("schedulers")
"""
RUNNER = """
    runner = Runner("tests", {"slow": block, "local": create_local})
    in_a_thread(lambda: runner.list("slow"))
    def child():
        assert runner.wait(runner.run(app, "local")).state.name == "SUCCEEDED"
        runner.close()
"""
SUBMIT = """
    from transload.schedulers.folder import start
    runner = get_runner()
    runner.wait(runner.run(app, "local"))
    real = start._receive
    start._receive = block
    in_a_thread(lambda: runner.run(app, "local"))
    def child():
        start._receive = real
        assert runner.wait(runner.run(app, "local")).state.name == "SUCCEEDED"
        runner.close()
"""
FUNCTIONS = """
    import transload
    class Slow:
        def __reduce__(self):
            block()
    in_a_thread(lambda: transload.submit(print, Slow()))
    def child():
        assert transload.submit(len, "ab").result(timeout=20) == 2
"""
END = """
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        code = 1
        try:
            child()
            code = 0
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize(
    "work",
    [PLUGINS, RUNNER, SUBMIT, FUNCTIONS],
    ids=["plugins", "runner", "submit", "functions"],
)
def test_lock_held_by_another_thread(transload_home: Path, work: str) -> None:
    """A child works that was forked while another thread held a lock of ours.

    That thread loads plugins, makes a scheduler, submits or pickles.
    """
    script = "".join(map(textwrap.dedent, (BEGIN, work, END)))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "0\n", done.stderr
