"""One component, unchanged, in every host on every engine: runs all of it for real, and prints a
table.

    python table.py [--all | --write] STARTER command_line=PYTHON airflow=PYTHON …

Each host on one engine, so that every engine is met; with ``--all`` each on all of them; with
``--write`` likewise, and the table goes to the pages, too. STARTER is the Python that starts the
engines (``engines_up.py``). A host's cells are made by ``run_<host>.py`` with that host's own
Python, since hosts cannot share an environment. An engine that is not on this machine is named with
the reason. The exit status tells whether all cells are there, all succeeded, all accuracies are
equal, bit for bit, all logs show lines, a cancel and a retry by the host came through.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "dev" / "everywhere.md"
SUMMARY = ROOT / "docs" / "explanation" / "compatibility.md"
BEGIN, END = "<!-- table: nox -s everywhere -- --write -->", "<!-- end of the table -->"
COLUMNS = (
    "host",
    "engine",
    "handle",
    "state",
    "said",
    "accuracy",
    "lines",
    "cancel",
    "retry",
    "waiter",
    "seconds",
)
LIMIT_S = 900
GRACE_S = 60


@contextlib.contextmanager
def started(
    python: str, pythons: list[str], only: Iterable[str] = ()
) -> Iterator[dict[str, dict[str, Any]]]:
    """Have the engines started, all or only these; give what ``engines_up.py`` says of them."""
    folder = tempfile.mkdtemp(prefix="tl-", dir="/tmp")
    command = [python, str(HERE / "engines_up.py"), folder, *pythons]
    environment = os.environ | {"EVERYWHERE_ONLY": " ".join(only)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as starter:
        try:
            assert starter.stdout is not None
            said = starter.stdout.readline()
            if not said:
                raise SystemExit(f"the engines did not start: exit {starter.wait(GRACE_S)}")
            yield json.loads(said)
        finally:
            starter.communicate(timeout=GRACE_S)
            shutil.rmtree(folder, ignore_errors=True)


def chosen(hosts: list[str], engines: list[str]) -> list[tuple[str, list[str]]]:
    """Return hosts, each with one engine, so that each host and each engine is met."""
    count = max(len(hosts), len(engines))
    return [(hosts[k % len(hosts)], [engines[k % len(engines)]]) for k in range(count)]


def run(
    host: str, before: list[str], python: str, environment: dict[str, str]
) -> tuple[list[dict[str, Any]], str]:
    """Return the cells of a host, and what went wrong, if anything did."""
    home = tempfile.mkdtemp(prefix="tl-", dir="/tmp")
    try:
        command = [*before, python, str(HERE / f"run_{host}.py")]
        code, out, errors = _finished(command, environment | {"TRANSLOAD_HOME": home})
        cells = [json.loads(line) for line in out.splitlines() if line.startswith('{"host"')]
        return cells, f"{host}: exit {code}\n{out[-3000:]}\n{errors[-12000:]}" if code else ""
    except (subprocess.TimeoutExpired, ValueError) as exc:
        return [], f"{host}: {type(exc).__name__}: {exc}"
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _finished(command: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it wrote. One that takes too long may first stop
    its servers.
    """
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


def as_asked(cell: dict[str, Any]) -> bool:
    """Return whether the job that the host cancelled is CANCELLED, and the failing one was tried
    twice, where it is.
    """
    return cell["cancel"] == "CANCELLED" and (
        cell["retry"].startswith("–") or cell["retry"] == "2 FAILED"
    )


def render(rows: list[dict[str, Any]]) -> str:
    """Return the cells as a Markdown table, a line each."""
    cells = [["–" if row[name] is None else str(row[name]) for name in COLUMNS] for row in rows]
    table = [list(COLUMNS), *cells]
    widths = [max(len(line[column]) for line in table) for column in range(len(COLUMNS))]
    lines = [
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        + " |"
        for line in table
    ]
    return "\n".join(
        [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]
    )


def summary(rows: list[dict[str, Any]], today: str) -> str:
    """Return the accuracies alone: a line for each host, a column for each engine."""
    hosts, engines = (list(dict.fromkeys(row[name] for row in rows)) for name in ("host", "engine"))
    found = {(row["host"], row["engine"]): f"{row['accuracy']:.6f}" for row in rows}
    lines = [
        [f"accuracy, {today}", *(f"`{engine}`" for engine in engines)],
        ["---"] * (len(engines) + 1),
    ]
    lines += [[host, *(found.get((host, engine), "–") for engine in engines)] for host in hosts]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(rows: list[dict[str, Any]], left_out: dict[str, str]) -> None:
    """Put the table into its page, and the accuracies into docs/explanation/compatibility.md, between their marks, with
    today's date.
    """
    today = str(dt.datetime.now(dt.UTC).date())
    missing = "".join(f"\n- not run: {engine}: {why}" for engine, why in left_out.items())
    for page, text in (
        (PAGE, f"Made on {today}:\n\n{render(rows)}\n{missing}\n"),
        (SUMMARY, f"{summary(rows, today)}\n\n"),
    ):
        before, _, rest = page.read_text().partition(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")


def main(arguments: list[str]) -> int:
    """Run what the arguments name; return the exit status."""
    option = arguments.pop(0) if arguments[0].startswith("--") else ""
    if option not in ("", "--all", "--write"):
        raise SystemExit(f"{option}: the options are --all and --write")
    starter, *hosts = arguments
    pythons = dict(each.split("=", 1) for each in hosts)
    cells, troubles = [], []
    with started(starter, list(pythons.values())) as there:
        places = there["engines"]
        rows = [(host, list(places)) for host in pythons]
        if not option:
            rows = chosen(list(pythons), list(places))
        environment = {**os.environ, **there["environment"]}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        here = str(ROOT / "examples" / "everywhere")
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [here, os.environ.get("PYTHONPATH")])
        )
        for host, engines in rows:
            # those that are used from one place together
            for place in {
                json.dumps(places[engine]): places[engine] for engine in engines
            }.values():
                same = [engine for engine in engines if places[engine] == place]
                before, leads = place
                print(f"{host} on {', '.join(same)} …", file=sys.stderr, flush=True)
                more = {**leads, "EVERYWHERE_ENGINES": " ".join(same)}
                found, trouble = run(host, before, pythons[host], environment | more)
                cells += found
                troubles += [trouble] if trouble else []
    print(render(cells))
    for engine, why in there["left_out"].items():
        print(f"not run: {engine}: {why}")
    for trouble in troubles:
        print(f"\n{trouble}", file=sys.stderr)
    wanted = sum(len(engines) for _, engines in rows)
    if not wanted:
        return 0
    good = [cell for cell in cells if cell["state"] == "SUCCEEDED"]
    silent = [f"{cell['host']} on {cell['engine']}" for cell in cells if cell["lines"] == 0]
    unlike = [f"{cell['host']} on {cell['engine']}" for cell in cells if not as_asked(cell)]
    accuracies = {cell["accuracy"] for cell in good}
    if len(good) < wanted or len(accuracies) != 1 or silent or unlike:
        print(
            f"not the same everywhere: {len(good)} of {wanted}; accuracies {sorted(accuracies)}; "
            f"no lines: {silent};"
        )
        print(f"cancel or retry not as asked: {unlike}")
        return 1
    if option == "--write":
        write(cells, there["left_out"])
    print(f"the same accuracy {accuracies.pop()} in {len(good)} of {wanted}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
