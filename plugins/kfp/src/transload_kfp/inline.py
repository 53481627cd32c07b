"""Runs a program inside a KFP component and hands what it reported to Kubeflow Pipelines.

The text of this file goes into the component's command (``python3 -c``): it needs nothing but the standard library of
any Python from 3.6 on, and no transload in the image.
"""

import base64
import json
import math
import os
import signal
import subprocess
import sys

SCHEMA = 1
EXIT_NO_RESULT = 70


def say(text):
    sys.stderr.write("[transload] " + text + "\n")
    sys.stderr.flush()


def text_of(pieces, values):
    return "".join(piece if isinstance(piece, str) else values[piece] for piece in pieces)


def run(argv, environment):
    """Run the program to its end, passing signals on; return its exit code."""
    try:
        child = subprocess.Popen(argv, env=environment)
    except OSError as error:
        say("cannot start %r: %s" % (argv[0], error))
        return 127 if isinstance(error, FileNotFoundError) else 126
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, frame: child.send_signal(got))
    code = child.wait()
    return code if code >= 0 else 128 - code


def forget(folder):
    """Remove what an earlier try has reported: a retry on one machine finds it in the same place."""
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name.endswith(".json"):
            os.unlink(os.path.join(folder, name))


def read_results(folder):
    """Return key -> name -> value of what was reported in the public format of results."""
    found = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if not name.endswith(".json") or name.startswith("."):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            body = json.load(file)
        if body.get("schema", SCHEMA) > SCHEMA:
            say("%s: schema %r is newer than this component reads" % (name, body["schema"]))
            continue
        key = body.get("key")
        found[name[:-5] if key is None else str(key)] = body.get("results") or {}
    return found


def pick(found, name, key):
    """Return the value of one declared result; raises LookupError that says what there is."""
    keys = [each for each in found if name in found[each] and key in (None, each)]
    if len(keys) == 1:
        return found[keys[0]][name]
    if keys:
        raise LookupError("result %r was reported under keys %s: declare it as 'key/%s'" % (name, ", ".join(keys), name))
    shown = "; ".join("%s: %s" % (each, ", ".join(found[each])) for each in found) or "nothing"
    raise LookupError("result %r%s was not reported; reported: %s" % (name, " of key %r" % key if key else "", shown))


def output_text(value, kind, name):
    """Return a value as the file of an output parameter has it."""
    if kind == "String":
        return value if isinstance(value, str) else json.dumps(value)
    try:
        number = float(value)
        whole = math.isfinite(number) and number == int(number)
        if kind == "Integer":
            if not whole:
                raise ValueError
            return str(int(value))
    except (TypeError, ValueError):
        raise LookupError("result %r is %r, declared as %s" % (name, value, kind))
    return json.dumps(value if isinstance(value, (int, float)) else number)


def metrics_of(found):
    """Return the numbers among the results; NaN and infinities as text, for JSON has none."""
    metrics = {}
    for key, values in sorted(found.items()):
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            alone = sum(name in other for other in found.values()) == 1
            metrics[name if alone else key + "." + name] = value if math.isfinite(value) else str(value)
    return metrics


def write(path, text):
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def main(words):
    """Words: the encoded spec, KFP's executor input, the results folder, a file per output, a text per value."""
    spec = json.loads(base64.b64decode(words[0]).decode("utf-8"))
    request, folder = json.loads(words[1]), words[2]
    files = words[3 : 3 + len(spec["outputs"])]
    values = words[3 + len(files) :]
    forget(folder)
    environment = dict(os.environ)
    environment.update((name, text_of(pieces, values)) for name, pieces in spec["env"].items())
    environment["TRANSLOAD_TRACKER_BASE"] = folder
    argv = [text_of(pieces, [*values, folder]) for pieces in spec["argv"]]
    code = run(argv, environment)
    if code:
        say("the app failed: exit code %d" % code)
        return code
    try:
        found = read_results(folder)
        for path, (name, key, kind) in zip(files, spec["outputs"]):
            write(path, output_text(pick(found, name, key), kind, name))
    except (LookupError, ValueError, AttributeError, TypeError, OSError) as error:
        say("the app ended well, but %s" % (error.args[0] if error.args else error))
        return EXIT_NO_RESULT
    artifact = dict(request["outputs"]["artifacts"]["metrics"]["artifacts"][0], metadata=metrics_of(found))
    output = {"artifacts": {"metrics": {"artifacts": [artifact]}}}
    write(request["outputs"]["outputFile"], json.dumps(output))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
