"""Components for the DAGs of the tests."""

from __future__ import annotations

import os
import sys

from transload.specs import AppDef, Role
from transload.testing import scripted_app

HERE = os.path.dirname(os.path.abspath(__file__))


def held(number: int) -> AppDef:
    """Play a script that waits for a gate.

    Args:
        number: which of several
    """
    steps = [{"state": "RUNNING", "until": "go", "lines": [{"text": f"line of {number}"}]}, {"state": "SUCCEEDED"}]
    return scripted_app("held", {"steps": steps, "results": {"0": {"number": number}}})


def shout(word: str, replicas: int) -> AppDef:
    """Print a word in each replica, and report it.

    Args:
        word: what to print
        replicas: how often
    """
    code = (
        "import json, os, sys; base = os.environ['TRANSLOAD_TRACKER_BASE']; rank = os.environ['TRANSLOAD_REPLICA_ID'];"
        "print(sys.argv[1].upper(), rank);"
        "os.makedirs(base, exist_ok=True);"
        "json.dump({'schema': 1, 'key': rank, 'results': {'word': sys.argv[1]}}, open(f'{base}/{rank}.json', 'w'))"
    )
    role = Role("main", image=HERE, entrypoint=sys.executable, args=["-c", code, word], num_replicas=replicas)
    return AppDef("shout", [role])
