"""`transload run`, in a shell."""

from __future__ import annotations

import json
import subprocess
import sys

from row import ARGUMENTS, COMPONENT, ENGINES, Cell

words = [word for name, value in ARGUMENTS.items() for word in (f"--{name}", str(value))]
for engine in ENGINES:
    cell = Cell("command line", engine)
    command = [sys.executable, "-m", "transload", "run", "--json", "-s", engine, COMPONENT, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    said = json.loads(done.stdout)
    log = subprocess.run(
        [sys.executable, "-m", "transload", "log", said["handle"]], capture_output=True, text=True, check=True
    )
    accuracy = said["results"]["final"]["accuracy"]
    cell.emit(said["handle"], said["state"], f"exit {done.returncode}", accuracy, log.stdout)
