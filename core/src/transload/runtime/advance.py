"""Report in one line how far the program is, without ever ending the program that calls it."""

from __future__ import annotations

import atexit
import math
import os
import threading
import time

__all__ = ["ENV_PROGRESS_FILE", "check_numbers", "progress"]

ENV_PROGRESS_FILE = "TRANSLOAD_PROGRESS_FILE"
"""The variable that names the file of this replica's progress."""

_PAUSE_S = 1.0
"""Seconds between two writes."""

_LONGEST_TEXT = 200


def progress(
    step: float | None = None,
    total: float | None = None,
    fraction: float | None = None,
    text: str | None = None,
) -> None:
    """Report the progress of this process's job. Values that are not given are unknown from now on.

    It never raises. A value that makes no sense is left out with a warning in the log, and so is
    one that cannot be written. It may be called at each step, since at most one update a second is
    written. The last one is written when the program ends. Outside of a job nothing happens. Of the
    processes that torchrun starts in a replica only the first reports.

    Args:
        step: number of the step that it is at, 0 or more.
        total: number of steps in all, above 0.
        fraction: part of the work that is done, 0 to 1. By default it follows from ``step`` and
            ``total``.
        text: a few words beside that, such as ``epoch 3``.
    """
    try:
        writer = _of_this_process()
        if writer is not None:
            writer.add(step, total, fraction, text)
    except Exception as exc:
        _warn(f"progress was not reported: {exc}")


def check_numbers(
    step: object = None, total: object = None, fraction: object = None
) -> tuple[dict[str, float], list[str]]:
    """Return the numbers that make sense, by name, and a line for each that makes none.

    Args:
        step: 0 or more.
        total: above 0.
        fraction: 0 to 1.
    """
    given = {"step": step, "total": total, "fraction": fraction}
    values: dict[str, float] = {}
    wrong = []
    for name, value in given.items():
        if value is None:
            continue
        number = _as_number(value)
        if number is None:
            wrong.append(f"{name}={value!r}: must be a finite number")
        elif name == "step" and number < 0:
            wrong.append(f"step={value!r}: must be 0 or more")
        elif name == "total" and number <= 0:
            wrong.append(f"total={value!r}: must be above 0")
        elif name == "fraction" and not 0 <= number <= 1:
            wrong.append(f"fraction={value!r}: must be 0 to 1")
        else:
            values[name] = number
    return values, wrong


def _as_number(value: object) -> float | None:
    """Return a finite number, also one of numpy or torch, or None for anything else."""
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, int):
        return value
    if not math.isfinite(number):
        return None
    if number.is_integer():
        return int(number)
    return number


class ProgressWriter:
    """Writes the progress of a process to a file, whole and not too often.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self._path = path
        self._text = ""  # what is to be written
        self._written = ""
        self._due = 0.0
        self._lock = threading.Lock()

    def add(self, step: object, total: object, fraction: object, text: object) -> None:
        """Take a report, and write it if it is time to.

        Raises:
            OSError: if it cannot be written.
        """
        values, wrong = check_numbers(step, total, fraction)
        for line in wrong:
            _warn(f"progress: {line}; it is left out")
        said = None
        if isinstance(text, str):
            said = " ".join(text.split())[:_LONGEST_TEXT]
        with self._lock:
            self._text = _line(values, said)
            if time.monotonic() >= self._due:
                self._write()

    def flush(self) -> None:
        """Write what waits, and warn of what cannot be written."""
        with self._lock:
            try:
                self._write()
            except OSError as exc:
                _warn(f"progress was not reported: {exc}")

    def _write(self) -> None:
        if self._text == self._written:
            return
        # noted before the write, so that one that fails is not tried again at each step
        self._due = time.monotonic() + _PAUSE_S
        self._written = self._text
        aside = f"{self._path}.{self.pid}"
        try:
            with open(aside, "w", encoding="utf-8", errors="replace") as file:
                file.write(self._text)
            os.replace(aside, self._path)
        except OSError:
            _remove(aside)
            raise


def _line(values: dict[str, float], text: str | None) -> str:
    import json

    found: dict[str, object] = {**values}
    if text:
        found["text"] = text
    return json.dumps(found) + "\n"


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it was never made


_made: ProgressWriter | None = None
_warned: set[str] = set()


def _of_this_process() -> ProgressWriter | None:
    global _made
    path = os.environ.get(ENV_PROGRESS_FILE)
    if not path or os.environ.get("LOCAL_RANK", "0") != "0":
        return None
    if _made is None or _made.pid != os.getpid():
        _made = ProgressWriter(path)
        atexit.register(_made.flush)
    return _made


def _warn(message: str) -> None:
    if message in _warned or len(_warned) >= 1000:
        return
    _warned.add(message)
    import logging  # costs as much as all the rest

    logging.getLogger("transload.runtime").warning("%s", message)
