"""One row of the table: which engine ran the job, how it says that it went, and the accuracy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "everywhere"))

from job import ARGUMENTS, COMPONENT

EXAMPLE = Path(sys.path[0])
TESTS = Path(__file__).resolve().parents[1]
_BEGAN = time.monotonic()
signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that servers are stopped on the way out


def emit(engine: str, handle: str, state: str, host_state: str, accuracy: float, seconds: float | None = None) -> None:
    """Print the row as the last line of stdout."""
    taken = seconds if seconds is not None else time.monotonic() - _BEGAN
    row = {"engine": engine, "handle": handle, "state": state, "host": host_state}
    print(json.dumps({**row, "accuracy": accuracy, "seconds": round(taken, 1)}), flush=True)


def by_command_line(scheduler: str, host_state: Callable[[dict[str, Any]], str], cfg: str = "") -> None:
    """Run the job with `transload run`, and emit its row.

    Args:
        scheduler: where.
        host_state: asks the engine itself how the job went; gets what the command printed.
        cfg: run options, as on the command line.
    """
    words = [word for name, value in ARGUMENTS.items() for word in (f"--{name}", str(value))]
    options = ["--cfg", cfg] if cfg else []
    command = [sys.executable, "-m", "transload", "run", "--json", "-s", scheduler, *options, COMPONENT, *words]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=os.environ, timeout=300)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
    seconds = time.monotonic() - began
    said = json.loads(done.stdout)
    accuracy = said["results"]["final"]["accuracy"]
    emit(scheduler, said["handle"], said["state"], host_state(said), accuracy, seconds)
