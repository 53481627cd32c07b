"""Two jobs of a chain, components and program in one: *plan* decides how large *count* is. No host
is known here.

``plan`` writes numbers to a file and says how many replicas are worth their while; each replica of
``count`` adds up its share. Both are recorded as runs: the file as an artifact of the one, the one
as the source of the other. That takes no line here: whoever launches *count* says what it comes
from (``parent_run_id``), and its run has that as its source.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from transload.specs import AppDef, Role, macros

ROWS_PER_REPLICA = 1000


def plan(folder: str, rows: int = 3000) -> AppDef:
    """Write numbers to a file, and decide how many replicas shall add them up.

    Args:
        folder: where to write
        rows: how many numbers
    """
    return _job("plan", ["--folder", folder, "--rows", str(rows)])


def count(numbers: str, replicas: int) -> AppDef:
    """Add numbers up, a share in each replica.

    Args:
        numbers: the file
        replicas: how many share the work
    """
    arguments = ["--numbers", numbers, "--rank", macros.replica_id, "--replicas", str(replicas)]
    return _job("count", arguments, replicas)


def _job(name: str, arguments: list[str], replicas: int = 1) -> AppDef:
    here = Path(__file__).resolve()
    role = Role(
        name,
        image=str(here.parent),
        entrypoint=sys.executable,
        args=[str(here), name, *arguments],
        num_replicas=replicas,
    )
    return AppDef(name, [role])


def main() -> None:
    """Be one of the two."""
    from transload.runtime.tracking import FsspecResultTracker
    from transload.tracker import AppRun

    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["plan", "count"])
    for name, kind in (
        ("folder", str),
        ("rows", int),
        ("numbers", str),
        ("rank", int),
        ("replicas", int),
    ):
        parser.add_argument(f"--{name}", type=kind)
    given = parser.parse_args()
    results, run = FsspecResultTracker.from_env(), AppRun.run_from_env()
    if given.job == "plan":
        path = Path(given.folder).resolve() / "numbers.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(str, range(given.rows))))
        run.add_artifact("numbers", str(path), {"rows": given.rows})
        results["plan"] = {"numbers": str(path), "replicas": -(-given.rows // ROWS_PER_REPLICA)}
        return
    share = [int(line) for line in Path(given.numbers).read_text().split()][
        given.rank :: given.replicas
    ]
    run.add_metadata(replicas=given.replicas)
    results[given.rank] = {"sum": sum(share)}
    print(f"{len(share)} numbers")


if __name__ == "__main__":
    main()
