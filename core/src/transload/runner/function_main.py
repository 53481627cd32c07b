"""Call the pickled function beside this file, and write what it returned or raised.

It travels with the function and a copy of cloudpickle, and keeps to the standard library, so
nothing need be installed where it runs.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import traceback
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PLACE = ".transload-function"
"""The folder in the job's workspace with the call, this program and cloudpickle."""
PROGRAM = PLACE + "/main.py"
RESULT = "function.result"
"""The file that the value comes back in: a line of JSON, then a pickle."""
ONE_FILE_BYTES = 4095
"""What a job without storage may write at most."""


def main() -> int:
    """Call the function, and return 1 if it raised, else 0."""
    env = dict(os.environ)  # the function may change them
    with open(os.path.join(HERE, "call.json"), encoding="utf-8") as file:
        call = json.load(file)
    here = list(sys.version_info[:2])
    if here != call["python"]:
        names = ["Python {}.{}".format(*each) for each in (call["python"], here)]
        text = "the function was sent from {}, and runs in {}: they must be the same".format(*names)
        return refuse(text, env)
    dumps = prepare(call)
    try:
        with open(os.path.join(HERE, "call.pkl"), "rb") as file:
            fn, args, kwargs = pickle.load(file)  # noqa: S301 - the submitter's own
        value = fn(*args, **kwargs)
    except Exception as exc:
        text = traceback.format_exc()
        sys.stderr.write(text)
        write({"raised": text}, pickled_exception(exc, dumps), env)
        return 1
    head = {"json": value} if is_json(value) else {}
    try:
        body = dumps(value)
    except Exception as exc:
        why = f"{type(exc).__name__}: {exc}"
        return refuse(f"what the function returned cannot be pickled: {why}", env)
    return write(head, body, env)


def prepare(call: dict[str, Any]) -> Any:
    """Make modules findable as they are for the submitter, and return what pickles."""
    library = os.path.join(HERE, "library")
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    sys.path.insert(0, library)
    import cloudpickle

    # from now on the user's modules go before ours
    sys.path[0] = os.path.dirname(HERE)
    if call["cwd"]:
        os.chdir(call["cwd"])
        sys.path[1:1] = [path for path in call["path"] if path not in sys.path]
    sys.path.append(library)  # a process that the function starts may need it
    return cloudpickle.dumps


def pickled_exception(exc: Exception, dumps: Any) -> bytes:
    """Return an exception as it can be read again, or nothing if it cannot: its text must do."""
    try:
        body: bytes = dumps(exc)
        pickle.loads(body)  # noqa: S301 - just made
    except Exception:
        return b""
    return body


def is_json(value: object) -> bool:
    """Tell whether a value is the same again after it was written as JSON and read."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except Exception:
        return False


def refuse(text: str, env: dict[str, str]) -> int:
    """Say why no value comes back, and return 1."""
    sys.stderr.write(f"{text}\n")
    write({"refused": text}, b"", env)
    return 1


def write(head: dict[str, Any], body: bytes, env: dict[str, str]) -> int:
    """Write the file of the result, and return 0, or 1 if it is too large.

    Args:
        head: what the line of JSON says, besides the number of the attempt.
        body: the pickled value or exception, if there is one.
        env: the variables that the job began with, which say where it goes.
    """
    attempt = env.get("TRANSLOAD_RETRY", "")
    said = {"attempt": int(attempt) if attempt.isdigit() else 0, **head}
    data = json.dumps(said).encode() + b"\n" + body
    base = env.get("TRANSLOAD_TRACKER_BASE", "")
    one_file = env.get("TRANSLOAD_RESULT_FILE", "")
    if base:
        write_file(base.rstrip("/"), data)
    elif one_file:
        line = json.dumps({"file": RESULT, "base64": base64.b64encode(data).decode()}) + "\n"
        if len(line) > ONE_FILE_BYTES and "refused" not in head:
            if body and head:
                return write(head, b"", env)
            text = "the result takes {} bytes, more than the {} that come back without storage"
            return refuse(text.format(len(data), ONE_FILE_BYTES) + ": give tracker_base", env)
        with open(one_file, "a", encoding="ascii") as file:
            file.write(line)
    return 0


def write_file(folder: str, data: bytes) -> None:
    """Write the file in a folder or an fsspec URL, in a folder all of it or nothing."""
    scheme, mark, path = folder.partition("://")
    if mark and scheme not in ("file", "local"):
        import fsspec

        with fsspec.open(f"{folder}/{RESULT}", "wb") as target:
            target.write(data)
        return
    folder = path or folder
    os.makedirs(folder, exist_ok=True)
    aside = os.path.join(folder, f".{RESULT}.{os.getpid()}.tmp")
    with open(aside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, os.path.join(folder, RESULT))


if __name__ == "__main__":
    sys.exit(main())
