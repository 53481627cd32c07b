"""Runs a Python function that was sent as a file, and writes what it returned or raised. Standard library only.

It travels with the function, beside a copy of cloudpickle: nothing need be installed where it runs.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
RESULT = "function.result"
ONE_FILE_BYTES = 4095


def main() -> int:
    """Call the function; return 1 if it raised."""
    with open(os.path.join(HERE, "call.json"), encoding="utf-8") as file:
        call = json.load(file)
    here = list(sys.version_info[:2])
    if here != call["python"]:
        names = ["Python {}.{}".format(*each) for each in (call["python"], here)]
        text = "the function was sent from {}, and runs in {}: they must be the same".format(*names)
        return write({"refused": text}, None, failed=True)
    sys.path.insert(0, HERE)
    if call["cwd"]:
        os.chdir(call["cwd"])
        sys.path[1:1] = [path for path in call["path"] if path not in sys.path]
    import cloudpickle

    try:
        with open(os.path.join(HERE, "call.pkl"), "rb") as file:
            fn, args, kwargs = pickle.load(file)  # noqa: S301 - the submitter's own
        value = fn(*args, **kwargs)
    except Exception as exc:
        text = traceback.format_exc()
        sys.stderr.write(text)
        try:
            body = cloudpickle.dumps(exc)
            pickle.loads(body)  # noqa: S301 - what cannot be read again is told as text
        except Exception:
            body = None
        return write({"raised": text, "type": type(exc).__name__}, body, failed=True)
    try:
        body = cloudpickle.dumps(value)
    except Exception as exc:
        text = f"what the function returned cannot be pickled: {type(exc).__name__}: {exc}"
        return write({"refused": text}, None, failed=True)
    return write({}, body, failed=False)


def write(head: dict[str, str], body: bytes | None, *, failed: bool) -> int:
    """Write a line of JSON and the pickled value to where results go."""
    data = json.dumps({**head, "value": body is not None}).encode() + b"\n" + (body or b"")
    base = os.environ.get("TRANSLOAD_TRACKER_BASE", "")
    one_file = os.environ.get("TRANSLOAD_RESULT_FILE", "")
    if not base and one_file:
        line = json.dumps({"file": RESULT, "base64": base64.b64encode(data).decode()}).encode() + b"\n"
        if len(line) > ONE_FILE_BYTES:
            text = "the result takes {} bytes, more than the {} that come back without storage: give tracker_base"
            line = b""
            if "refused" not in head:
                return write({"refused": text.format(len(data), ONE_FILE_BYTES)}, None, failed=True)
        with open(one_file, "ab") as file:
            file.write(line)
    elif "://" in base and not base.startswith(("file://", "local://")):
        import fsspec

        with fsspec.open(base.rstrip("/") + "/" + RESULT, "wb") as target:
            target.write(data)
    elif base:
        folder = base.partition("://")[2] or base
        os.makedirs(folder, exist_ok=True)
        aside = os.path.join(folder, f".{RESULT}.{os.getpid()}.tmp")
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, os.path.join(folder, RESULT))
    if "refused" in head:
        sys.stderr.write(head["refused"] + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
