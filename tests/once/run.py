"""Plays one host on some engines, and prints a line of JSON for each cell: what `nox -s once` runs in each environment.

python run.py HOST ENGINES KILLS SEED
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile

import harness


def main(host: str, engines: list[str], kills: int, first: int) -> int:
    """Play the cells; return 1 if anything was wrong."""
    bad = 0
    for engine in engines:
        with tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp") as home:
            os.environ["TRANSLOAD_HOME"] = home
            cases, wrong = harness.cell(host, engine, range(first, first + kills), at_once=10)
        count = {name: sum(getattr(case, name) for case in cases) for name in ("left", "lost", "repeated")}
        row = {
            "host": host,
            "engine": engine,
            "kills": kills,
            "first_seed": first,
            "second_jobs": sum(max(0, case.births - 1) for case in cases),
            "never_ran": sum(case.births == 0 for case in cases),
            "no_results": sum(not case.results for case in cases),
            "wrong_cases": len({line.partition(":")[0] for line in wrong}),
            **count,
            "seconds_median": round(statistics.median(case.seconds for case in cases), 1),
        }
        print(json.dumps(row), flush=True)
        for line in wrong:
            print(f"{host} on {engine}: {line}", file=sys.stderr, flush=True)
        bad += bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4])))
