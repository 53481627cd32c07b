"""Components for the DAGs of the tests."""

from __future__ import annotations

import os
import sys

from transload.specs import AppDef, Role
from transload_testing import scripted_app

HERE = os.path.dirname(os.path.abspath(__file__))


def held(number: int) -> AppDef:
    """Play a script that waits for a gate.

    Args:
        number: which of several
    """
    steps = [
        {"state": "RUNNING", "until": "go", "lines": [{"text": f"line of {number}"}]},
        {"state": "SUCCEEDED"},
    ]
    return scripted_app("held", {"steps": steps, "results": {"0": {"number": number}}})


def shout(word: str, replicas: int) -> AppDef:
    """Print a word in each replica, and report it.

    Args:
        word: what to print
        replicas: how often
    """
    code = (
        "import json, os, sys; base = os.environ['TRANSLOAD_TRACKER_BASE']; rank = "
        "os.environ['TRANSLOAD_REPLICA_ID'];"
        "print(sys.argv[1].upper(), rank);"
        "os.makedirs(base, exist_ok=True);"
        "json.dump({'schema': 1, 'key': rank, 'results': {'word': sys.argv[1]}}, "
        "open(f'{base}/{rank}.json', 'w'))"
    )
    role = Role(
        "main",
        image=HERE,
        entrypoint=sys.executable,
        args=["-c", code, word],
        num_replicas=replicas,
    )
    return AppDef("shout", [role])


def hello(word: str, times: int = 1) -> AppDef:
    """Say a word.

    Args:
        word: what to say
        times: how often
    """
    return AppDef(
        "hello", [Role("main", image="", entrypoint="echo", args=["said", *[word] * times])]
    )


def scored(x: float, gate: str, trial_idx: int = 0) -> AppDef:
    """Play a trial that reports how far ``x`` is from 3. The one with number 1 fails.

    Args:
        x: where to look
        gate: which gate trial 0 waits for, or none if empty
        trial_idx: its number
    """
    end = "FAILED" if trial_idx == 1 else "SUCCEEDED"
    steps = (
        [{"state": "RUNNING", "until": gate}] if gate and trial_idx == 0 else [{"state": "RUNNING"}]
    )
    return scripted_app(
        f"scored-{trial_idx}",
        {"steps": [*steps, end], "results": {str(trial_idx): {"far": abs(x - 3)}}},
    )


def traced(ends: int) -> AppDef:
    """Record what the run made, and end.

    Args:
        ends: its exit code
    """
    code = (
        "import sys;"
        "from transload.tracker import AppRun; run = AppRun.run_from_env();"
        "run.add_artifact('model', '/models/1.pt');"
        "from transload.runtime.tracking import FsspecResultTracker;"
        "FsspecResultTracker.from_env()['final'] = {'accuracy': 0.5}; sys.exit(int(sys.argv[1]))"
    )
    return AppDef(
        "traced",
        [Role("main", image=HERE, entrypoint=sys.executable, args=["-c", code, str(ends)])],
    )


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
