"""One component, unchanged, on every engine and host: runs them all for real, one after the other, and prints a table.

    python table.py local=PYTHON slurm=PYTHON …

Each engine's row is made by ``run_<engine>.py`` with that engine's own Python, since hosts cannot share an environment.
The row of an engine that is not on this machine says so, with the reason, unless TRANSLOAD_REQUIRE names it. The
exit status tells whether all other rows are there, all succeeded, and all accuracies are equal, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engines

HERE = Path(__file__).resolve().parent
COLUMNS = ("engine", "handle", "state", "host", "accuracy", "seconds")
LIMIT_S = 600
GRACE_S = 60


def run(engine: str, python: str) -> dict[str, Any]:
    """Return an engine's row; one with ``error`` if it did not come to one."""
    home = tempfile.mkdtemp(prefix="tl-", dir="/tmp")
    environment = {**os.environ, "TRANSLOAD_HOME": home}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        code, out, errors = _finished([python, str(HERE / f"run_{engine}.py")], environment)
        row: dict[str, Any] = json.loads((out.strip().splitlines() or ["null"])[-1])
        if code == 0 and row:
            return row
        return {"engine": engine, "error": f"exit {code}\n{out[-3000:]}\n{errors[-6000:]}"}
    except (subprocess.TimeoutExpired, ValueError) as exc:
        return {"engine": engine, "error": f"{type(exc).__name__}: {exc}"}
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _finished(command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it wrote. One that takes too long may first stop its servers."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as child:
        try:
            out, errors = child.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=GRACE_S)
            child.kill()
            raise
    return child.returncode, out, errors


def render(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    cells = [[str(row.get(name, "")) for name in COLUMNS] for row in rows]
    table = [list(COLUMNS), *cells]
    widths = [max(len(line[column]) for line in table) for column in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in table
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _missing(engine: str) -> str | None:
    """Return why an engine cannot run here, or None."""
    if engine == "slurm" and os.geteuid() != 0:
        return "the fake GPUs of the test cluster are device files, which root alone can make"
    return engines.missing(engine) if engine in engines.ENGINES else None


def main(arguments: list[str]) -> int:
    """Run what the arguments name; return the exit status."""
    rows = []
    for argument in arguments:
        engine, _, python = argument.partition("=")
        why = _missing(engine)
        if why is not None and engine not in engines.required():
            rows.append({"engine": engine, "state": f"not run: {why}"})
            continue
        print(f"{engine} …", file=sys.stderr, flush=True)
        rows.append(run(engine, python))
    print(render(rows))
    for row in rows:
        if "error" in row:
            print(f"\n{row['engine']}: {row['error']}", file=sys.stderr)
    good = [row for row in rows if row.get("state") == "SUCCEEDED"]
    left_out = [row for row in rows if str(row.get("state", "")).startswith("not run")]
    accuracies = {row["accuracy"] for row in good}
    if len(good) + len(left_out) < len(rows) or len(accuracies) != 1:
        print(f"not the same everywhere: {len(good)} of {len(rows)} succeeded; accuracies {sorted(accuracies)}")
        return 1
    print(f"the same accuracy {accuracies.pop()} in {len(good)} of {len(rows)}; not run: {len(left_out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
