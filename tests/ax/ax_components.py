"""Components whose trials the tests run, as short programs without slow imports."""

from __future__ import annotations

import sys

from transload.specs import AppDef, Role

REPORT = """
import json, os, sys
def report(key, **results):
    base = os.environ["TRANSLOAD_TRACKER_BASE"]
    os.makedirs(base, exist_ok=True)
    aside = f"{base}/.{key}.{os.getpid()}.tmp"
    with open(aside, "w") as file:
        json.dump({"schema": 1, "key": str(key), "results": results}, file)
    os.replace(aside, f"{base}/{key}.json")
"""


def _app(program: str, *args: object) -> AppDef:
    command = ["-S", "-E", "-c", REPORT + program, *map(str, args)]
    return AppDef("trial", [Role("trial", image="", entrypoint=sys.executable, args=command)])


def square(x: float, trial_idx: int, y: float = 0.0) -> AppDef:
    """Report ``loss = (x - 1)**2 + y**2``.

    Args:
        x: first
        trial_idx: key
        y: second
    """
    return _app(
        "x, y = map(float, sys.argv[2:]); report(sys.argv[1], loss=(x - 1) ** 2 + y ** 2)",
        trial_idx,
        x,
        y,
    )


def plain(x: float, name: str = "loss") -> AppDef:
    """Report ``loss = x`` as a program that knows nothing of trials.

    Args:
        x: value
        name: of the result
    """
    return _app("report('final', **{sys.argv[2]: float(sys.argv[1])})", x, name)


def costs(x: float, trial_idx: int) -> AppDef:
    """Report ``loss = x`` and ``cost = -x``.

    Args:
        x: value
        trial_idx: key
    """
    return _app("x = float(sys.argv[2]); report(sys.argv[1], loss=x, cost=-x)", trial_idx, x)


def tradeoff(x: float, y: float) -> AppDef:
    """Report ``loss``, which is least at (1, 0), ``gain``, which is greatest at (-1, 0), and ``size
    = y``.

    Args:
        x: first
        y: second
    """
    program = "x, y = map(float, sys.argv[1:]); bad = (x - 1) ** 2 + y ** 2;"
    return _app(f"{program} report('final', loss=bad, gain=-((x + 1) ** 2) - y ** 2, size=y)", x, y)


def keyword_only(x: float, *, trial_idx: int, experiment_name: str, tracker_base: str) -> AppDef:
    """Report what was passed automatically.

    Args:
        x: value
        trial_idx: key
        experiment_name: name
        tracker_base: base
    """
    program = "report(sys.argv[1], loss=float(sys.argv[2]), name=sys.argv[3], base=sys.argv[4])"
    return _app(program, trial_idx, x, experiment_name, tracker_base)


def waits(x: float, trial_idx: int, gate: str, marks: str = "") -> AppDef:
    """Report ``loss = x`` once a file is there.

    Args:
        x: value
        trial_idx: key
        gate: the file
        marks: a folder that gets a file for each start
    """
    program = """
import time
if sys.argv[4]:
    open(f"{sys.argv[4]}/{sys.argv[1]}-{os.getpid()}", "w").close()
print("waiting", flush=True)
while not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
report(sys.argv[1], loss=float(sys.argv[2]))
"""
    return _app(program, trial_idx, x, gate, marks)


def ends(x: float, trial_idx: int, how: str = "ok", forever: bool = False) -> AppDef:
    """End in a way of one's choice.

    Args:
        x: value
        trial_idx: key
        how: ok, fail, nothing, nan, infinite, text, whole, mean
        forever: never end
    """
    program = """
import time
how, x = sys.argv[3], float(sys.argv[2])
if sys.argv[4] == "True":
    time.sleep(600)
if how == "fail":
    print("that went wrong", file=sys.stderr, flush=True)
    sys.exit(3)
if how == "ok":
    report(sys.argv[1], loss=x)
if how == "nan":
    report(sys.argv[1], loss=float("nan"))
if how == "infinite":
    report(sys.argv[1], loss=float("inf"))
if how == "text":
    report(sys.argv[1], loss="low")
if how == "whole":
    report(sys.argv[1], loss=3)
if how == "mean":
    report(sys.argv[1], **{"loss/mean": x, "loss/sem": 0.5})
"""
    return _app(program, trial_idx, x, how, forever)


def curve(x: float, trial_idx: int, gate: str, steps: int = 4, marks: str = "") -> AppDef:
    """Report a learning curve, then wait until a file is there.

    Args:
        x: the value at every step
        trial_idx: key
        gate: the file
        steps: how many
        marks: a folder that gets a file for each start
    """
    program = """
import time
index, x, gate, steps = sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if sys.argv[5]:
    open(f"{sys.argv[5]}/{index}-{os.getpid()}", "w").close()
report(index, **{f"loss/{step}": x + 1 / (step + 1) for step in range(steps)})
while not os.path.exists(gate):
    time.sleep(0.01)
"""
    return _app(program, trial_idx, x, gate, steps, marks)


def reaches(x: float, trial_idx: int, gate: str) -> AppDef:
    """Say that step 40 of 100 is reached, report ``loss = x``, and wait until a file is there.

    Args:
        x: value
        trial_idx: key
        gate: the file
    """
    program = """
import time
with open(os.environ["TRANSLOAD_PROGRESS_FILE"], "a") as file:
    file.write(json.dumps({"step": 40, "total": 100}) + "\\n")
report(sys.argv[1], loss=float(sys.argv[2]))
while not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
"""
    return _app(program, trial_idx, x, gate)


def reports_steps(x: float, trial_idx: int, gate: str) -> AppDef:
    """Report a curve as steps of the job's own results, then wait until a file is there.

    Args:
        x: value
        trial_idx: key
        gate: the file
    """
    program = """
import os, sys, time
from transload import runtime
for step in (100, 1000001):
    runtime.report(step=step, loss=float(sys.argv[1]) + 1 / step)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""
    command = ["-c", program, str(x), gate]
    return AppDef("trial", [Role("trial", image="", entrypoint=sys.executable, args=command)])


def refuses(x: float, trial_idx: int) -> AppDef:
    """Refuse every call.

    Args:
        x: value
        trial_idx: key
    """
    raise ValueError(f"x={x} is not for me")


def ends_by_sign(x: float, trial_idx: int) -> AppDef:
    """Fail if ``x`` is negative, else never end.

    Args:
        x: value
        trial_idx: key
    """
    return ends(x, trial_idx, "fail", forever=x >= 0)


def fails_below_zero(x: float, trial_idx: int) -> AppDef:
    """Fail if ``x`` is negative, else report it.

    Args:
        x: value
        trial_idx: key
    """
    return ends(x, trial_idx, "fail" if x < 0 else "ok")


def _played(trial_idx: int, x: float, *steps: object) -> AppDef:
    from transload_testing.scripted import scripted_app

    return scripted_app("trial", {"steps": list(steps), "results": {str(trial_idx): {"loss": x}}})


def preempted(x: float, trial_idx: int) -> AppDef:
    """Run, wait again, run, end well.

    Args:
        x: value
        trial_idx: key
    """
    run, wait = {"state": "RUNNING", "seconds": 0.3}, {"state": "PENDING", "seconds": 0.5}
    return _played(trial_idx, x, run, wait, run, "SUCCEEDED")


def queued(x: float, trial_idx: int) -> AppDef:
    """Wait for resources, run, end well.

    Args:
        x: value
        trial_idx: key
    """
    wait = {"state": "PENDING", "seconds": 0.4}
    return _played(
        trial_idx, x, "SUBMITTED", wait, {"state": "RUNNING", "seconds": 0.3}, "SUCCEEDED"
    )


def gated(x: float, trial_idx: int) -> AppDef:
    """Wait for the gate ``start``, run until the gate ``wait``, then wait for ever.

    Args:
        x: value
        trial_idx: key
    """
    start, run = {"state": "SUBMITTED", "until": "start"}, {"state": "RUNNING", "until": "wait"}
    return _played(trial_idx, x, start, run, "PENDING")


def branin(x1: float, x2: float, trial_idx: int) -> AppDef:
    """Report Branin's function.

    Args:
        x1: first
        x2: second
        trial_idx: key
    """
    program = """
from math import cos, pi
a, b = map(float, sys.argv[2:])
value = (b - 5.1 / (4 * pi**2) * a**2 + 5 / pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * pi)) * cos(a) + 10
report(sys.argv[1], branin=value)
"""
    return _app(program, trial_idx, x1, x2)
