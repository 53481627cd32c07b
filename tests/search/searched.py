"""Components whose trials the tests run."""

from __future__ import annotations

from transload.specs import AppDef, Role


def square(x: float, gate: str = "", marks: str = "") -> AppDef:
    """Report ``loss = x * x`` under ``final``, once the gate is there.

    Args:
        x: value
        gate: a file to wait for
        marks: a folder that gets a file for each start
    """
    script = (
        'if [ -n "$3" ]; then : > "$3/$1-$$"; fi; while [ -n "$2" ] && [ ! -e "$2" ]; do sleep 0.02; done; '
        'mkdir -p "$TRANSLOAD_TRACKER_BASE"; '
        'printf \'{"schema": 1, "key": "final", "results": {"loss": %s, "size": 3}}\' "$4" '
        '> "$TRANSLOAD_TRACKER_BASE/final.json"'
    )
    return AppDef(
        "square", [Role("main", "", entrypoint="sh", args=["-c", script, "sh", str(x), gate, marks, str(x * x)])]
    )
