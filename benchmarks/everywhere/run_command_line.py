"""`transload run`, in a shell; the app is waited for by another process than the one that submitted
it.
"""

from __future__ import annotations

import json
import subprocess
import sys

from row import ARGUMENTS, COMPONENT, ENDLESS, ENGINES, Cell

TRANSLOAD = [sys.executable, "-m", "transload"]


def said(*words: str, code: int = 0) -> str:
    """Return what a command of transload prints; ends this program when it exits otherwise."""
    done = subprocess.run(
        [*TRANSLOAD, *words], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode != code:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


words = [word for name, value in ARGUMENTS.items() for word in (f"--{name}", str(value))]
for engine in ENGINES:
    cell = Cell("command line", engine)
    submitted = said("run", "--detach", "-s", engine, COMPONENT, *words).split()[-1]
    told = json.loads(said("wait", "--json", submitted))
    accuracy = json.loads(said("results", "--json", submitted))["results"]["final"]["accuracy"]
    log = said("log", submitted)
    endless = said("run", "--detach", "-s", engine, ENDLESS).split()[-1]
    said("cancel", endless)
    said("wait", endless, code=4)
    cell.also(cancel="CANCELLED", retry="– (a shell tries nothing again)", waiter="transload wait")
    cell.emit(submitted, told["state"], "exit 0", accuracy, log)
