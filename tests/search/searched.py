"""Components whose trials the tests run."""

from __future__ import annotations

import inspect
import sys

from transload.specs import AppDef, Role


def square(x: float, gate: str = "", marks: str = "") -> AppDef:
    """Report ``loss = x * x`` under ``final``, once the gate is there.

    Args:
        x: value
        gate: a file to wait for
        marks: a folder that gets a file for each start
    """
    script = (
        'if [ -n "$3" ]; then : > "$3/$1-$$"; fi; while [ -n "$2" ] && [ ! -e "$2" ]; do sleep '
        "0.02; done; "
        'mkdir -p "$TRANSLOAD_TRACKER_BASE"; '
        'printf \'{"schema": 1, "key": "final", "results": {"loss": %s, "size": 3}}\' "$4" '
        '> "$TRANSLOAD_TRACKER_BASE/final.json"'
    )
    return AppDef(
        "square",
        [
            Role(
                "main",
                "",
                entrypoint="sh",
                args=["-c", script, "sh", str(x), gate, marks, str(x * x)],
            )
        ],
    )


def packaged(x: float) -> AppDef:
    """Report as ``loss`` what the package ``tiny`` says.

    Args:
        x: value
    """
    code = (
        "import json, os, tiny\n"
        "base = os.environ['TRANSLOAD_TRACKER_BASE']\n"
        "os.makedirs(base, exist_ok=True)\n"
        "body = {'schema': 1, 'key': 'final', 'results': {'loss': float(tiny.VERSION)}}\n"
        "json.dump(body, open(f'{base}/final.json', 'w'))\n"
    )
    return AppDef("packaged", [Role("main", "", entrypoint="python", args=["-c", code])])


def flaky(x: float, says_who: bool = False) -> AppDef:
    """Report a loss that nothing can beat and fail, and report ``x`` once started again.

    Args:
        x: value
        says_who: the file of results tells which attempt wrote it
    """
    script = """
    import json, os, sys
    attempt = int(os.environ["TRANSLOAD_RETRY"])
    value = float(sys.argv[1]) if attempt else -1000.0
    key = "second" if attempt else "first"
    body = {"schema": 1, "key": key, "results": {"loss": value} if attempt else {"loss": value, "better": 1}}
    if sys.argv[2] == "True":
        body["run"] = os.environ["TRANSLOAD_JOB_ID"]
        body["writer"] = {"role": "main", "replica": 0, "attempt": attempt}
    with open(os.environ["TRANSLOAD_TRACKER_BASE"] + f"/{key}.json", "w") as file:
        json.dump(body, file)
    sys.exit(attempt == 0)
    """
    args = ["-c", inspect.cleandoc(script), str(x), str(says_who)]
    role = Role("main", "", entrypoint=sys.executable, args=args, max_retries=1, retry_delay=0.1)
    return AppDef("flaky", [role])


def noted(x: float) -> AppDef:
    """Write ``loss`` to the trackers, and no result.

    Args:
        x: value
    """
    code = (
        "import sys\n"
        "from transload.tracker.api import AppRun\n"
        "AppRun.run_from_env().add_metadata(loss=float(sys.argv[1]))\n"
    )
    return AppDef("noted", [Role("main", "", entrypoint=sys.executable, args=["-c", code, str(x)])])


def failing(x: float, trial_idx: int, gate: str) -> AppDef:
    """Fail. The first trial waits for a gate before.

    Args:
        x: value
        trial_idx: number of the trial
        gate: a file to wait for
    """
    script = 'while [ "$1" = 0 ] && [ ! -e "$2" ]; do sleep 0.05; done; exit 3'
    role = Role("main", "", entrypoint="sh", args=["-c", script, "sh", str(trial_idx), gate])
    return AppDef("failing", [role])
