"""Read results, files and errors of pods without storage, from a status or a helper's log. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from transload.retries import read_error
from transload.runtime.liveness import read_report
from transload.runtime.tracking import Entry, Store, TrackingError
from transload.runtime.tracking.names import OUTPUTS, encode_name
from transload_kubernetes import names, states

MESSAGE_FILE: Final = "/dev/termination-log"
"""A container's message file, whose first 4,096 bytes the status of the pod has."""
MESSAGE_LIMIT: Final = 4096
FOLDER: Final = "/transload/results"  # of a pod with a helper
FILES_LIMIT: Final = 1 << 18
ERROR: Final = ".error"  # the file for errors in that folder
_TORCH_ERROR: Final = "/dev/shm/transload-error"  # noqa: S108 - torchrun removes it first; the message's is a mount
_LOOK_S: Final = 2
_STAY_S: Final = 15
_FEW_S: Final = 2
"""Seconds for which a helper stays, so that the exit code of its program can be read.

A kubelet reports that code only after the helper has ended."""
_SPARE_S: Final = 30
_LONGEST_REPORT: Final = 600  # characters of a report of progress
_HEAD: Final = 3000
_TICKS: Final = 100
IS_END: Final = re.compile(rb"\.|! \d+ results")  # begins the last line of a helper's log
BY_ITSELF: Final = "by-itself"
"""The line of a helper whose program has ended before a SIGTERM came."""
PROGRESS: Final = "progress = "
"""Begins a line of a helper with what the program says of its progress, as JSON."""
PROGRESS_FILE: Final = ".progress"  # in that folder
_EXIT: Final = "exit="
_LAST_OWN: Final = 128  # higher codes are ends by a signal
_USAGE: Final = re.compile(r"(\d{1,18}) (\d{1,18})")
_CUT_MESSAGE: Final = re.compile(r'"message": *("(?:[^"\\]|\\u[0-9a-f]{4}|\\[^u])*)')

_TIMES: Final = f"look={_LOOK_S} few={_FEW_S} stay={_STAY_S}"
_PLACES: Final = f"folder={FOLDER} outputs={OUTPUTS} progress={PROGRESS_FILE}"
_SET: Final = f"{_PLACES} limit={FILES_LIMIT} head={_HEAD} longest={_LONGEST_REPORT} {_TIMES}\n"
_HELPER: Final = _SET + Path(__file__).with_name("helper.sh").read_text()
_BEGIN: Final = _HELPER.partition("size()")[0]


def variables(folder: bool) -> dict[str, str]:
    """Return the variables that name the place for a program's reports, if none was given."""
    error = f"{FOLDER}/{ERROR}" if folder else MESSAGE_FILE
    torch = error if folder else _TORCH_ERROR
    found = {
        "TRANSLOAD_RESULT_FILE": MESSAGE_FILE,
        "TRANSLOAD_ERROR_FILE": error,
        "TORCHELASTIC_ERROR_FILE": torch,
    }
    if folder:
        found["TRANSLOAD_TRACKER_BASE"] = FOLDER
        found["TRANSLOAD_PROGRESS_FILE"] = f"{FOLDER}/{PROGRESS_FILE}"
    return found


def add_helper(spec: dict[str, Any], image: str) -> None:
    """Add a sidecar to a pod that hands over the results folder once the program has ended."""
    main = spec["containers"][0]
    mount = {"name": names.HELPER, "mountPath": FOLDER}
    # a quota may require limits. These are small enough for programs that need a whole node.
    limits = {"cpu": "0", "memory": "16Mi"}
    helper = {
        "name": names.HELPER,
        "image": image,
        "restartPolicy": "Always",
        "command": ["sh", "-c", f"{_HELPER}wait_for_end".replace("$", "$$")],
        "volumeMounts": [{**mount, "readOnly": True}],
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", f"{_BEGIN}begin"]}}},
        "resources": {"requests": limits, "limits": limits},
        **{name: main[name] for name in ("securityContext", "imagePullPolicy") if name in main},
    }
    # the kubelet makes the folder of a subPath, for any user
    outputs = {"name": names.HELPER, "mountPath": f"{FOLDER}/{OUTPUTS}", "subPath": OUTPUTS}
    main["volumeMounts"] = [*main["volumeMounts"], mount, outputs]
    # the helper's hook runs first, and on a busy node it may need a while to write
    main["lifecycle"] = {"preStop": {"sleep": {"seconds": _LOOK_S}}}
    spec["terminationGracePeriodSeconds"] += _LOOK_S + _SPARE_S
    spec["volumes"] = [*spec["volumes"], {"name": names.HELPER, "emptyDir": {}}]
    spec["initContainers"] = [*spec.get("initContainers", ()), helper]


def helper_of(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the helper container of a pod, or None if it has none."""
    return next(
        (each for each in spec.get("initContainers") or () if each["name"] == names.HELPER), None
    )


def trial(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a Job that only tries the helper's image, or None if the pod has no helper."""
    helper = helper_of(spec)
    if helper is None:
        return None
    alike = (
        "securityContext",
        "serviceAccountName",
        "priorityClassName",
        "tolerations",
        "imagePullSecrets",
    )
    container = {
        name: helper[name]
        for name in helper.keys() - {"restartPolicy", "volumeMounts", "lifecycle"}
    }
    container["command"] = [
        "sh",
        "-c",
        "base64 </dev/null && grep -q . /proc/mounts && find / -maxdepth 0",
    ]
    pod = {name: spec[name] for name in alike if name in spec} | {
        "restartPolicy": "Never",
        "containers": [container],
    }
    name = f"{names.HELPER}-{hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:16]}"
    job = {
        "completionMode": "Indexed",
        "completions": 1,
        "parallelism": 1,
        "template": {"spec": pod},
    }
    job |= {
        "backoffLimitPerIndex": 0,
        "activeDeadlineSeconds": 300,
        "ttlSecondsAfterFinished": 86_400,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}


def own_exit(log: str) -> int | None:
    """Return the exit code of a program that ended by itself, from its helper's log.

    None if the program did not end by itself, or the log does not have the code.
    """
    lines = log.splitlines()
    codes = [int(line.removeprefix(_EXIT)) for line in lines if line.startswith(_EXIT)]
    return codes[0] if codes and codes[0] <= _LAST_OWN and BY_ITSELF in lines else None


def exit_line(code: int) -> str:
    """Return the line of a helper's log that gives the exit code of its program."""
    return f"{_EXIT}{code}\n"


class PodStore(Store):
    """The files that the pods of a job handed over, presented as one folder."""

    def __init__(self, base: str) -> None:
        self.base = base  # its name in messages
        self.files: dict[str, bytes] = {}  # path → content
        self.refused: TrackingError | None = None  # why there are no outputs
        self.error = b""  # the latest error of the program

    def read(self, path: str, limit: int = FILES_LIMIT) -> bytes:
        """Return the content of a file, which is never larger than a pod may hand over."""
        if path not in self.files:
            raise FileNotFoundError(self.where(path))
        return self.files[path]

    def entries(self, folder: str = "") -> list[Entry]:
        """List a folder."""
        if self.refused is not None and folder.strip("/").partition("/")[0] == OUTPUTS:
            raise self.refused
        start = f"{folder.strip('/')}/" if folder.strip("/") else ""
        found = {
            path.removeprefix(start).partition("/")[:2]
            for path in self.files
            if path.startswith(start)
        }
        return [(name, bool(slash)) for name, slash in found]

    def take_log(self, log: bytes, who: str) -> None:
        """Store the files in the log of a replica's helper, once the helper has written them.

        Raises:
            TrackingError: if the files without the outputs are too large.
        """
        for words in (line.split(b" ") for line in log.splitlines()):
            if words[0] == b"!" and int(words[1]):
                self.refused = _too_much(
                    f"{words[2].decode()} of {who}", f"{int(words[1]):,} bytes", FILES_LIMIT
                )
                if words[2] == b"results":
                    raise self.refused
            elif len(words) == 2 and b"." in log.splitlines():
                self.files[base64.b64decode(words[0]).decode("utf-8", "replace")] = (
                    base64.b64decode(words[1])
                )
        self.error = self.files.pop(ERROR, b"")

    def take_end(self, end: dict[str, Any], key: str, who: str) -> None:
        """Store the results in a program's message file.

        The file has JSON lines. Each is the content of a result file, or plain results.

        Raises:
            TrackingError: if the file is too large.
        """
        message = states.said(end)
        if end.get("exitCode") == 0 and len(message.encode()) >= MESSAGE_LIMIT:
            more = ", or set run option helper_image"
            raise _too_much(
                f"results of {who}", f"{MESSAGE_LIMIT:,} bytes or more", MESSAGE_LIMIT - 1, more
            )
        for found in _read_lines(message)[
            0
        ]:  # escapes may hold lone surrogates, which no text can have
            if "base64" in found:
                self.files[str(found.get("file"))] = base64.b64decode(str(found["base64"]) + "==")
            else:
                body = (
                    found
                    if isinstance(found.get("results"), dict)
                    else {"schema": 1, "key": key, "results": found}
                )
                name = encode_name(
                    str(body.get("key", key)).encode("utf-8", "replace").decode(), ".json"
                )
                self.files[name] = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


class PodReport(NamedTuple):
    """What the status of a pod says about a program that has ended.

    Attributes:
        error: the error that the program left, any text as JSON, or ``""`` if it left none.
        usage: the program's resource usage, as fields of `Usage`.
        is_cut: whether the error is only its beginning, and the helper's log has all of it.
        progress: what the program said last of its progress, as fields of `Progress`.
    """

    error: str
    usage: dict[str, Any]
    is_cut: bool
    progress: dict[str, Any]


def report_of(pod: Mapping[str, Any]) -> PodReport:
    """Return what the status of a pod says about its program."""
    if not helper_of(pod["spec"]):
        message = states.said(states.program(pod, "terminated"))
        _, error = _read_lines(message)
        return PodReport(_error(error), usage={}, is_cut=False, progress={})
    end = states.program(pod, "terminated", names.HELPER)
    used, _, text = states.said(end).partition("\n")
    progress: dict[str, Any] = {}
    first, _, rest = text.partition("\n")
    if first.startswith(PROGRESS):
        text = rest
        said = first.removeprefix(PROGRESS)
        progress = read_report(said.encode(), states.seconds(end.get("finishedAt")) or 0.0)
    is_cut = len(text.encode()) >= _HEAD
    return PodReport(_error(text.strip()), _read_usage(used), is_cut, progress)


def _read_usage(line: str) -> dict[str, Any]:
    """Return fields of `Usage` from the first line of a helper, as ``peak_kib ticks``."""
    found = _USAGE.fullmatch(line)
    if found is None:
        return {}
    peak_kib = int(found[1])
    ticks = int(found[2])
    if not peak_kib:
        return {}
    return {"peak_memory": peak_kib << 10, "cpu_seconds": ticks / _TICKS}


def _error(said: str) -> str:
    """Return the error that a program left, in the form of `read_error`."""
    cut = _CUT_MESSAGE.search(said)
    if cut and _read_object(said) is None:
        # the end was cut off, and the message is there
        message = _read_object(f'{{"message": {cut[1]}"}}')
        if message:
            said = json.dumps(message)
    return read_error(said.encode())


def _read_lines(text: str) -> tuple[list[dict[str, Any]], str]:
    """Split a text into lines with results or files, and the rest, which is an error."""
    bodies: list[dict[str, Any]] = []
    rest: list[str] = []
    for line in text.splitlines():
        found = _read_object(line)
        if found is None or "message" in found:
            rest.append(line)
        else:
            bodies.append(found)
    return bodies, "\n".join(rest).strip()


def _read_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _too_much(what: str, size: str, limit: int, more: str = "") -> TrackingError:
    text = f"{what}: {size}; a pod without storage can hand over at most {limit:,}"
    return TrackingError(f"{text}; set tracker_base to a store, or to a folder on a volume{more}")
