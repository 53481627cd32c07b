"""Plays a host on an engine, its process struck, and prints a line of JSON; `count.py` runs it.

python run.py HOST ENGINE KILLS SEED
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile

import harness

PART = 50
"""So many kills are counted in one line."""


def main(host: str, engine: str, kills: int, first: int) -> int:
    """Play the cell; return 1 if anything was wrong."""
    bad = False
    with tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp") as home:
        os.environ["TRANSLOAD_HOME"] = home
        for begin in range(first, first + kills, PART):
            seeds = range(begin, min(begin + PART, first + kills))
            cases, wrong = harness.cell(host, engine, seeds, at_once=8)
            row = harness.row_of(
                host, engine, "transload", "process", cases, harness.made_by(host)[1]
            )
            print(
                json.dumps(row | {"first_seed": seeds.start, "next_seed": seeds.stop}), flush=True
            )
            for line in wrong:
                print(f"{host} on {engine}: {line}", file=sys.stderr, flush=True)
            bad |= bool(wrong)
    return int(bad)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    raise SystemExit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
