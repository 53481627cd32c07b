"""Runs a program inside a KFP component and hands its reports to Kubeflow Pipelines.

The text of this file goes into the component's command (``python3 -c``). It needs nothing but the
standard library of any Python from 3.7 on. The image need not have transload.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from typing import Any

SCHEMA = 1
EXIT_NO_RESULT = 70
TERMINATION_LOG = "/dev/termination-log"
LARGEST = 16 << 20  # bytes of a file of results
MAX_TEXT = 1024  # bytes of a key, of a result's name, of a text
MARK = re.compile("\ue000late:([^\ue000\ue001]*)\ue001")  # stands for a value of the run
TRACKER = ":results"
FILES = ":files"  # the marks of the job's tracker base, and of its folder for files


def say(text: str) -> None:
    """Write to the task's log, if anybody reads it. A signal's handler may call this too."""
    try:
        sys.stderr.write(f"[transload] {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, RuntimeError):
        pass  # where a task is ended, its log is a broken pipe


def last_word(text: str) -> None:
    """Write to the task's log, and to the file of a pod's termination message.

    The cluster shows that as the task's error.
    """
    say(text)
    try:
        if os.path.isfile(TERMINATION_LOG):
            with open(TERMINATION_LOG, "wb") as file:
                file.write(text.encode("utf-8")[:4096])
    except OSError:
        pass  # it has been said


def content(path: str, limit: int = LARGEST) -> bytes:
    """Return what is in a regular file of the program, up to a size, without waiting.

    Raises:
        OSError: if it is something else, or cannot be read.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path}: is no regular file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"{path}: more than {limit:,} bytes, which is as much as is read")
    return data


def cause(path: str) -> str:
    """Return the error that the program has left in its error file, or "" if it has left none."""
    try:
        message = json.loads(content(path).decode("utf-8"))["message"]
        if isinstance(message, dict):
            message = message["message"]
        return f": {message}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def fill(text: str, values: dict[str, str]) -> str:
    """Return a text with the values of the run at its marks."""
    return MARK.sub(lambda mark: values[mark[1]], text)


def run(argv: list[str], environment: dict[str, str]) -> int:
    """Run the program to its end, passing signals on, and return its exit code."""
    children: list[Any] = []
    early: list[int] = []

    def pass_on(number: int, frame: Any) -> None:
        for child in children:
            child.send_signal(number)
        if not children:
            early.append(number)

    # before the program starts: a signal that comes just then is not to end this process alone
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    try:
        child = subprocess.Popen(argv, env=environment)
    except OSError as error:
        say(f"cannot start {argv[0]!r}: {error}")
        if isinstance(error, FileNotFoundError):
            return 127
        return 126
    children.append(child)
    for got in early:
        child.send_signal(got)
    code = child.wait()
    if code < 0:  # killed by a signal
        return 128 - code
    return code


def empty(folder: str) -> None:
    """Make a folder, or remove what an earlier try has left there.

    A retry on one machine has the same place.
    """
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, exist_ok=True)


def read_results(folder: str) -> dict[str, dict[str, Any]]:
    """Return by key and name the values that were reported in the public format of results.

    Other files are ignored.
    """
    found = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json") or name.startswith("."):
            continue
        try:
            body = parse(content(os.path.join(folder, name)))
        except OSError as error:
            say(f"not read: {error}")
            continue
        if body.get("schema", 0) > SCHEMA:
            say(f"{name}: schema {body['schema']!r} is newer than this component reads")
        elif body:
            key = body.get("key")
            found[name[:-5] if key is None else str(key)] = allowed(body["results"], name)
    return found


def allowed(results: dict[str, Any], file: str) -> dict[str, Any]:
    """Return the results whose names and values are not too long."""
    kept = {}
    for name, value in results.items():
        longest = max(
            len(each.encode("utf-8", "replace")) for each in (name, value) if isinstance(each, str)
        )
        if longest > MAX_TEXT:
            say(f"{file}: result {name[:60]!r}: {longest} bytes; at most {MAX_TEXT}")
        else:
            kept[name] = value
    return kept


def parse(data: bytes) -> dict[str, Any]:
    """Return the body of a file of results, or {} if it is none."""
    try:
        body = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(body, dict) or not isinstance(body.get("results"), dict):
        return {}
    if type(body.get("schema")) is not int:
        return {}
    return body


def pick(found: dict[str, dict[str, Any]], name: str, key: str | None) -> Any:
    """Return the value of one declared result.

    The key may be left out if ``final``, or only one key, has the name.

    Raises:
        LookupError: if it was not reported, or under several keys. The message says what there is.
    """
    keys = [each for each in found if name in found[each] and key in (None, each)]
    if "final" in keys:
        keys = ["final"]
    if len(keys) == 1:
        return found[keys[0]][name]
    if keys:
        raise LookupError(
            f"result {name!r} was reported under keys {', '.join(keys)}: declare it as 'key/{name}'"
        )
    shown = "; ".join(f"{each}: {', '.join(found[each])}" for each in found) or "nothing"
    what = f"result {name!r}"
    if key:
        what += f" of key {key!r}"
    raise LookupError(f"{what} was not reported; reported: {shown}")


def plain(text: str) -> str:
    """Return a text without what no backend takes in one (halves of surrogate pairs, NUL)."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def typed(value: Any, kind: str, name: str) -> Any:
    """Return a result as its output has it.

    Raises:
        LookupError: for a value that is not of the declared type.
    """
    if kind == "String":
        return value if isinstance(value, str) else json.dumps(value)
    wrong = f"result {name!r} is {value!r}, declared as {kind}"
    if isinstance(value, str) or (kind == "Integer" and value % 1 != 0):  # infinities too
        raise LookupError(wrong)
    try:
        return int(value) if kind == "Integer" else float(value)
    except OverflowError:
        raise LookupError(wrong) from None


def metrics_of(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers among the results. NaN and infinities are text, for JSON has none."""
    metrics: dict[str, Any] = {}
    for key, values in sorted(found.items()):
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            title = name
            if sum(name in other for other in found.values()) > 1:
                title = f"{key}.{name}"
            title = plain(title)
            metrics[title] = value
            # an int may be larger than any float
            if isinstance(value, float) and not math.isfinite(value):
                metrics[title] = str(value)
    return metrics


def table_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of ClassificationMetrics.

    They are made from the arguments that KFP's own ``log_…`` functions take.

    Raises:
        LookupError: if there are none.
    """
    made: dict[str, Any] = {}
    matrix = body.get("confusion_matrix")
    curve = body.get("roc_curve")
    if matrix:
        rows = [{"row": row} for row in matrix["matrix"]]
        specs = [{"displayName": name} for name in matrix["categories"]]
        made["confusionMatrix"] = {"annotationSpecs": specs, "rows": rows}
    if curve:
        points = zip(curve["fpr"], curve["tpr"], curve["threshold"])  # noqa: B905 - Python 3.10 and later only
        names = ("falsePositiveRate", "recall", "confidenceThreshold")
        made["confidenceMetrics"] = [dict(zip(names, point)) for point in points]  # noqa: B905 - likewise
    if not made:
        raise LookupError("has neither confusion_matrix nor roc_curve")
    return made


def metadata_of(kind: str, path: str) -> dict[str, Any]:
    """Return what an artifact of some class says of its file, as KFP's page shows it for metrics.

    Raises:
        LookupError: if the file has another form.
    """
    if not kind.endswith("Metrics"):
        return {}
    try:
        body = json.loads(content(path).decode("utf-8"))
        if kind == "Metrics":
            return metrics_of({"all": body})
        return table_of(body)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
    ) as error:
        raise LookupError(f"file {os.path.basename(path)!r} is no {kind}: {error}") from error


def hand_over(folder: str, name: str, kind: str, path: str, made: list[str]) -> dict[str, Any]:
    """Move a file or folder of the job to an artifact's place, and return its metadata.

    Raises:
        LookupError: if it is not there, or of another form. The message says what the job made.
    """
    source = os.path.join(folder, *name.split("/"))
    if not os.path.exists(source):
        there = ", ".join(made) or "nothing"
        raise LookupError(f"file {name!r} is not in TRANSLOAD_OUTPUT_DIR; the job made: {there}")
    if not os.path.isfile(source) and not os.path.isdir(source):
        raise LookupError(f"file {name!r} is no regular file and no folder")
    metadata = metadata_of(kind, source)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    shutil.move(source, path)
    return metadata


def write(path: str, text: str) -> None:
    """Write a file, and the folder that it is in."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def report(
    request: dict[str, Any], values: dict[str, Any], metadata: dict[str, dict[str, Any]]
) -> None:
    """Hand the outputs of a task to KFP, which are its values, and the metadata of its artifacts.

    Each value has a file, since the one file of all outputs cannot have NaN or an infinity. A
    backend lists artifacts of its own too, such as the logs that it publishes. They are not ours.
    """
    for name, value in values.items():
        text = plain(value) if isinstance(value, str) else json.dumps(value)
        write(request["outputs"]["parameters"][name]["outputFile"], text)
    listed = request["outputs"].get("artifacts", {})
    artifacts = {}
    for name in metadata:
        if name in listed:
            artifact = dict(listed[name]["artifacts"][0], metadata=metadata[name])
            artifacts[name] = {"artifacts": [artifact]}
    write(request["outputs"]["outputFile"], json.dumps({"artifacts": artifacts}))


def collect(spec: dict[str, Any], request: dict[str, Any], paths: dict[str, str]) -> None:
    """Hand the results and files that were declared to KFP.

    Raises:
        LookupError: for one that the job did not make.
    """
    found = read_results(paths["results"])
    values = {
        port: typed(pick(found, name, key), kind, name) for name, port, kind, key in spec["results"]
    }
    metadata = {"results": {}, "metrics": metrics_of(found)}
    for name, port, kind in spec["files"]:
        made = sorted(os.listdir(paths["files"]))
        metadata[port] = hand_over(paths["files"], name, kind, paths[port], made)
    report(request, values, metadata)


def main(words: list[str]) -> int:
    """Run the program of an encoded spec, and collect its results.

    The words are the spec, KFP's executor input, a path for each artifact, and a text for each
    value of the run.
    """
    spec = json.loads(base64.b64decode(words[0]).decode("utf-8"))
    request = json.loads(words[1])
    paths = dict(zip(spec["artifacts"], words[2:]))  # noqa: B905 - Python 3.10 and later only
    values = dict(zip(spec["values"], words[2 + len(paths) :]))  # noqa: B905 - likewise
    values.update({TRACKER: paths["results"], FILES: paths["files"]})
    empty(paths["results"])
    empty(paths["files"])
    environment = dict(
        os.environ, TRANSLOAD_TRACKER_BASE=paths["results"], TRANSLOAD_OUTPUT_DIR=paths["files"]
    )
    environment.update((name, fill(text, values)) for name, text in spec["env"].items())
    with tempfile.TemporaryDirectory() as folder:
        broken = os.path.join(folder, "error.json")
        environment.update(TRANSLOAD_ERROR_FILE=broken, TORCHELASTIC_ERROR_FILE=broken)
        code = run([fill(text, values) for text in spec["argv"]], environment)
        why = cause(broken)
    if code:
        last_word(f"the job failed: exit code {code}{why}")
        return code
    try:
        collect(spec, request, paths)
    except (LookupError, ValueError, TypeError, OSError) as error:
        why = str(error)
        if isinstance(error, LookupError):
            why = str(error.args[0])
        last_word(f"the job ended well, but {why}")
        return EXIT_NO_RESULT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
