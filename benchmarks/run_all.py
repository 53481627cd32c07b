"""Run benchmarks; keep what they print in docs/benchmarks.json; write docs/evidence/benchmarks.md and its
pictures from it.

Usage: python benchmarks/run_all.py [NAME ...] [--python HOST=PYTHON ...]

NAME is a script or a group (``core``, ``hosts``); default: all; ``none`` only writes page and
pictures anew. A script that is not run, or that fails, keeps its last figures. This Python needs
matplotlib, and torchx==0.7.0 for the core. Hosts cannot share an environment: ``--python
airflow=PATH`` says which Python has that one, with its plugin. `nox -f benchmarks/noxfile.py -s benchmarks` makes all of
these environments, and is the one command.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
STORE = DOCS / "benchmarks.json"
PAGE = DOCS / "evidence" / "benchmarks.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
LIMIT_S = 3600


@dataclass(frozen=True)
class Script:
    """One script of this folder.

    Attributes:
        group: ``core`` or ``hosts``: which table and picture have its figures.
        title: what its figures are about.
        environment: whose Python runs it: ``core``, or the name of a plugin.
        engine: what it needs beyond Python packages, by its name in ``tests/engines.py``.
    """

    group: str
    title: str
    environment: str = "core"
    engine: str | None = None


SCRIPTS: Final = {
    "imports": Script("core", "start"),
    "command_line": Script("core", "command line"),
    "local_jobs": Script("core", "local jobs"),
    "logs": Script("core", "logs"),
    "tracker": Script("core", "tracking"),
    "poller": Script("core", "waiting", "testing"),
    "log_forwarding": Script("core", "logs in a host"),
    "environments": Script("core", "packages", "testing"),
    "airflow": Script("hosts", "Airflow", "airflow"),
    "kfp": Script("hosts", "KFP", "kfp"),
    "prefect_flow": Script("hosts", "Prefect", "prefect"),
    "ax": Script("hosts", "Ax", "ax"),
    "docker_engine": Script("hosts", "Docker", "docker", "docker"),
    "slurm": Script("hosts", "Slurm", "slurm", "slurm"),
    "kubernetes_cluster": Script("hosts", "Kubernetes (simulated)", "kubernetes"),
}
GROUPS: Final = {"core": "The core", "hosts": "Workflow hosts and engines"}
CHOSEN: Final = {
    "command_line": "run utils.echo, wall",
    "environments": "a script with packages, next job, CPU",
    "airflow": "task of `sleep 1`, deferrable",
    "prefect_flow": "`true` as an app, against prefect-shell",
    "kfp": "task of an app, results collected",
    "ax": "one trial, 4 at once",
    "docker_engine": "submit to SUCCEEDED seen, one replica",
    "slurm": "submit → SUCCEEDED seen, `true`",
    "kubernetes_cluster": "watching 200 jobs, requests",
}
"""The rows of the page, by script; benchmarks.json has all."""


def number(value: object) -> str:
    """Return a figure with three significant digits."""
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def figures(found: dict[str, Any], group: str) -> list[tuple[str, dict[str, Any]]]:
    """Return ``(title, row)`` of every figure of a group, in the order of `SCRIPTS`."""
    scripts = [(name, script.title) for name, script in SCRIPTS.items() if script.group == group]
    return [(title, row) for name, title in scripts for row in found.get(name, {}).get("rows", [])]


def tables(found: dict[str, Any]) -> str:
    """Return the rows that help to choose as a table, then a picture of all figures for each
    group.
    """
    lines = [
        "| where | what | transload | the other way | ratio | when; load |",
        "|---|---|---|---|---|---|",
    ]
    for name, figure in CHOSEN.items():
        data = found[name]
        row = next(each for each in data["rows"] if each["figure"] == figure)
        values = [f"{number(row[key])} {row['unit']}" for key in ("transload", "peer")]
        when = f"{data['machine'].get('date', 'not noted')}; {data['machine'].get('load', 'not noted')}"
        cells = [
            SCRIPTS[name].title,
            figure,
            values[0],
            f"{values[1]}: {data['peer']}",
            number(row["ratio"]),
            when,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    words = "What transload needs of what the other way needs, for each figure, with its target"
    pictures = [
        f"### {title}\n\n![{words}](../images/benchmarks-{group}.svg)"
        for group, title in GROUPS.items()
    ]
    return "\n\n".join(["\n".join(lines), "## All figures", *pictures])


def page(found: dict[str, Any], text: str) -> str:
    """Return the page with its tables written anew.

    Args:
        found: what docs/benchmarks.json holds.
        text: the page as it is.
    """
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    return f"{head}\n{tables(found)}\n{tail}"


def missing(script: Script) -> tuple[str | None, bool]:
    """Return why a script cannot run here, or None, and whether that is a failure:
    ``TRANSLOAD_REQUIRE`` names it.
    """
    spec = importlib.util.spec_from_file_location("engines", HERE.parent / "tests" / "engines.py")
    assert spec is not None and spec.loader is not None
    engines = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = engines
    spec.loader.exec_module(engines)
    why = engines.missing(script.engine) if script.engine else None
    return why, script.engine in engines.required()


def run(name: str, python: str) -> dict[str, Any] | None:
    """Run a script; return what it printed, or None if it failed."""
    path = os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath)))
    command = [python, str(HERE / f"{name}.py")]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            check=True,
            timeout=LIMIT_S,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None
    return found


def main(arguments: list[str]) -> int:
    """Run the scripts, keep what they print, write the page; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--python", action="append", default=[], metavar="HOST=PYTHON")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in (*SCRIPTS, *GROUPS, "none")]
    if unknown:
        parser.error(
            f"unknown: {', '.join(unknown)}; known: {', '.join([*SCRIPTS, *GROUPS, 'none'])}"
        )
    pythons = {"core": sys.executable, **dict(each.split("=", 1) for each in options.python)}
    wanted = options.names or list(GROUPS)
    chosen = [name for name, script in SCRIPTS.items() if name in wanted or script.group in wanted]
    found = json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}
    failed = []
    for name in chosen:
        script = SCRIPTS[name]
        why, fatal = missing(script)
        if why is not None:
            print(f"{name}: not run: {why}", file=sys.stderr)
            failed += [name] if fatal else []
            continue
        print(f"{name} …", file=sys.stderr, flush=True)
        printed = run(name, pythons.get(script.environment, sys.executable))
        if printed is None:
            failed.append(name)
            continue
        found[name] = printed
        ordered = {each: found[each] for each in SCRIPTS if each in found}
        STORE.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(found, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    subprocess.run([sys.executable, str(DOCS / "make_plots.py")], check=True)
    if failed:
        print(f"failed, so the last figures stay: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
