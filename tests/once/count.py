"""Plays hosts on engines, adds what was counted to ``docs/once.json``, and writes the table of ``docs/once.md``.

    python count.py KILLS SEED CELLS STARTER prefect=PYTHON ax=PYTHON …

CELLS are HOST:ENGINE with commas between them, or ``all``. Seeds go on where the file ends for that cell, unless SEED
is one. Rows of an older commit in which what decides about jobs was another are dropped.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "everywhere"))

from table import started

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

FILE, PAGE = ROOT / "docs" / "once.json", ROOT / "docs" / "once.md"
BEGIN, END = "<!-- table: nox -s once -->", "<!-- end of the table -->"
DECIDES = ("core/src/transload/pipelines", "core/src/transload/runner")
"""A change in these, in the host's plugin or in the engine's, voids what was counted before it."""
COUNTED = ("kills", "second_jobs", "never_ran", "left", "no_results", "lost", "repeated", "wrong_cases")
WORDS = {
    "kills": "kills",
    "second_jobs": "second jobs",
    "never_ran": "never ran",
    "left": "orphans",
    "no_results": "results lost",
    "lost": "lines lost",
    "repeated": "lines repeated",
    "wrong_cases": "cases with anything wrong",
    "seconds_median": "seconds to the right end, median",
}


def state_of(host: str, engine: str) -> str:
    """Return what names the code that decides about the jobs of a host on an engine: the trees of its last commit."""
    engines = "core/src/transload/schedulers/local" if engine == "local" else f"plugins/{engine}/src"
    asked = [f"HEAD:{path}" for path in (*DECIDES, engines, f"plugins/{host}/src")]
    said = subprocess.run(["git", "rev-parse", *asked], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return "-".join(line[:8] for line in said.split())


def add(kept: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with another one added to the sum of its cell; what was counted of older code is dropped."""
    now = {**row, "code": state_of(row["host"], row["engine"]), "date": f"{dt.datetime.now(dt.UTC).date()}"}
    same = [each for each in kept if (each["host"], each["engine"]) == (row["host"], row["engine"])]
    others = [each for each in kept if each not in same]
    for each in same:
        if each["code"] == now["code"]:
            now |= {name: now[name] + each[name] for name in COUNTED}
            now["first_seed"] = min(now["first_seed"], each["first_seed"])
    return sorted([*others, now], key=lambda each: (each["host"], each["engine"]))


def write(rows: list[dict[str, Any]]) -> None:
    """Put the rows into the file and the page."""
    FILE.write_text(json.dumps(rows, indent=1) + "\n")
    lines = ["| host | engine | " + " | ".join(WORDS.values()) + " | on |", "|" + "---|" * (len(WORDS) + 3)]
    lines += [
        f"| {row['host']} | {row['engine']} | " + " | ".join(str(row[name]) for name in WORDS) + f" | {row['date']} |"
        for row in rows
    ]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.partition(END)[2]}")


def main(arguments: list[str]) -> int:
    """Play what the arguments name; return 1 if anything was wrong."""
    kills, seed, cells, starter, *hosts = arguments
    pythons = dict(each.split("=", 1) for each in hosts)
    rows: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
    code = 0
    with started(starter, list(pythons.values())) as engines:
        environment = {**os.environ, **engines["environment"]}
        all_cells = [f"{host}:{engine}" for host in pythons for engine in engines["engines"]]
        for cell in all_cells if cells == "all" else cells.split(","):
            if cell not in all_cells:
                raise SystemExit(f"{cell!r} is no cell; there are: {', '.join(all_cells)}")
            host, _, engine = cell.partition(":")
            done = [row for row in rows if (row["host"], row["engine"]) == (host, engine)]
            first = int(seed) if seed else sum(row["first_seed"] + row["kills"] for row in done)
            before, leads = engines["engines"][engine]
            command = [*before, pythons[host], str(HERE / "run.py"), host, engine, kills, str(first)]
            with tempfile.TemporaryFile("w+") as out:
                code |= subprocess.run(command, env=environment | leads, stdout=out, check=False).returncode
                out.seek(0)
                for line in out:
                    if line.startswith('{"host"'):  # a host may write there, too
                        print(line, end="", flush=True)
                        rows = add(rows, json.loads(line))
            write(rows)  # at once: a run may be ended
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
