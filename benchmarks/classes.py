"""Classes of ours that take part in one run: those of which some process executes a method, all
processes together.

Records are left out that only check or complete themselves when they are made (`__post_init__`),
and so are classes that only their own module knows (`_Name`).

What a newcomer must know to follow `transload run`, and an adapter's run, from the call to the
process and back. Prints JSON: for each run the number and the names, by module.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

MOST: Final = {"transload run": 28, "an adapter's run": 29}
"""As many as there are: each keeps state of its own that no other one could keep."""

# Notes each class of ours when a method of it is first called; it is inherited by forked processes.
HOOK: Final = """
import sys, os
def install(out):
    seen = set()
    def note(frame, event, arg):
        if event == "call":
            code = frame.f_code
            if code not in seen:
                seen.add(code)
                name = code.co_qualname
                method = code.co_flags & 1 and "." in name  # not a class body, which is run when it is made
                method = method and not name.endswith(".__post_init__") and not name.startswith("_")
                if method and "/transload" in code.co_filename and "<locals>" not in name.rsplit(".", 1)[0]:
                    # opened each time: the fork server closes what it has inherited
                    fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                    os.write(fd, f"{code.co_filename}:{name.rsplit('.', 1)[0]}\\n".encode())
                    os.close(fd)
    sys.setprofile(note)
    if "threading" in sys.modules:
        sys.modules["threading"].setprofile(note)
    return note
"""

RUN: Final = """
import runpy
sys.argv = ["transload", "run", "utils.echo", "--msg", "hello"]
try:
    runpy.run_module("transload", run_name="__main__")
except SystemExit:
    pass
"""

ADAPTER: Final = """
from contextlib import nullcontext
from transload.pipelines import Adapter, AdapterIO, ExecutionOptions, Identity, Launch, host_runner
class Bench(Adapter[str]):
    name = "bench"
    def convert(self, source, **host_options):
        return source
    def dry_run(self, source, **host_options):
        return ""
    def identity(self, context):
        return Identity("bench", "here", (context,))
    def io(self, context):
        sink = lambda role, replica, stream, line: None
        return AdapterIO(runner=host_runner("bench"), sink=sink)
    def cancel_on_exit(self, context, driver):
        return nullcontext()
    def translate(self, error, context):
        return error
launch = Launch(component="utils.echo", args={"msg": "hello"}, scheduler="local")
Bench().run("step", launch, ExecutionOptions())
"""


def classes(script: str) -> dict[str, list[str]]:
    """Return module → classes of which a script, and what it starts, executes a method."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/classes"
        hook = f"{HOOK}\ninstall({out!r})"
        start = f"""
import sys, threading
{HOOK}
from transload.schedulers.local import connection
plain = connection.import_fork_server
connection.import_fork_server = lambda: "exec(" + repr({hook!r}) + "); " + plain()
threading.setprofile(install({out!r}))
{script}
"""
        env = {**os.environ, "TRANSLOAD_HOME": f"{folder}/home", "PYTHONWARNINGS": "ignore"}
        subprocess.run(
            [sys.executable, "-c", start],
            env=env,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )
        found: dict[str, set[str]] = {}
        for line in Path(out).read_text().splitlines():
            file, _, name = line.rpartition(":")
            module = file.partition("/transload/")[2].removesuffix(".py").replace("/", ".")
            if module:
                found.setdefault(module, set()).add(name)
    return {module: sorted(names) for module, names in sorted(found.items())}


def main() -> None:
    """Count and print."""
    result = {}
    for name, script in (("transload run", RUN), ("an adapter's run", ADAPTER)):
        found = classes(script)
        result[name] = {
            "count": sum(map(len, found.values())),
            "target": MOST[name],
            "classes": found,
        }
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
