"""Runs a program inside a KFP component and hands what it reported to Kubeflow Pipelines.

The text of this file goes into the component's command (``python3 -c``): it needs nothing but the standard library of
any Python from 3.7 on, and no transload in the image.
"""

from __future__ import annotations

import base64
import json
import math
import os
import signal
import subprocess
import sys
from typing import Any

SCHEMA = 1
EXIT_NO_RESULT = 70


def say(text: str) -> None:
    """Write to the task's log."""
    sys.stderr.write(f"[transload] {text}\n")
    sys.stderr.flush()


def text_of(pieces: list[Any], values: list[str]) -> str:
    """Return a text with the values of its inputs; a number among the pieces says which."""
    return "".join(piece if isinstance(piece, str) else values[piece] for piece in pieces)


def run(argv: list[str], environment: dict[str, str]) -> int:
    """Run the program to its end, passing signals on; return its exit code."""
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
        return 127 if isinstance(error, FileNotFoundError) else 126
    children.append(child)
    for got in early:
        child.send_signal(got)
    code = child.wait()
    return code if code >= 0 else 128 - code


def forget(folder: str) -> None:
    """Remove what an earlier try has reported: a retry on one machine finds it in the same place."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name.endswith(".json"):
            os.unlink(os.path.join(folder, name))


def read_results(folder: str) -> dict[str, dict[str, Any]]:
    """Return key → name → value of what was reported in the public format of results; other files are let be."""
    found = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json") or name.startswith("."):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            body = parse(file.read())
        if body.get("schema", 0) > SCHEMA:
            say(f"{name}: schema {body['schema']!r} is newer than this component reads")
        elif body:
            key = body.get("key")
            found[name[:-5] if key is None else str(key)] = body["results"]
    return found


def parse(data: bytes) -> dict[str, Any]:
    """Return the body of a file of results; nothing if it is none."""
    try:
        body = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    ours = isinstance(body, dict) and type(body.get("schema")) is int and isinstance(body.get("results"), dict)
    return body if ours else {}


def pick(found: dict[str, dict[str, Any]], name: str, key: str | None) -> Any:
    """Return the value of one declared result.

    Raises:
        LookupError: if it was not reported, or under several keys; the message says what there is.
    """
    keys = [each for each in found if name in found[each] and key in (None, each)]
    if len(keys) == 1:
        return found[keys[0]][name]
    if keys:
        raise LookupError(f"result {name!r} was reported under keys {', '.join(keys)}: declare it as 'key/{name}'")
    shown = "; ".join(f"{each}: {', '.join(found[each])}" for each in found) or "nothing"
    raise LookupError(f"result {name!r}{f' of key {key!r}' if key else ''} was not reported; reported: {shown}")


def output_text(value: Any, kind: str, name: str) -> str:
    """Return a value as the file of an output parameter has it.

    Raises:
        LookupError: for a value that is not of the declared type.
    """
    if kind == "String":
        return value if isinstance(value, str) else json.dumps(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (kind == "Integer" and value % 1 != 0):
        raise LookupError(f"result {name!r} is {value!r}, declared as {kind}")
    return json.dumps(int(value) if kind == "Integer" else value)


def metrics_of(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers among the results; NaN and infinities as text, for JSON has none."""
    metrics = {}
    for key, values in sorted(found.items()):
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            alone = sum(name in other for other in found.values()) == 1
            finite = isinstance(value, int) or math.isfinite(value)  # an int may be larger than any float
            metrics[name if alone else f"{key}.{name}"] = value if finite else str(value)
    return metrics


def write(path: str, text: str) -> None:
    """Write a file, and the folder that it is in."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def main(words: list[str]) -> int:
    """Take the encoded spec, KFP's executor input, the results folder, a file per output, a text per input."""
    spec = json.loads(base64.b64decode(words[0]).decode("utf-8"))
    request, folder = json.loads(words[1]), words[2]
    files = words[3 : 3 + len(spec["outputs"])]
    values = [*words[3 + len(files) :], folder]
    forget(folder)
    environment = dict(os.environ, TRANSLOAD_TRACKER_BASE=folder)
    environment.update((name, text_of(pieces, values)) for name, pieces in spec["env"].items())
    code = run([text_of(pieces, values) for pieces in spec["argv"]], environment)
    if code:
        say(f"the app failed: exit code {code}")
        return code
    try:
        found = read_results(folder)
        for path, (name, key, kind) in zip(files, spec["outputs"]):  # noqa: B905 - Python 3.10 and later only
            write(path, output_text(pick(found, name, key), kind, name))
    except (LookupError, ValueError, TypeError, OSError) as error:
        say(f"the app ended well, but {error.args[0] if isinstance(error, LookupError) else error}")
        return EXIT_NO_RESULT
    artifacts = {name: dict(each["artifacts"][0]) for name, each in request["outputs"]["artifacts"].items()}
    artifacts["metrics"]["metadata"] = metrics_of(found)
    output = {"artifacts": {name: {"artifacts": [each]} for name, each in artifacts.items()}}
    write(request["outputs"]["outputFile"], json.dumps(output))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
