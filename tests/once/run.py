"""Plays a host on an engine, its process struck, and prints a line of JSON; `nox -s once` runs it.

python run.py HOST ENGINE KILLS SEED
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import harness


def main(host: str, engine: str, kills: int, first: int) -> int:
    """Play the cell; return 1 if anything was wrong."""
    with tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp") as home:
        os.environ["TRANSLOAD_HOME"] = home
        cases, wrong = harness.cell(host, engine, range(first, first + kills), at_once=10)
    _, success = harness.made_by(host)
    tool = host if host in harness.rivals() else "transload"
    row = harness.row_of(host, engine, tool, "process", cases, success)
    print(json.dumps(row | {"first_seed": first, "next_seed": first + kills}), flush=True)
    for line in wrong:
        print(f"{host} on {engine}: {line}", file=sys.stderr, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
