"""The job of a load: it sleeps, and reports its number."""

from __future__ import annotations

from transload.specs import AppDef, Resource, Role

SLEEP_S = 20
SCRIPT = (
    '[ -z "$3" ] || flock -s "$3" true; sleep "$2"; mkdir -p "$TRANSLOAD_TRACKER_BASE"; cd '
    '"$TRANSLOAD_TRACKER_BASE"; '
    'printf \'{"schema": 1, "key": "0", "results": {"number": %s}}\' "$1" > .new; mv .new 0.json'
)


def unit(number: float, gate: str = "") -> AppDef:
    """Sleep and report.

    Args:
        number: what is reported
        gate: a file that is locked until all units are there, which is waited for
    """
    words = ["-c", SCRIPT, "sh", str(number), str(SLEEP_S), gate]
    # without it a job takes a whole node of Slurm
    return AppDef(
        "unit", [Role("main", "", entrypoint="sh", args=words, resource=Resource(1, 0, 100))]
    )
