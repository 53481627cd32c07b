"""Components that launchers run, found by their import path."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from transload.specs import AppDef, Resource, Role

REPORT = """mkdir -p "$TRANSLOAD_TRACKER_BASE"
printf '{"schema": 1, "results": {"who": "%s", "size": %s}}' "$1" "$2" > "$TRANSLOAD_TRACKER_BASE/$1.json"
echo "I am $1"
"""


def group(
    image: str,
    replicas: int = 2,
    cpu: float = 0.1,
    words: list[str] | None = None,
    parent_run_id: str = "",
) -> AppDef:
    """Run two roles.

    Args:
        image: where
        replicas: of each role
        cpu: cores of each replica
        words: what they are called
        parent_run_id: what they come from
    """
    names = words or ["left", "right"]
    size = str(replicas)
    return AppDef(
        "group",
        [
            Role(
                name,
                image,
                entrypoint="sh",
                args=["-c", REPORT, "x", f"{name}-${{replica_id}}", size],
                num_replicas=replicas,
                resource=Resource(cpu, 0, 64),
            )
            for name in names
        ],
    )


def decide(image: str, cpu: float) -> AppDef:
    """Report where the next job runs, and how large it is.

    Args:
        image: of the next
        cpu: cores of the next
    """
    text = """mkdir -p "$TRANSLOAD_TRACKER_BASE"
printf '{"schema": 1, "results": {"image": "%s", "cpu": %s}}' "$1" "$2" > "$TRANSLOAD_TRACKER_BASE/next.json"
"""
    return AppDef(
        "decide", [Role("main", "/tmp", entrypoint="sh", args=["-c", text, "x", image, str(cpu)])]
    )


def waiting(folder: str, image: str = "/tmp", seconds: int = 600) -> AppDef:
    """Say that it has started, and wait to be ended.

    Args:
        folder: where it says so
        image: where it runs
        seconds: how long at most
    """
    text = f'echo run >> "{folder}/starts"; echo started; exec sleep {seconds}'
    return AppDef("waiting", [Role("main", image, entrypoint="sh", args=["-c", text])])


def once(folder: str, image: str = "/tmp") -> AppDef:
    """Count how often it is started, wait for a file, and end well.

    Args:
        folder: where it counts and looks
        image: where it runs
    """
    text = (
        f'echo run >> "{folder}/starts"; while [ ! -e "{folder}/go" ]; do sleep 0.1; done; '
        "mkdir -p $TRANSLOAD_TRACKER_BASE; "
        """printf '{"schema": 1, "results": {"done": 1}}' > $TRANSLOAD_TRACKER_BASE/all.json"""
    )
    return AppDef("once", [Role("main", image, entrypoint="sh", args=["-c", text])])


def failing(code: int = 3) -> AppDef:
    """Fail.

    Args:
        code: exit code
    """
    return AppDef(
        "failing",
        [Role("main", "/tmp", entrypoint="sh", args=["-c", f"echo last words >&2; exit {code}"])],
    )


class Mode(Enum):
    """How something is done."""

    FAST = "quick"


def odd_names(
    place: str = "a",
    given: str = "b",
    found: str = "c",
    mode: Mode = Mode.FAST,
    path: Path = Path("/p"),
) -> AppDef:
    """Say what it got.

    Args:
        place: a text
        given: a text
        found: a text
        mode: a choice
        path: a path
    """
    text = f"echo got {place} {given} {found} {mode.value} {path}"
    return AppDef("class", [Role("main", "/tmp", entrypoint="sh", args=["-c", text])])


def reporting(folder: str) -> AppDef:
    """Report what a file says.

    Args:
        folder: where it is
    """
    text = f'mkdir -p "$TRANSLOAD_TRACKER_BASE"; cp "{folder}/report.json" "$TRANSLOAD_TRACKER_BASE/all.json"'
    return AppDef("reporting", [Role("main", "/tmp", entrypoint="sh", args=["-c", text])])


def odd_bytes(folder: str) -> AppDef:
    """Write a file, a line and results that are no UTF-8, or that no database takes.

    Args:
        folder: nothing
    """
    text = r"""printf 'a\377b\n'; mkdir -p "$TRANSLOAD_TRACKER_BASE" "$TRANSLOAD_OUTPUT_DIR"
touch "$TRANSLOAD_OUTPUT_DIR/$(printf 'a\377\nb')"
printf '%s' '{"schema": 1, "results": {"text": "a\u0000c", "n": 1}}' > "$TRANSLOAD_TRACKER_BASE/all.json"
"""
    return AppDef("odd", [Role("main", "/tmp", entrypoint="bash", args=["-c", text])])
