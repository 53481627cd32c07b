"""Runs `load.py` for hosts on engines; with ``--write`` its lines become the table of
``dev/scale.md``.

    python table.py [--write] UNITS MINUTES CELLS STARTER airflow=PYTHON …

CELLS are HOST:ENGINE with commas between them, or ``all``.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "dev" / "scale.md"
BEGIN, END = "<!-- table: nox -s load -- --write -->", "<!-- end of the table -->"
WORDS = {
    "host": "host",
    "engine": "engine",
    "units": "units at once",
    "right": "ended right",
    "seconds": "seconds",
    "cpu": "CPU seconds of the host",
    "requests_a_minute": "Slurm's requests a minute",
    "peak_mb": "MB at most",
    "peak_fds": "descriptors at most",
    "peak_processes": "processes at most",
    "load": "load",
    "date": "on",
}
started = runpy.run_path(str(HERE.parent / "everywhere" / "table.py"))["started"]


def write(rows: list[dict[str, Any]]) -> None:
    """Put the rows into the page, each in the place of the one that is there of its host and
    engine.
    """
    before, _, rest = PAGE.read_text().partition(BEGIN)
    there, _, after = rest.partition(END)
    lines = [line.strip("| ").split(" | ") for line in there.strip().splitlines()[2:]]
    lines += [
        [str(row.get(name) if row.get(name) is not None else "–") for name in WORDS] for row in rows
    ]
    cells = {tuple(line[:2]): line for line in lines}
    table = [list(WORDS.values()), ["---"] * len(WORDS), *(cells[key] for key in sorted(cells))]
    text = "\n".join(f"| {' | '.join(line)} |" for line in table)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def main(arguments: list[str]) -> int:
    """Run what the arguments name; return 1 if something was not right."""
    keep = arguments[0] == "--write"
    units, minutes, names, starter, *hosts = arguments[keep:]
    pythons = dict(each.split("=", 1) for each in hosts)
    rows, code = [], 0
    only = (
        ("local", "slurm")
        if names == "all"
        else {each.rpartition(":")[2] for each in names.split(",")}
    )
    with started(starter, list(pythons.values()), only) as there:
        cells = [
            f"{host}:{engine}"
            for engine in ("local", "slurm")
            if engine in there["engines"]
            for host in pythons
        ]
        for cell in cells if names == "all" else names.split(","):
            host, _, engine = cell.partition(":")
            words = [pythons[host], str(HERE / "load.py"), host, engine, units, minutes]
            environment = {**os.environ, **there["environment"]}
            with subprocess.Popen(
                words, env=environment, stdout=subprocess.PIPE, text=True
            ) as child:
                for line in child.stdout or ():
                    if line.startswith('{"host"'):
                        print(line, end="", flush=True)
                        rows.append(
                            {**json.loads(line), "date": f"{dt.datetime.now(dt.UTC).date()}"}
                        )
                        if keep:
                            write(rows)
            code |= child.returncode
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
