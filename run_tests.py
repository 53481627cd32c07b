#!/usr/bin/env python3
"""Install what the tests need, and run them.

Usage: python3 run_tests.py [arguments of nox, such as -s core, -s slow, -l, -R; after -- those of
pytest]
       python3 run_tests.py --left-out

Without arguments the sessions run two at a time, since many wait more than they compute; what one
wrote is shown when it has ended, and a table closes the run.

Nothing is installed outside .nox-bootstrap and .nox, unless the variable TRANSLOAD_REQUIRE names
engines (sshd, slurm, docker; commas between them): those are installed with the system's package
manager, and fail the run if still missing. Without it, an engine that is not here is listed at the
end as "not run", with the reason. With --left-out, just that is run which the last run left out for
want of an engine that is here now.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

from quickstart import ROOT, environment

ENGINES = [sys.executable, str(ROOT / "tests" / "engines.py")]
LEFT_OUT = ROOT / ".nox" / "left-out"
"""What each session left out for want of which engines: the suites write it, see
tests/conftest.py."""
LANES = 2
USED = (
    "airflow",
    "prefect",
    "core",
    "real_kubernetes",
    "slurm",
    "docker",
    "ax",
    "kfp",
    "kubernetes",
)
"""What the session `everywhere` begins after: their environments and the cluster are its own,
too."""
ORDER = (
    *USED,
    "everywhere",
    "mlflow",
    "docs",
    "report",
    "bare",
)  # the longest, so that the lanes end together


def main(argv: list[str]) -> int:
    """Run nox in an environment of its own; return its exit code."""
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # or every process of every test compiles everything anew
    failed = subprocess.run([*ENGINES, "install"], check=False).returncode
    if failed:
        return failed
    if argv == ["--left-out"]:
        code = left_out()
    else:
        shutil.rmtree(LEFT_OUT, ignore_errors=True)
        code = (
            subprocess.run([nox(), *argv], cwd=ROOT, check=False).returncode
            if argv
            else all_sessions()
        )
    sys.stdout.flush()
    subprocess.run([*ENGINES, "report"], check=False)
    return code


def nox() -> str:
    """Return the program nox, in an environment of its own."""
    programs = environment(ROOT / ".nox-bootstrap", "nox>=2025.2.9", "uv>=0.6")
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"  # uv, for the sessions
    return str(programs / "nox")


def all_sessions() -> int:
    """Run the sessions that nox runs by default; return the exit code of all together."""
    program = nox()
    listed = subprocess.run(
        [program, "--list", "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    return in_lanes(program, {str(each["session"]): [] for each in json.loads(listed)})


def left_out() -> int:
    """Run what the last run left out for want of an engine that is here now; return the exit
    code.
    """
    missing = runpy.run_path(ENGINES[1])["missing"]
    sessions = {}
    for file in sorted(LEFT_OUT.glob("*.json")):
        wanting = json.loads(file.read_text(encoding="utf-8"))
        ready = [name for name, engines in wanting.items() if not any(map(missing, engines))]
        if ready:
            sessions[file.stem] = _arguments(file, ready)
    if not sessions:
        print("passed: the last run left out nothing that an engine is here for")
        return 0
    return in_lanes(nox(), sessions)


def _arguments(file: Path, ready: list[str]) -> list[str]:
    """Return the arguments with which the session of this file runs these tests, or rows of the
    table.
    """
    if file.stem == "everywhere":
        return ["--engines=" + ",".join(ready)]
    names = file.with_suffix(".tests")
    names.write_text("\n".join(ready), encoding="utf-8")
    return ["@" + str(names.relative_to(ROOT))]


def in_lanes(program: str, sessions: dict[str, list[str]]) -> int:
    """Run sessions, each with its arguments, the longest first, as many at a time as there are
    lanes.
    """
    names = sorted(sessions, key=lambda name: (*ORDER, name).index(name))
    begin, rows, twice, code = time.monotonic(), [], [], 0
    lanes, running = ThreadPoolExecutor(LANES), {}
    try:
        while names or running:
            left = {*names, *running.values()}
            ready = [name for name in names if name != "everywhere" or left.isdisjoint(USED)]
            for name in ready[: LANES - len(running)]:
                names.remove(name)
                running[lanes.submit(_session, program, name, sessions[name])] = name
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(ended)
                failed, seconds, written = ended.result()
                print(f"\n{written}", end="", flush=True)
                rows.append(f"{'failed' if failed else 'passed'} {seconds:6.0f} s  {name}")
                twice += [line for line in written.splitlines() if line.startswith("RERUN ")]
                code = code or failed
    finally:
        lanes.shutdown()
    print("", *rows, f"together {time.monotonic() - begin:.0f} s", *twice, sep="\n")
    return code


def _session(program: str, name: str, arguments: list[str]) -> tuple[int, float, str]:
    """Run one session; return its exit code, how many seconds it took, what it wrote."""
    print(
        f"{name} ...\n", end="", flush=True
    )  # in one piece: another session begins in the same moment
    begin = time.monotonic()
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = [program, "-s", name, *(["--", *arguments] if arguments else [])]
    done = subprocess.run(command, cwd=ROOT, check=False, text=True, errors="replace", **pipes)
    return done.returncode, time.monotonic() - begin, done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
