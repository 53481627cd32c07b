"""Run a Python function that was sent as a file, and write its result or exception.

It keeps to the standard library. It travels with the function and a copy of cloudpickle, so nothing
need be installed where it runs. They lie in a separate folder whose name no module can have, and so
hide no module of the user's.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import os
import pickle
import sys
import traceback
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
RESULT = "function.result"
KEY = "TRANSLOAD_FUNCTION_KEY"
"""The variable with the secret key, in hexadecimal digits, that signs what comes back.

Without a key only JSON comes back.
"""
PLACE = ".transload-function"
"""The folder in the job's workspace with the call and this program."""
PROGRAM = PLACE + "/main.py"
MODULES = "modules"
"""The folder beside this program with the modules that came along."""
ONE_FILE_BYTES = 4095

MOST_BITS = 10_000  # of a whole number, since Python reads some 4,300 digits
MOST_DEPTH = 100


def main() -> int:
    """Call the function, and return 1 if it raised, else 0."""
    # before anything of the user's runs: no child of it inherits the key, and it may clear the rest
    key = os.environ.pop(KEY, "")
    answer = functools.partial(write, key=key, env=dict(os.environ))
    with open(os.path.join(HERE, "call.json"), encoding="utf-8") as file:
        call = json.load(file)
    here = list(sys.version_info[:2])
    if here != call["python"]:
        names = ["Python {}.{}".format(*each) for each in (call["python"], here)]
        text = "the function was sent from {}, and runs in {}: they must be the same".format(*names)
        return answer({"refused": text}, None, failed=True)
    dumps = prepare(call)
    try:
        with open(os.path.join(HERE, "call.pkl"), "rb") as file:
            fn, args, kwargs = pickle.load(file)  # noqa: S301 - the submitter's own
        value = fn(*args, **kwargs)
    except Exception as exc:
        text = traceback.format_exc()
        sys.stderr.write(text)
        body = pickled_exception(exc, dumps) if key else None
        return answer({"raised": text, "type": type(exc).__name__}, body, failed=True)
    if is_json(value, set()):
        return answer({"json": value}, None, failed=False)
    if not key:
        text = f"the function returned a {type(value).__name__}, which is not JSON: only that comes back without a key"
        return answer({"refused": text}, None, failed=True)
    try:
        body = dumps(value)
    except Exception as exc:
        text = f"what the function returned cannot be pickled: {type(exc).__name__}: {exc}"
        return answer({"refused": text}, None, failed=True)
    return answer({}, body, failed=False)


def prepare(call: dict[str, Any]) -> Any:
    """Make modules findable as they are for the submitter, and return what pickles."""
    library = os.path.join(HERE, "library")
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    sys.path.insert(0, library)
    import cloudpickle

    # from now on the user's modules go before ours
    sys.path[0:1] = [os.path.dirname(HERE), os.path.join(HERE, MODULES)]
    if call["cwd"]:
        os.chdir(call["cwd"])
        sys.path[2:2] = [path for path in call["path"] if path not in sys.path]
    sys.path.append(library)  # a process that the function starts may need it
    return cloudpickle.dumps


def pickled_exception(exc: Exception, dumps: Any) -> bytes | None:
    """Return an exception as it can be read again, or None if it cannot, so its text must do."""
    try:
        body: bytes = dumps(exc)
        pickle.loads(body)  # noqa: S301 - just made
    except Exception:
        return None
    return body


def is_json(value: object, seen: set[int], depth: int = 0) -> bool:
    """Tell whether a value is the same again after it was written as JSON and read.

    Args:
        value: what is looked at.
        seen: ids of the lists and dicts before it. One that occurs twice would become two.
        depth: how many lists and dicts it lies in.
    """
    kind = type(value)
    if kind is int:
        return value.bit_length() < MOST_BITS  # type: ignore[attr-defined, no-any-return]
    if kind is str:
        return is_text(value)  # type: ignore[arg-type]
    if kind not in (list, dict):
        return value is None or kind in (bool, float)
    if id(value) in seen or depth > MOST_DEPTH:
        return False
    seen.add(id(value))
    if kind is list:
        return all(is_json(each, seen, depth + 1) for each in value)  # type: ignore[attr-defined]
    items = value.items()  # type: ignore[attr-defined]
    return all(
        type(name) is str and is_text(name) and is_json(each, seen, depth + 1)
        for name, each in items
    )


def is_text(text: str) -> bool:
    """Tell whether a text can be written as UTF-8.

    Of lone surrogates JSON may make something else.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def signature(key: str, data: bytes) -> str:
    """Return the hexadecimal HMAC-SHA256 of data."""
    return hmac.new(bytes.fromhex(key), data, hashlib.sha256).hexdigest()


def write(
    head: dict[str, Any], body: bytes | None, *, key: str, env: dict[str, str], failed: bool
) -> int:
    """Write a result file of a signature, a line of JSON, and the pickled value.

    The signature covers all the rest. The line of JSON names the job and its attempt. So a file
    that was signed for another job, or in an earlier attempt, is not accepted.

    Args:
        head: what the line of JSON says besides.
        body: the pickled value, if there is one.
        key: signs it.
        env: the variables that the job began with, which say where it goes.
        failed: the function failed.

    Returns:
        The exit status, which is 1 if the function failed.
    """
    attempt = env.get("TRANSLOAD_RETRY", "")
    said = {
        "app": env.get("TRANSLOAD_APP_ID", ""),
        "attempt": int(attempt) if attempt.isdigit() else 0,
    }
    head_line = json.dumps({**said, **head, "value": body is not None}).encode()
    data = head_line + b"\n" + (body or b"")
    data = (signature(key, data).encode() if key else b"") + b"\n" + data
    base = env.get("TRANSLOAD_TRACKER_BASE", "")
    one_file = env.get("TRANSLOAD_RESULT_FILE", "")
    if not base and one_file:
        line = (
            json.dumps({"file": RESULT, "base64": base64.b64encode(data).decode()}).encode() + b"\n"
        )
        if len(line) > ONE_FILE_BYTES:
            text = "the result takes {} bytes, more than the {} that come back without storage: give tracker_base"
            line = b""
            if "refused" not in head:
                refused = {"refused": text.format(len(data), ONE_FILE_BYTES)}
                return write(refused, None, key=key, env=env, failed=True)
        with open(one_file, "ab") as file:
            file.write(line)
    elif "://" in base and not base.startswith(("file://", "local://")):
        import fsspec

        with fsspec.open(base.rstrip("/") + "/" + RESULT, "wb") as target:
            target.write(data)
    elif base:
        write_file(base.partition("://")[2] or base, data)
    if "refused" in head:
        sys.stderr.write(head["refused"] + "\n")
    return 1 if failed else 0


def write_file(folder: str, data: bytes) -> None:
    """Write the file in a folder, all of it or nothing."""
    os.makedirs(folder, exist_ok=True)
    aside = os.path.join(folder, f".{RESULT}.{os.getpid()}.tmp")
    with open(aside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, os.path.join(folder, RESULT))


if __name__ == "__main__":
    sys.exit(main())
