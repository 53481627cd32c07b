"""Run every benchmark of the core and write docs/benchmarks.json and the table in docs/benchmarks.md.

Usage: python benchmarks/run_all.py [NAME ...]      (default: all of `SCRIPTS`; others keep their last figures)

It needs an environment with transload and torchx==0.7.0 installed: `nox -s benchmarks` makes one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
SCRIPTS = ["imports", "command_line", "local_jobs", "logs", "tracker", "poller", "log_forwarding"]
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def number(value: object) -> str:
    """Return a figure with three significant digits."""
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(found: dict[str, dict]) -> str:
    """Return the rows of all scripts as a Markdown table, and what else each script printed."""
    lines = ["| figure | unit | transload | TorchX 0.7.0, or the bare way | ratio | target | met |"]
    lines.append("|---|---|---|---|---|---|---|")
    notes = []
    for name, data in found.items():
        for row in data.get("rows", []):
            sign = "≤" if row["better"] == "lower" else "≥"
            cells = [row["figure"], row["unit"], number(row["transload"]), number(row["peer"]), number(row["ratio"])]
            lines.append(f"| {' | '.join(cells)} | {sign} {number(row['target'])} | {'yes' if row['met'] else 'no'} |")
        more = {key: value for key, value in data.items() if key not in ("rows", "machine")}
        if more:
            notes.append(f"- `{name}`: `{json.dumps(more)}`")
    return "\n".join([*lines, "", *notes])


def main(names: list[str]) -> None:
    """Run the scripts, keep what they print, write the page."""
    store = DOCS / "benchmarks.json"
    found = json.loads(store.read_text()) if store.exists() else {}
    for name in names or SCRIPTS:
        print(f"{name} …", file=sys.stderr, flush=True)
        command = [sys.executable, str(HERE / f"{name}.py")]
        found[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    store.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    page = DOCS / "benchmarks.md"
    text = page.read_text()
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    page.write_text(f"{head}\n{table(found)}\n{tail}")


if __name__ == "__main__":
    main(sys.argv[1:])
