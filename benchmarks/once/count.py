"""Plays hosts on engines, adds what was counted to ``dev/once.json``, and writes the tables of
``dev/once.md``.

    python count.py KILLS SEED CELLS STARTER prefect=PYTHON ax=PYTHON …

CELLS, with commas between them: HOST:ENGINE (the process that looks after an app is struck),
whole:HOST:ENGINE (any part of host and engine is), clear:airflow:ENGINE (a person clears each task),
or ``all``. Seeds go on where the
file ends for that cell, unless SEED is one: then the case is shown, and not added. A row carries the
commit and the date that it was counted at. It stands until its cell is counted at another commit; then
it goes into the sums of `older`.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "everywhere"))

from table import started

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

FILE = ROOT / "dev" / "once.json"
PAGE = ROOT / "dev" / "once.md"
SUMMARY = ROOT / "docs" / "explanation" / "evidence.md"
END = "<!-- end of the table -->"
CLEARS = ("airflow",)
"""Hosts with a button by which a person has a task run again."""
UNITS = 5
"""Units of work of each tool that are in flight when a part of a whole host is struck: so many
kills are counted."""
COUNTED = {
    "kills": "kills",
    "in_life": "of them while the job lived",
    "second_jobs": "second jobs",
    "run_again": "run again",
    "never_ran": "never ran",
    "left": "orphans",
    "no_results": "results lost",
    "wrong_states": "wrong states",
    "lost": "lines lost",
    "repeated": "lines repeated",
    "wrong_cases": "cases with anything wrong",
}
LISTS = ("rows", "older")
CELL = ("host", "version", "engine", "tool", "struck")
SPOKEN = {"airflow": "Airflow", "ax": "Ax", "kfp": "KFP's launcher", "prefect": "Prefect"}
Row = dict[str, Any]


def all_cells(hosts: list[str], engines: list[str]) -> dict[str, tuple[str, str, str]]:
    """Return all cells by name: host, engine, and what is struck."""
    ours = [(host, engine) for engine in engines for host in hosts if host != "core"]
    cells = {f"{host}:{engine}": (host, engine, "process") for host, engine in ours}
    cells |= {f"whole:{host}:{engine}": (host, engine, "whole") for host, engine in ours}
    return cells | {
        f"clear:{host}:{engine}": (host, engine, "clear") for host, engine in ours if host in CLEARS
    }


def add(rows: list[Row], older: list[Row], row: Row) -> tuple[list[Row], list[Row]]:
    """Return the rows with another one, and the sums of those that it takes the place of.

    What was counted of its cell at the same commit is added to it; of what people use otherwise, at
    any commit, since ours do not change it.
    """
    now = {**row, **_stamp()}
    replaced = [each for each in rows if _is_of(each, row)]
    kept = [each for each in rows if each not in replaced]
    for each in replaced:
        ours = each["tool"].startswith("transload")
        if each["commit"] == HEAD or not ours:
            now |= {name: now[name] + each.get(name, 0) for name in (*COUNTED, "seconds")}
            now["first_seed"] = min(now["first_seed"], each["first_seed"])
        else:
            older = _with_older(older, each)
    return sorted([*kept, now], key=_place), older


def _stamp() -> Row:
    today = dt.datetime.now(dt.UTC).date()
    return {"commit": HEAD, "date": f"{today}", "load": round(os.getloadavg()[1])}


def _place(row: Row) -> list[str]:
    return [row.get(name, "") for name in CELL]


def _is_of(row: Row, cell: Row) -> bool:
    """Tell whether a row is of a cell; one of before versions were noted is of each version's."""
    return all(row.get(name, cell[name]) == cell[name] for name in CELL)


def _with_older(older: list[Row], row: Row) -> list[Row]:
    """Return the sums of what was counted at earlier commits, with a row added."""
    place = ("host", "engine", "struck")
    key = {name: row[name] for name in place}
    same = [each for each in older if all(each[name] == key[name] for name in place)]
    added = {name: row.get(name, 0) + sum(each.get(name, 0) for each in same) for name in COUNTED}
    made = [each for each in older if each not in same]
    made.append({**key, **added, "date": row["date"]})
    return sorted(made, key=lambda each: [each[name] for name in place])


def write(kept: dict[str, list[Row]]) -> None:
    """Put the rows into the file and the page."""
    rows = kept["rows"]
    text = ",\n".join(
        f'"{name}": [\n' + ",\n".join(json.dumps(each) for each in found) + "\n]"
        for name, found in kept.items()
    )
    FILE.write_text("{\n" + text + "\n}\n")
    page = PAGE.read_text()
    ours = [row for row in rows if row["tool"].startswith("transload")]
    theirs = [row for row in rows if row not in ours]
    tables = {
        "ours": _table(ours),
        "theirs": _table(theirs),
    }
    for name, table in tables.items():
        begin = f"<!-- table: nox -s once: {name} -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n\n{table}\n\n{END}{rest.partition(END)[2]}"
    begin = "<!-- table: nox -s once: older -->"
    before, _, rest = page.partition(begin)
    PAGE.write_text(f"{before}{begin}\n{_of_older(kept['older'])}\n{END}{rest.partition(END)[2]}")
    kills = [row for row in ours if row["struck"] != "clear"]
    before, _, rest = SUMMARY.read_text().partition("<!-- once -->")
    SUMMARY.write_text(
        f"{before}<!-- once -->{in_a_sentence(kills)}<!-- end -->{rest.partition('<!-- end -->')[2]}"
    )


def in_a_sentence(ours: list[Row]) -> str:
    """Return what docs/explanation/evidence.md says of our own rows."""
    if not ours:
        return "Nothing is counted yet."
    total = {name: sum(row.get(name, 0) for row in ours) for name in COUNTED}
    days = sorted({row["date"] for row in ours})
    seen = [(row["host"], row["engine"]) for row in ours]
    engines = {
        host: tuple(sorted({engine for each, engine in seen if each == host})) for host, _ in seen
    }
    hosts = {some: [host for host in engines if engines[host] == some] for some in engines.values()}
    pairs = "; ".join(
        f"{_and([SPOKEN[host] for host in hosts[some]])} on {_and(some)}" for some in hosts
    )
    return (
        f"{total['kills']} kills up to {days[-1]} ({pairs}): {total['second_jobs']} second jobs, "
        f"{total['left']} left behind, {total['no_results']} results lost."
    )


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _table(rows: list[Row]) -> str:
    titles = [*CELL, *COUNTED.values(), "seconds to the right end, median", "on", "load"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for row in rows:
        told = [row.get(name, "–") for name in (*CELL, *COUNTED)]
        told += [
            round(statistics.median(row["seconds"]), 1),
            f"{row['date']}, {row['commit']}",
            row["load"],
        ]
        lines.append(f"| {' | '.join(map(str, told))} |")
    return "\n".join(lines)


def _of_older(older: list[Row]) -> str:
    total = {name: sum(each.get(name, 0) for each in older) for name in COUNTED}
    said = ", ".join(
        f"{total[name]} {words}"
        for name, words in COUNTED.items()
        if name not in ("in_life", "run_again", "repeated")
    )
    return f"Counted at earlier commits, and counted again since: {said} (in {len(older)} cells)."


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


HEAD = _git("rev-parse", "--short", "HEAD").strip()
"""What was installed when this began; commits that come while it counts are not what was
counted."""


def play(command: list[str], environment: dict[str, str]) -> Iterator[Row | int]:
    """Run a cell; give its rows as they come, and then its exit code."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        try:
            for line in child.stdout or ():
                if line.startswith('{"host"'):  # a host may write there, too
                    row = json.loads(line)
                    print(
                        json.dumps(
                            {name: value for name, value in row.items() if name != "seconds"}
                        ),
                        flush=True,
                    )
                    yield row
        except BaseException:
            child.terminate()
            raise
    yield child.returncode


@contextmanager
def counted() -> Iterator[dict[str, list[Row]]]:
    """Give what the file has, by the names of `LISTS`; ``older`` are sums of earlier commits.

    Another run may count other cells meanwhile.
    """
    with open(FILE) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(FILE.read_text())
        yield {name: kept.get(name, []) for name in LISTS}


def keep(row: Row) -> None:
    """Add a row to the file and the page."""
    with counted() as kept:
        kept["rows"], kept["older"] = add(kept["rows"], kept["older"], row)
        write(kept)


def main(arguments: list[str]) -> int:
    """Play what the arguments name; return 1 if anything of ours was wrong."""
    kills, seed, names, starter, *hosts = arguments
    pythons = dict(each.split("=", 1) for each in hosts)
    code = 0
    with counted() as kept:
        pass  # only to know which seeds were played
    only = () if names == "all" else {each.rpartition(":")[2] for each in names.split(",")}
    with started(starter, list(pythons.values()), only) as there:
        cells = all_cells(list(pythons), list(there["engines"]))
        wanted = list(cells) if names == "all" else names.split(",")
        if unknown := [each for each in wanted if each not in cells]:
            raise SystemExit(f"{', '.join(unknown)}: no such cell; there are: {', '.join(cells)}")
        for name in wanted:
            host, engine, struck = cells[name]
            is_process = struck == "process"
            done = [
                row
                for row in kept["rows"]
                if (row["host"], row["engine"]) == (host, engine) and row["struck"] == struck
            ]
            first = int(seed) if seed else max((row["next_seed"] for row in done), default=0)
            before, leads = there["engines"][engine]
            program = "run.py" if is_process else "whole.py"
            command = [*before, pythons[host], str(HERE / program), host, engine]
            if is_process:
                command += [kills, str(first)]
            else:
                command += [struck, str(-(-int(kills) // UNITS)), str(first), str(UNITS)]
            for found in play(command, {**os.environ, **there["environment"], **leads}):
                if isinstance(found, int):
                    code |= found
                elif not seed:
                    keep(found)
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    raise SystemExit(main(sys.argv[1:]))
