"""Components that the tests run, as programs that report, wait for a file, talk, or fail."""

from __future__ import annotations

import sys

from transload.specs import AppDef, Notice, Role

_PROGRAM = """
import json, os, sys, time
value, gate, lines, code = float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
replica = os.environ["TRANSLOAD_REPLICA_ID"]
for n in range(lines):
    print(f"line {n}.", flush=True)
print("to stderr", file=sys.stderr, flush=True)
while gate and not os.path.exists(gate):
    time.sleep(0.02)
if lines:
    print(f"line {lines}.", flush=True)
base = os.environ.get("TRANSLOAD_TRACKER_BASE")
if base and replica == "0" and not code:
    path = os.path.join(base, os.environ["TRANSLOAD_ROLE"] + ".json")
    os.makedirs(base, exist_ok=True)
    with open(path + ".tmp", "w") as file:
        json.dump({"schema": 1, "key": os.environ["TRANSLOAD_ROLE"], "results": {"value": value}}, file)
    os.rename(path + ".tmp", path)
sys.exit(code)
"""


def job(
    value: float = 1.0,
    gate: str = "",
    lines: int = 0,
    code: int = 0,
    replicas: int = 1,
    roles: int = 1,
    name: str = "job",
) -> AppDef:
    """Report a value, after a file exists.

    Args:
        value: what to report
        gate: file to wait for, if any
        lines: how many lines to print first
        code: exit status
        replicas: replicas of each role
        roles: how many roles
        name: of the app
    """
    args = ["-c", _PROGRAM, str(value), gate, str(lines), str(code)]
    names = ["main", "other", "third"][:roles]
    return AppDef(
        name,
        [
            Role(each, "", entrypoint=sys.executable, args=args, num_replicas=replicas)
            for each in names
        ],
    )


_QUADRATIC = """
import json, os, sys, time
x, offset, gate, least = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], float(sys.argv[4])
while gate and not os.path.exists(gate):
    time.sleep(0.02)
if x < least:
    sys.exit(5)
base = os.environ["TRANSLOAD_TRACKER_BASE"]
os.makedirs(base, exist_ok=True)
path = os.path.join(base, "0.json")
with open(path + ".tmp", "w") as file:
    json.dump({"schema": 1, "key": "0", "results": {"loss": x ** 2 + offset}}, file)
os.rename(path + ".tmp", path)
"""


def quadratic(x: float, offset: float = 0.0, gate: str = "", least: float = -10.0) -> AppDef:
    """Report the square of a number as ``loss``.

    Args:
        x: the number
        offset: what is added
        gate: file to wait for, if any
        least: fail for a smaller number
    """
    args = ["-c", _QUADRATIC, str(x), str(offset), gate, str(least)]
    return AppDef("quadratic", [Role("main", "", entrypoint=sys.executable, args=args)])


_ARTIFACT = """
import sys
from transload.tracker import AppRun
run = AppRun.run_from_env()
run.add_artifact("model", sys.argv[1], {"step": 7})
run.add_artifact("odd", "no uri at all?", {})
"""


def artifact(path: str) -> AppDef:
    """Note an artifact at the trackers.

    Args:
        path: of the artifact
    """
    return AppDef(
        "artifact", [Role("main", "", entrypoint=sys.executable, args=["-c", _ARTIFACT, path])]
    )


_TRAINING = """
cd "$TRANSLOAD_CHECKPOINT_DIR" || exit 4
at=$(cat at 2> /dev/null || echo 0)
echo "from step $at."
say() {
    printf '{"step": %s, "total": 1000, "eta_seconds": 7200}\\n' $1 > "$TRANSLOAD_PROGRESS_FILE.new"
    mv "$TRANSLOAD_PROGRESS_FILE.new" "$TRANSLOAD_PROGRESS_FILE"
}
case $at in
0)
    say 400
    trap 'echo 400 > at; exit 75' TERM
    while :; do sleep 0.05; done ;;
400)
    echo 600 > at
    say 600
    exit 1 ;;
*)
    say 1000 ;;
esac
"""


def training() -> AppDef:
    """Train until a segment's notice, then until a failure, then to the end, from checkpoints."""
    role = Role(
        "main",
        "",
        entrypoint="sh",
        args=["-c", _TRAINING],
        checkpoints=True,
        notice=Notice(seconds=1),
    )
    return AppDef("training", [role], segment=3, timeout=600)


def second_time_lucky() -> AppDef:
    """Fail unless there is a checkpoint, and leave one."""
    script = 'cd "$TRANSLOAD_CHECKPOINT_DIR" || exit 4; [ -e at ] && exit 0; echo > at; exit 1'
    role = Role("main", "", entrypoint="sh", args=["-c", script], checkpoints=True)
    return AppDef("lucky", [role])


def stepping(x: float, trial_idx: int, tracker_base: str) -> AppDef:
    """Report two steps, then the result. The fifth trial is worse than the others, and never ends.

    Args:
        x: nothing
        trial_idx: its number
        tracker_base: where it reports
    """
    loss = 104 if trial_idx == 4 else trial_idx
    script = (
        'mkdir -p "$1"; for s in 1 2; do printf \'{"schema": 1, "step": %s, "results": {"loss": %s}}'
        '\\n\' $s $2 >> "$1/final.steps.jsonl"; done; test $2 = 104 && exec sleep 600; '
        'printf \'{"schema": 1, "key": "final", "results": {"loss": %s}}\' $2 > "$1/final.json"'
    )
    args = ["-c", script, "sh", tracker_base, str(loss)]
    return AppDef("stepping", [Role("main", "", entrypoint="sh", args=args)])
