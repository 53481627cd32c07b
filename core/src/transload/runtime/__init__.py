"""What a program imports to report results and progress, to keep checkpoints, and to be warned.

    from transload.runtime import interrupted, latest_checkpoint, progress, report, save_checkpoint

Outside of a job nothing happens, so the same program runs by hand. This file is complete: it needs
Python 3.8 and its standard library (fsspec, where results go to a URL). A program whose Python has
no transload takes it along, by ``transload runtime > transload_runtime.py``.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import re
import sys
import threading
import time

TYPE_CHECKING = False  # importing typing would cost more than the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any, NoReturn

    Results = dict[str, "int | float | str"]

__all__ = [
    "EXIT_INTERRUPTED",
    "CheckpointError",
    "exit_interrupted",
    "interrupted",
    "latest_checkpoint",
    "progress",
    "report",
    "save_checkpoint",
]

# -------------------------------------------------------------------------------------------------
# results


def report(*, step: float | None = None, key: str | int | None = None, **results: object) -> None:
    """Report results of this process's job. Names that are not given keep their earlier values.

    It never raises. A value that is not allowed is left out with a warning in the log, and so is
    one that cannot be written. Outside of a job nothing happens.

    Args:
        step: how far the program is. The results are then a point of their curves, too.
        key: the key of the results. The default is the replica's, which is its number, with several
            roles ``role/number``.
        results: name → int, float or str. Numbers of numpy and torch are taken, and bools as 0 or
            1.
    """
    try:
        reports = _reports_of_this_process()
        if reports is not None:
            reports.add(_allowed(results), None if step is None else _finite(step), key)
    except Exception as exc:
        _say(f"results were not reported: {exc}")


_PAUSE_S = 10.0
"""Seconds between two writes of a key to a storage where a file is written anew for each."""


class Reports:
    """What a process has reported, by key, and where it goes.

    Args:
        place: where it goes.
    """

    def __init__(self, place: Place) -> None:
        self.pid = os.getpid()
        self._place = place
        self._writer = Writer.from_env()
        self._values: dict[str, Results] = {}
        self._fresh: dict[str, Results] = {}  # what was not written yet
        self._steps: dict[str, StepLog] = {}
        self._written: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(
        self, results: Results, step: float | None = None, key: str | int | None = None
    ) -> None:
        """Add results that `check_results` returned, and write them at once or when it is time to.

        Raises:
            ValueError: the key is not allowed, or there is more than comes back.
            OSError: they cannot be written.
        """
        own = "0" if self._writer is None else self._writer.key
        name = own if key is None else check_key(key)
        with self._lock:
            values = self._values.get(name, {})
            fresh = self._fresh.get(name, {})
            self._values[name] = {**values, **results}
            self._fresh[name] = {**fresh, **results}
            if step is not None and self._place.has_steps:
                if name not in self._steps:
                    self._steps[name] = StepLog(self._place, name)
                self._steps[name].add(step, results)
            last = self._written.get(name, -math.inf)
            if self._place.at_once or time.monotonic() - last >= _PAUSE_S:
                try:
                    self._write(name)
                except ValueError:  # it is too much, and what comes later may still fit
                    self._values[name] = values
                    self._fresh[name] = fresh
                    raise

    def flush(self) -> None:
        """Write what waits, and warn of what cannot be written. A forked child has nothing to write."""
        if self.pid != os.getpid():
            return
        with self._lock:
            for name in sorted(self._fresh):
                try:
                    self._write(name)
                except Exception as exc:
                    _say(f"results of key {name!r} were not reported: {exc}")

    def _write(self, name: str) -> None:
        # noted before the write, so that one that fails is not tried again at each call
        self._written[name] = time.monotonic()
        path = encode_name(name, ".json")
        self._place.write(path, self._body(name, from_json(self._place.read(path))))
        if name in self._steps:
            self._steps[name].write()
        del self._fresh[name]

    def _body(self, name: str, before: Mapping[str, Any]) -> bytes:
        """Return a file with what this process reports and its replica reported before."""
        values = self._values[name]
        writer = self._writer
        if writer is None:
            return to_json(name, {**values, **_results_in(before), **self._fresh[name]})
        fields = dict(writer.fields)
        if {field: before.get(field) for field in fields} == fields:
            values = {**values, **_results_in(before), **self._fresh[name]}
        if name != writer.key:
            fields.update(writer.replaces(before))
        return to_json(name, values, fields)


def _results_in(body: Mapping[str, Any]) -> Results:
    found = body.get("results")
    try:
        return check_results(found) if isinstance(found, dict) else {}
    except ValueError:  # of another program
        return {}


class Writer:
    """The replica that this process belongs to.

    Args:
        run: the handle of its job.

    Attributes:
        key: its key, which is its number, with several roles ``role/number``.
        fields: what a file says of who wrote it.
    """

    def __init__(self, run: str) -> None:
        role = os.environ.get("TRANSLOAD_ROLE", "")
        replica = _count("TRANSLOAD_REPLICA_ID")
        has_many_roles = "," in os.environ.get("TRANSLOAD_ROLES", "")
        self._name = f"{role}/{replica}"
        self._is_alone = _count("TRANSLOAD_NUM_REPLICAS") == 1 and not has_many_roles
        self.key = self._name if has_many_roles else str(replica)
        who = {"role": role, "replica": replica, "attempt": _count("TRANSLOAD_RETRY")}
        self.fields: dict[str, Any] = {"run": run, "writer": who}

    @classmethod
    def from_env(cls) -> Writer | None:
        """Return the writer that this process is, or None outside of a job."""
        run = os.environ.get("TRANSLOAD_JOB_ID")
        return cls(run) if run else None

    def replaces(self, before: Mapping[str, Any]) -> dict[str, object]:
        """Return the field that names other replicas whose results in a file are replaced."""
        if self._is_alone or before.get("run") != self.fields["run"]:
            return {}
        replaced = before.get("replaced")
        names = {str(name) for name in replaced} if isinstance(replaced, list) else set()
        writer = before.get("writer")
        if isinstance(writer, dict):
            names.add(f"{writer.get('role')}/{writer.get('replica')}")
        names.discard(self._name)
        return {"replaced": sorted(names)[:_MOST_NAMES]} if names else {}


def _count(variable: str) -> int:
    """Return the number that a variable holds, or 0 if it holds none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else 0


MAX_POINTS = 10_000
"""The number of lines at which a file of steps loses every second one. Later, half as much is kept."""


class StepLog:
    """Writes the steps of one key, after those that an earlier attempt or another process left."""

    def __init__(self, place: Place, key: str) -> None:
        self._place = place
        self._path = encode_name(key, ".steps.jsonl")
        self._every = 1  # of so many steps one is written
        self._seen = 0
        self._written = place.read(self._path).count(b"\n")  # lines, as far as this process knows
        self._waiting: list[bytes] = []
        counts = {"attempt": "TRANSLOAD_RETRY", "interruptions": "TRANSLOAD_INTERRUPTIONS"}
        self._counts = {name: _count(variable) for name, variable in counts.items()}

    def add(self, step: float, results: Mapping[str, object]) -> None:
        """Note a step, which `write` stores."""
        self._seen += 1
        if (self._seen - 1) % self._every == 0:
            later = {name: count for name, count in self._counts.items() if count}
            line = {"schema": SCHEMA, "step": step, "results": results, **later}
            self._waiting.append(_json().dumps(line).encode() + b"\n")

    def write(self) -> None:
        """Store what was noted, behind what other processes wrote meanwhile."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        if self._written + len(self._waiting) < MAX_POINTS:
            self._place.extend(self._path, data)
            self._written += len(self._waiting)
        else:
            lines = (whole_lines(self._place.read(self._path)) + data).splitlines(True)
            if len(lines) >= MAX_POINTS:
                lines = lines[::2]
                self._every *= 2
            self._place.write(self._path, b"".join(lines))
            self._written = len(lines)
        self._waiting.clear()


def whole_lines(text: bytes) -> bytes:
    """Return a text with an end of line at its end, unless it is empty."""
    return text if not text or text.endswith(b"\n") else text + b"\n"


_reports: Reports | None = None


def _reports_of_this_process() -> Reports | None:
    global _reports
    if _reports is None or _reports.pid != os.getpid():
        place = place_of_job()
        if place is None:
            _say("this process is no job of transload: what it reports goes nowhere", "debug")
            return None
        _reports = Reports(place)
        atexit.register(_reports.flush)
    return _reports


def _allowed(results: Mapping[str, object]) -> Results:
    allowed: Results = {}
    for name, value in results.items():
        try:
            allowed.update(check_results({name: value}))
        except ValueError as exc:
            _say(f"left out: {exc}")
    return allowed


def _finite(step: object) -> float | None:
    try:
        number = check_value("step", step)
    except ValueError as exc:
        number = str(exc)
    if isinstance(number, str) or not math.isfinite(number):
        _say(f"step={step!r} is no finite number: the results are reported without it")
        return None
    return number


# -------------------------------------------------------------------------------------------------
# the files of results (docs/reference/results-format.md)

SCHEMA = 1
"""The number that this version writes, and the newest that it reads."""

MAX_TEXT = 1024
"""Longest key, result name or text value, in bytes of UTF-8.

It is also the largest number of decimal digits of a whole number.
"""

MAX_FILE_NAME = 200
"""Longest name of a file or folder, in bytes, with its suffix."""

_MOST_NAMES = 100  # of replicas whose results were replaced
_MAX_BITS = 3402  # 2**3402 is the first power of two with more than 1024 digits
_PREFIX = 120
_DIGEST = 32
_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_TABLE = [chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in range(256)]
_HINTS = {"NoneType": "leave the name out", "bytes": "decode it to str"}
_ONE_FILE_LIMIT = 4095  # bytes that come back at most


def _json() -> Any:
    import json  # costs as much as all the rest

    return json


def to_json(key: str, results: Results, more: Mapping[str, object] | None = None) -> bytes:
    """Return the body of a file. NaN and the infinities are written as Python's json does."""
    body = {"schema": SCHEMA, "key": key, "results": results, **(more or {})}
    text: str = _json().dumps(body)
    return text.encode()


def from_json(data: bytes) -> dict[str, Any]:
    """Return the body of a file, or {} if it is not one of ours, or of a newer version."""
    try:
        body = _json().loads(data)
    except (ValueError, RecursionError):
        return {}
    if type(body) is not dict or body.get("schema") != SCHEMA:
        return {}
    return body


def check_key(key: object) -> str:
    """Return ``key`` as text. An int ``k`` is the same key as ``str(k)``.

    Raises:
        ValueError: it is a bool or of another type, empty, too long, or not valid in UTF-8.
    """
    if isinstance(key, bool) or not isinstance(key, (int, str)):
        raise ValueError(f"key={key!r}: {type(key).__name__}; a key is an int or a str")
    text = str(_check_int("key", key)) if isinstance(key, int) else str.__str__(key)
    if not text:
        raise ValueError("key='': empty; a key has at least one character")
    check_text("key", text)
    return text


def check_results(results: Mapping[Any, object]) -> Results:
    """Return ``results`` as plain ints, floats and strs.

    Raises:
        ValueError: a name or value is not allowed. The message names it.
    """
    checked: Results = {}
    for name, value in results.items():
        if not isinstance(name, str):
            raise ValueError(f"result name {name!r}: {type(name).__name__}; names are str")
        check_text("result name", name)
        checked[str.__str__(name)] = check_value(name, value)
    return checked


def check_value(name: str, value: object) -> int | float | str:
    """Return a value as a plain int, float or str.

    A bool becomes 0 or 1. A scalar of numpy or torch becomes its ``item()``.

    Raises:
        ValueError: it is not allowed.
    """
    what = f"result {name!r}"
    if isinstance(value, str):
        check_text(what, value)
        return str.__str__(value)
    if isinstance(value, int):
        return _check_int(what, value)
    if isinstance(value, float):
        return float(value)
    item = getattr(value, "item", None)
    if callable(item):
        try:
            plain = item()
        except Exception as exc:  # of more than one element, or on a device that has gone
            raise ValueError(f"{what}={shortened(value)}: {exc}") from exc
        if isinstance(plain, (int, float, str)):
            return check_value(name, plain)
    kind = type(value).__name__
    hint = _HINTS.get(kind) or "store one name per number"
    raise ValueError(
        f"{what}={shortened(value)}: {kind}; a value is an int, a float or a str ({hint})"
    )


def _check_int(what: str, value: int) -> int:
    if value.bit_length() >= _MAX_BITS:
        raise ValueError(
            f"{what}: a whole number of {value.bit_length()} bits; at most {MAX_TEXT} decimal "
            "digits"
        )
    return int(value)


def check_text(what: str, text: str) -> None:
    """Check a key, a name or a text.

    Raises:
        ValueError: it is too long, or not valid in UTF-8.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise ValueError(
            f"{what}={shortened(text)}: holds a lone surrogate, which UTF-8 cannot"
        ) from exc
    if size > MAX_TEXT:
        raise ValueError(f"{what}={shortened(text)}: {size} bytes in UTF-8; at most {MAX_TEXT}")


def shortened(value: object) -> str:
    """Return a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def encode_name(text: str, suffix: str = "") -> str:
    """Return the file name of ``text``.

    Args:
        text: any text that UTF-8 can hold.
        suffix: ending of the name, for example ``".json"``.

    Returns:
        A name of at most ``MAX_FILE_NAME`` bytes, without ``/``, not starting with a dot.
    """
    encoded = "".join([_TABLE[byte] for byte in text.encode()])
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) + len(suffix) <= MAX_FILE_NAME:
        return encoded + suffix
    from hashlib import sha256  # only long names need it

    prefix = encoded[:_PREFIX]
    cut = prefix.rfind("%", _PREFIX - 2)  # never cut inside an escape
    if cut >= 0:
        prefix = prefix[:cut]
    return f"{prefix}={sha256(text.encode()).hexdigest()[:_DIGEST]}{suffix}"


def local_path(base: str) -> str | None:
    """Return the path of a base that is on the local file system.

    A ``file://`` URL spells signs of a path as ``%20``, as `pathlib.Path.as_uri` writes them.

    Returns:
        The path, or None for a URL of another storage.
    """
    if base.startswith(("/", ".", "~")):
        return base
    if "::" in base:
        return None  # a chain of fsspec storages
    if base.startswith("local://"):
        return base[len("local://") :]
    if not base.startswith("file://"):
        return None if "://" in base else base
    from urllib.parse import unquote  # costs 3 ms

    path = base[len("file://") :]
    if path.startswith("localhost"):
        path = path[len("localhost") :]
    return unquote(path, errors="surrogateescape")


def aside_name() -> str:
    """Return a name for a file that is being written, unique across processes, hosts and forks."""
    return f".{os.urandom(9).hex()}.tmp"


def write_file(path: str, data: bytes, mode: int = 0o666) -> None:
    """Create or replace a file in one step. Missing folders are made."""
    aside = os.path.join(os.path.dirname(path), aside_name())
    try:
        _write_aside(aside, data, mode)
        os.replace(aside, path)
    except BaseException as exc:
        with contextlib.suppress(OSError):  # litter must not hide why the write failed
            os.unlink(aside)
        if isinstance(exc, OSError):
            exc.filename = path
        raise


def _write_aside(path: str, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, mode)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, flags, mode)
    try:
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os.close(fd)


_OBJECTS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "hf", "memory"}
"""One PUT replaces an object at once, and there are no folders to make."""

RENAMES_OVER = {"sftp", "ssh"}
"""The protocols whose move replaces the target atomically, by posix-rename."""


def write_to(fs: Any, path: str, data: bytes) -> None:
    """Create or replace a file of an fsspec file system, in one step as far as it can."""
    protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
    if protocols & _OBJECTS:
        fs.pipe_file(path, data)
        return
    if not protocols & RENAMES_OVER:
        _write_in_folder(fs, path, data)
        return
    aside = path[: path.rindex("/") + 1] + aside_name()
    _write_in_folder(fs, aside, data)
    try:
        fs.mv(aside, path)
    except BaseException:
        with contextlib.suppress(Exception):  # it must not hide why the move failed
            fs.rm_file(aside)
        raise


def _write_in_folder(fs: Any, path: str, data: bytes) -> None:
    try:
        fs.pipe_file(path, data)
    except FileNotFoundError:
        folder = path[: path.rindex("/")]
        try:
            fs.makedirs(folder, exist_ok=True)
        except OSError:  # another process is making it, which some storages refuse
            fs.makedirs(folder, exist_ok=True)
        fs.pipe_file(path, data)


class Place:
    """Where the results of a job go, as files by name."""

    at_once = True
    """Whether each report is written at once."""

    has_steps = True

    def read(self, name: str) -> bytes:
        """Return what a file holds, or b"" if there is none."""
        raise NotImplementedError

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file, in one step where that can be."""
        raise NotImplementedError

    def extend(self, name: str, data: bytes) -> None:
        """Add whole lines to the end of a file."""
        self.write(name, whole_lines(self.read(name)) + data)


class Folder(Place):
    """A folder of this machine, or one that is mounted here."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(os.path.expanduser(path))

    def read(self, name: str) -> bytes:
        """Return what a file holds, or b"" if there is none."""
        path = os.path.join(self._path, name)
        if not os.path.isfile(path):  # a FIFO's reader would wait
            return b""
        with open(path, "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file in one step."""
        write_file(os.path.join(self._path, name), data)

    def extend(self, name: str, data: bytes) -> None:
        """Add whole lines to the end of a file."""
        path = os.path.join(self._path, name)
        if os.path.islink(path) or not os.path.isfile(path):
            if os.path.lexists(path):  # the job itself did that, so it goes on in a new file
                self.write(name, data)
                return
            os.makedirs(self._path, exist_ok=True)
        with open(path, "ab+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":  # of a killed writer
                data = b"\n" + data
            file.write(data)


class Storage(Place):
    """A folder on a storage that fsspec knows, where each write makes a file anew."""

    at_once = False

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self._fs, path = url_to_fs(url)
        self._folder = path.rstrip("/")

    def read(self, name: str) -> bytes:
        """Return what a file holds, or b"" if there is none."""
        try:
            return bytes(self._fs.cat_file(f"{self._folder}/{name}"))
        except FileNotFoundError:
            return b""

    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file."""
        write_to(self._fs, f"{self._folder}/{name}", data)


class OneFile(Place):
    """The result files of a replica as lines of one file, which is written in place.

    Other lines of it are kept.
    """

    has_steps = False  # it is too small for them

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, name: str) -> bytes:
        """Return what a file holds, or b"" if there is none."""
        return dict(self.lines()).get(name, b"")

    def write(self, name: str, data: bytes) -> None:
        """Put a line in place of the one of the same key.

        Raises:
            ValueError: the file would be too large. It stays as it was.
        """
        lines = [line for other, line in self.lines() if other != name]
        text = b"".join(line + b"\n" for line in [*lines, data])
        if len(text) > _ONE_FILE_LIMIT:
            raise ValueError(
                f"{self._path}: {len(text):,} bytes of results; at most {_ONE_FILE_LIMIT:,} come "
                "back from a job without storage: give tracker_base"
            )
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        with open(fd, "wb") as file:
            file.write(text)

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Yield each line with the name of the result file that it is the body of.

        The name is ``""`` for other lines.
        """
        try:
            with open(self._path, "rb") as file:
                text = file.read()
        except FileNotFoundError:
            return
        for line in text.splitlines():
            key = from_json(line).get("key")
            yield encode_name(str(key), ".json") if key else "", line


def place_of_job() -> Place | None:
    """Return where this process's job reports, or None outside of a job."""
    base = os.environ.get("TRANSLOAD_TRACKER_BASE")
    if base:
        path = local_path(base)
        return Folder(path) if path is not None else Storage(base)
    file = os.environ.get("TRANSLOAD_RESULT_FILE")
    return OneFile(file) if file else None


# -------------------------------------------------------------------------------------------------
# progress


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
    processes that torchrun starts in a replica only the first reports. Where a job has no file for
    it, as on Kubernetes, it is a line of the log, every ten seconds at most.

    Args:
        step: number of the step that it is at, 0 or more.
        total: number of steps in all, above 0.
        fraction: part of the work that is done, 0 to 1. By default it follows from ``step`` and
            ``total``.
        text: a few words beside that, such as ``epoch 3``.
    """
    try:
        writer = _progress_of_this_process()
        if writer is not None:
            writer.add(step, total, fraction, text)
    except Exception as exc:
        _say(f"progress was not reported: {exc}")


ENV_PROGRESS_FILE = "TRANSLOAD_PROGRESS_FILE"
"""The variable that names the file of this replica's progress."""

PROGRESS_MARK = "transload progress: "
"""Begins a line of the log with a job's progress, as JSON."""

_UPDATE_S = 1.0
_LINE_S = 10.0
"""Seconds between two writes of the file, or two lines of the log."""

_LONGEST_TEXT = 200


def check_numbers(
    step: object = None, total: object = None, fraction: object = None
) -> tuple[dict[str, float], list[str]]:
    """Return the numbers that make sense, by name, and a line for each that makes none.

    Args:
        step: 0 or more.
        total: above 0.
        fraction: 0 to 1.
    """
    values: dict[str, float] = {}
    wrong = []
    for name, value in {"step": step, "total": total, "fraction": fraction}.items():
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


def _as_number(value: Any) -> float | None:
    """Return a finite number, also one of numpy or torch, or None for anything else."""
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, int):
        return value
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


class ProgressWriter:
    """Writes the progress of a process to a file, or to the log, whole and not too often.

    Args:
        path: the file, or ``""`` for the log.
    """

    def __init__(self, path: str) -> None:
        self.pid = os.getpid()
        self._path = path
        self._pause = _UPDATE_S if path else _LINE_S
        self._line = b""  # what is to be written
        self._written = b""
        self._due = 0.0
        self._lock = threading.Lock()

    def add(
        self,
        step: object = None,
        total: object = None,
        fraction: object = None,
        text: object = None,
    ) -> None:
        """Take a report, and write it if it is time to.

        Raises:
            OSError: if it cannot be written.
        """
        values, wrong = check_numbers(step, total, fraction)
        for line in wrong:
            _say(f"progress: {line}; it is left out")
        found: dict[str, object] = {**values}
        if isinstance(text, str) and text.strip():
            found["text"] = " ".join(text.split())[:_LONGEST_TEXT]
        with self._lock:
            self._line = _json().dumps(found).encode() + b"\n"
            if time.monotonic() >= self._due:
                self._write()

    def flush(self) -> None:
        """Write what waits, and warn of what cannot be written. A forked child has nothing to write."""
        if self.pid != os.getpid():
            return
        with self._lock:
            try:
                self._write()
            except OSError as exc:
                _say(f"progress was not reported: {exc}")

    def _write(self) -> None:
        if self._line == self._written:
            return
        # noted before the write, so that one that fails is not tried again at each step
        self._due = time.monotonic() + self._pause
        if self._path:
            write_file(self._path, self._line)
        else:
            sys.stderr.write(PROGRESS_MARK + self._line.decode())
            sys.stderr.flush()
        self._written = self._line


_progress: ProgressWriter | None = None


def _progress_of_this_process() -> ProgressWriter | None:
    global _progress
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return None
    if _progress is None or _progress.pid != os.getpid():
        _progress = progress_writer()
        if _progress is not None:
            atexit.register(_progress.flush)
    return _progress


def progress_writer() -> ProgressWriter | None:
    """Return what writes the progress of this process's job, or None outside of a job."""
    path = os.environ.get(ENV_PROGRESS_FILE, "")
    if not path and not os.environ.get("TRANSLOAD_JOB_ID"):
        return None
    return ProgressWriter(path)


_said: set[str] = set()


def _say(message: str, level: str = "warning") -> None:
    """Log a message once."""
    if message in _said or len(_said) >= 1000:
        return
    _said.add(message)
    import logging  # costs as much as all the rest

    getattr(logging.getLogger("transload.runtime"), level)("%s", message)


# -------------------------------------------------------------------------------------------------
# checkpoints, in the job's folder for them (TRANSLOAD_CHECKPOINT_DIR), which all attempts share

_KEPT = 2
_ASIDE = ".checkpoint-"


class CheckpointError(OSError):
    """A checkpoint could not be written. Those before it are as they were."""


def latest_checkpoint(*, each_replica: bool = False) -> Path | None:
    """Return the folder of the newest checkpoint that is complete, or None if there is none.

    Args:
        each_replica: each replica has separate checkpoints, as in `save_checkpoint`.
    """
    folder = _checkpoints(each_replica)
    if folder is None:
        return None
    complete = _complete(folder)
    return folder / complete[-1] if complete else None


def save_checkpoint(write: Callable[[Path], object], *, each_replica: bool = False) -> Path | None:
    """Make a checkpoint, which is there as a whole or not at all. The last two are kept.

    Only one process writes it, which is replica 0, and rank 0 of the processes that torchrun
    starts, in whichever replica that is. In the others, and outside of a job, nothing happens, and
    ``write`` is not called. So it is where no role of the job asked for checkpoints.

    Args:
        write: is given an empty folder, and puts files there.
        each_replica: every replica keeps separate checkpoints, below ``replica-K``. Of the
            processes that torchrun starts in it the first one writes.

    Returns:
        The folder of the checkpoint, or None where this process writes none.

    Raises:
        CheckpointError: if the folder cannot be written, or the disk is full. An exception of
            ``write`` passes. The checkpoints before stay.
    """
    import shutil

    folder = _checkpoints(each_replica)
    if folder is None or not _writes(each_replica):
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in os.listdir(folder):
            if name.startswith(_ASIDE):  # of an attempt that was killed while it wrote
                shutil.rmtree(folder / name, ignore_errors=True)
        number = max(map(_number_of, _complete(folder)), default=0) + 1
        aside = folder / f"{_ASIDE}{number}-{os.getpid()}"
        aside.mkdir()
    except OSError as exc:
        raise _not_written(folder, exc) from exc
    try:
        write(aside)
        return _take(aside, folder / f"checkpoint-{number:06d}")
    except OSError as exc:
        shutil.rmtree(aside, ignore_errors=True)
        raise _not_written(folder, exc) from exc
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _checkpoints(each_replica: bool) -> Path | None:
    from pathlib import Path

    base = os.environ.get("TRANSLOAD_CHECKPOINT_DIR")
    if not base:
        return None
    if not each_replica:
        return Path(base)
    return Path(base, f"replica-{os.environ.get('TRANSLOAD_REPLICA_ID', '0')}")


def _writes(each_replica: bool) -> bool:
    """Tell whether this process is the one that writes."""
    if each_replica:
        return os.environ.get("LOCAL_RANK", "0") == "0"
    replica = os.environ.get("TRANSLOAD_REPLICA_ID", "0")
    rank = os.environ.get("RANK")
    if not rank:
        return replica == "0"
    # one torchrun for all replicas gives rank 0 to any of them, one in each gives it to each
    is_alone = os.environ.get("GROUP_WORLD_SIZE") == "1"
    return rank == "0" and (replica == "0" or not is_alone)


def _complete(folder: Path) -> list[str]:
    """Return the names of all complete checkpoints, the newest last.

    The program may have written some itself, such as ``checkpoint-500``.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [name for name in names if re.fullmatch(r"checkpoint-\d+", name)]
    return sorted(found, key=_number_of)


def _number_of(name: str) -> int:
    return int(name.partition("-")[2])


def _take(aside: Path, final: Path) -> Path:
    """Give a checkpoint its name once all of it is on the disk, and remove the oldest ones."""
    import shutil

    for place, _, files in os.walk(aside):
        for name in files:
            _to_disk(os.path.join(place, name))
        _to_disk(place)
    os.rename(aside, final)
    _to_disk(str(final.parent))
    for name in _complete(final.parent)[:-_KEPT]:
        shutil.rmtree(final.parent / name, ignore_errors=True)
    return final


def _to_disk(path: str) -> None:
    """Have a file or the names in a folder written to the disk, as far as its file system can."""
    import errno

    if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path)):
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF, errno.EACCES):
            raise
    finally:
        os.close(opened)


def _not_written(folder: Path, exc: OSError) -> CheckpointError:
    import errno

    reason = exc.strerror or str(exc)
    message = f"no checkpoint was written to {folder}: {reason}; those before it are kept"
    return CheckpointError(exc.errno or errno.EIO, message)


# -------------------------------------------------------------------------------------------------
# the notice before a job's end

EXIT_INTERRUPTED = 75
"""The exit code by which a program says, after a notice, that it wants to go on later."""


def interrupted() -> bool:
    """Tell whether this process has had its notice, so that it is time to save, and to end.

    Call it once before the work begins. From then on it takes the signal of the notice, which would
    else end the program. Only the main thread can take signals. In another one, and in processes
    that are forked later, this is False.
    """
    _notice.listen()
    return _notice.came


def exit_interrupted() -> NoReturn:
    """End the program with exit code 75, so that it is started again and goes on.

    That is so after a notice only. Without one, the exit is a failure like any other.
    """
    sys.exit(EXIT_INTERRUPTED)


class _Notice:
    """Takes the signal of the notice."""

    def __init__(self) -> None:
        self.came = False
        self._listens = False
        self._before: Any = None
        self._number = 0
        self._pid = 0

    def listen(self) -> None:
        """Handle the signal from now on. Only the main thread can install the handler, once."""
        if self._listens or threading.current_thread() is not threading.main_thread():
            return
        import signal

        name = os.environ.get("TRANSLOAD_NOTICE_SIGNAL") or "TERM"
        self._number = getattr(signal, f"SIG{name}", signal.SIGTERM)
        self._before = signal.signal(self._number, self._take)
        self._listens = True
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._leave)
        atexit.register(self._end)

    def _take(self, number: int, frame: object) -> None:
        if os.getpid() != self._pid:  # it came in the moment of a fork
            self._leave()
            os.kill(os.getpid(), number)
            return
        self.came = True
        if callable(self._before):
            self._before(number, frame)

    def _end(self) -> None:
        """Ignore the signal while Python ends, since it would kill a program whose work is done."""
        import signal

        if os.getpid() == self._pid and signal.getsignal(self._number) == self._take:
            signal.signal(self._number, signal.SIG_IGN)

    def _leave(self) -> None:
        """Restore the signal's earlier handler in a forked child, such as a data loader's worker.

        So the signal ends the child.
        """
        import signal

        self._listens = self.came = False
        signal.signal(self._number, self._before or signal.SIG_DFL)


_notice = _Notice()
