"""Do the work of other processes in the tracking suites, which write a lot, and are killed.

Run as ``python -m transload_testing.tracking_workers SPEC``. SPEC is a JSON object with ``worker``,
``factory`` (``module:attribute`` or, for trackers, a name), ``config`` and the worker's own
parameters. It prints one JSON line.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any, Final, NoReturn

__all__ = ["PAD", "is_whole", "run_worker", "run_workers", "state"]

PAD: Final = "☃" * 300
"""Makes a value some hundred bytes long, so that a part of it can be told from the whole."""

_DEADLINE = 300.0


def state(number: int, writer: int = 0) -> dict[str, int | str]:
    """Return a value that shows whether it is whole.

    What it says twice agrees, and the padding is all there.
    """
    return {"n": number, "writer": writer, "pad": PAD, "copy": number}


def is_whole(value: Mapping[str, object]) -> bool:
    """Tell whether ``value`` is one that ``state`` made."""
    return set(value) == set(state(0)) and value["n"] == value["copy"] and value["pad"] == PAD


def _factory(spec: Mapping[str, Any]) -> Callable[[str | None], Any]:
    name: str = spec["factory"]
    if ":" in name:
        factory: Callable[[str | None], Any] = resolve_name(name)
        return factory
    from transload.tracker import build_trackers

    return lambda config: build_trackers({name: config})[0]


def _open(spec: Mapping[str, Any]) -> Any:
    return _factory(spec)(spec["config"])


def _put_distinct(tracker: Any, spec: Mapping[str, Any]) -> None:
    for index in range(spec["count"]):
        tracker.put(f"{spec['writer']}/{index}", value=index)


def _put_same(tracker: Any, spec: Mapping[str, Any]) -> None:
    for index in range(spec["count"]):
        tracker.put(spec["key"], **state(index, spec["writer"]))


def _add_distinct(tracker: Any, spec: Mapping[str, Any]) -> None:
    for index in range(spec["count"]):
        tracker.add_metadata(spec["run_id"], **{f"{spec['writer']}/{index}": index})


def _add_same(tracker: Any, spec: Mapping[str, Any]) -> None:
    for index in range(spec["count"]):
        tracker.add_metadata(spec["run_id"], state=state(index, spec["writer"]))


def _put_state(tracker: Any, spec: Mapping[str, Any], number: int) -> None:
    tracker.put(spec["key"], **state(number))


def _get_state(tracker: Any, spec: Mapping[str, Any]) -> Mapping[str, object]:
    found: Mapping[str, object] = tracker.get(spec["key"])
    return found


def _add_state(tracker: Any, spec: Mapping[str, Any], number: int) -> None:
    tracker.add_metadata(spec["run_id"], state=state(number))


def _metadata_state(tracker: Any, spec: Mapping[str, Any]) -> Mapping[str, object]:
    found: Mapping[str, object] = tracker.metadata(spec["run_id"]).get("state", {})
    return found


def _write_until_killed(
    spec: Mapping[str, Any], write: Callable[..., None], first: int, report: int
) -> NoReturn:
    try:
        tracker = _open(spec)
        number = first
        while True:
            write(tracker, spec, number)
            os.write(report, b"%d\n" % number)
            number += 1
    finally:
        os._exit(1)


def _read_apart(spec: Mapping[str, Any], read: Callable[..., Any]) -> dict[str, Any]:
    """Read in a child process.

    The process that forks the writers must itself have opened nothing that a fork would break.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ours)
            with os.fdopen(theirs, "w") as answer:
                json.dump(dict(read(_open(spec), spec)), answer)
        except BaseException as exc:
            sys.stderr.write(f"reading failed: {type(exc).__name__}: {exc}\n")
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    found: dict[str, Any] = json.loads(text) if text else {"problem": "the reader raised"}
    return found


def _kill_writers(
    spec: Mapping[str, Any], write: Callable[..., None], read: Callable[..., Any]
) -> list[str]:
    """Kill a writer repeatedly, at any moment. Return what a reader then saw that it must not see.

    A writer numbers its values, and reports each one that it has written. So the value found must
    be the last one reported, or the one that was being written.
    """
    for module in spec["preload"]:
        importlib.import_module(module)
    moments = random.Random(spec["kills"])  # noqa: S311  (moments, not secrets)
    problems: list[str] = []
    last = -1
    for attempt in range(spec["kills"]):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _write_until_killed(spec, write, last + 1, theirs)
        os.close(theirs)
        with os.fdopen(ours) as reports:
            told = [reports.readline()]
            time.sleep(
                moments.uniform(0, spec["longest"])
            )  # any moment will do: nothing is waited for
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            told += reports.readlines()
        told = [line for line in told if line.endswith("\n")]
        if not told:
            return [*problems, f"kill {attempt}: the writer ended before it had written anything"]
        found = _read_apart(spec, read)
        if not is_whole(found) or found["n"] not in (int(told[-1]), int(told[-1]) + 1):
            problems.append(f"kill {attempt}: told {told[-1].strip()}, found {str(found)[:200]}")
        last = max(int(told[-1]), int(found.get("n", -1)))
    return problems


_WORKERS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], None]]] = {
    "put_distinct": _put_distinct,
    "put_same": _put_same,
    "add_distinct": _add_distinct,
    "add_same": _add_same,
}
_KILLED: Final[Mapping[str, tuple[Callable[..., None], Callable[..., Any]]]] = {
    "kill_put": (_put_state, _get_state),
    "kill_add": (_add_state, _metadata_state),
}


def _process(spec: Mapping[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "transload_testing.tracking_workers", json.dumps(spec)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_worker(spec: Mapping[str, Any]) -> Any:
    """Run one worker in a process, and return what it printed. It is ended with the test."""
    with _process(spec) as process:
        try:
            out, err = process.communicate(timeout=_DEADLINE)
        finally:
            process.kill()
    if process.returncode:
        raise AssertionError(
            f"worker {spec['worker']} ended with {process.returncode}: {err[-2000:]}"
        )
    return json.loads(out)


def run_workers(
    specs: list[dict[str, Any]], processes: bool, meanwhile: Callable[[], None] | None = None
) -> None:
    """Run workers side by side, in processes or threads, until all have ended.

    ``meanwhile`` is called at least once.
    """
    failures: list[str] = []

    def one(spec: dict[str, Any]) -> None:
        try:
            if processes:
                run_worker(spec)
            else:
                _WORKERS[spec["worker"]](_open(spec), spec)
        except BaseException as exc:  # reported by the test's own thread
            failures.append(f"{type(exc).__name__}: {exc}")

    threads = [threading.Thread(target=one, args=(spec,), daemon=True) for spec in specs]
    for thread in threads:
        thread.start()
    try:
        while meanwhile is not None:
            meanwhile()
            if not any(thread.is_alive() for thread in threads):
                break
    finally:
        for thread in threads:
            thread.join(_DEADLINE)
    if failures:
        raise AssertionError("\n".join(failures))


def main() -> None:
    """Do what the argument says."""
    spec = json.loads(sys.argv[1])
    worker = spec["worker"]
    result: object = None
    if worker in _KILLED:
        result = _kill_writers(spec, *_KILLED[worker])
    else:
        _WORKERS[worker](_open(spec), spec)
    print(json.dumps(result))  # noqa: T201  (the protocol of this program)


if __name__ == "__main__":
    main()
