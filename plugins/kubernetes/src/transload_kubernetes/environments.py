"""Packages that a role needs: an init container of each pod installs them, in the role's image.

What it installs them from travels in the arguments of that container. It runs the program that
makes environments everywhere, and the program of the role then starts within what was made.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from transload.errors import SubmitError
from transload.schedulers.environments import (
    Recipe,
    as_requirements,
    order_to_make,
    program_text,
)
from transload.specs import Role
from transload_kubernetes import names, states

KEY: Final = "kubernetes.environment"
"""Key of a role's metadata for what its init container installs."""
FOLDER: Final = "/transload/environment"
FAILED: Final = 78
"""Exit code of the init container if the packages cannot be installed."""
_NOT_STARTED: Final = (126, 127, 128)
_PLACEHOLDER: Final = "<what is installed>"
_LONGEST: Final = 300_000
"""Characters that may travel in a pod: an object of a cluster has at most 1.5 MB."""
_PIECE: Final = 60_000  # Linux takes at most 128 KiB for one argument
_PREFIXES: Final = ("UV_", "PIP_", "TRANSLOAD_PART")
_MAKE: Final = """
import base64, json, os, subprocess, sys, zlib
root, title = sys.argv[1:3]
made = json.loads(zlib.decompress(base64.b64decode("".join(sys.argv[3:]))).decode())
for name, value in (("PIP_NO_CACHE_DIR", "1"), ("UV_NO_CACHE", "1"), ("PIP_ROOT_USER_ACTION", "ignore")):
    os.environ.setdefault(name, value)
program = os.path.join(root, "builder.py")
with open(program, "w", encoding="utf-8") as file:
    file.write(made["program"])
order = dict(made["order"], root=root)
builder = subprocess.Popen([sys.executable, "-I", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
builder.stdin.write(json.dumps(order).encode() + b"\\n")
builder.stdin.flush()
end, shown = {}, ""
for data in builder.stdout:
    try:
        said = json.loads(data.decode())
    except ValueError:
        continue
    if "line" not in said:
        end = said
    elif said["line"] != shown:
        shown = said["line"]
        print(shown, flush=True)
builder.wait()
if "path" in end:
    os.symlink(end["path"], os.path.join(root, "current"))
    sys.exit(0)
lines = end.get("lines") or []
text = "\\n".join(["%s: cannot be made: %s" % (title, end.get("error", "its builder was ended"))] + lines)
print(text, flush=True)
with open("/dev/termination-log", "w", encoding="utf-8", errors="replace") as file:
    file.write(text[:1000] + text[1000:][-2500:])
sys.exit(78)
"""
"""Runs the program that makes environments, and shows its lines as a log."""
_ENTER: Final = """
import os, sys
venv = os.path.realpath(sys.argv[1])
os.environ["VIRTUAL_ENV"] = venv
os.environ["PATH"] = venv + "/bin:" + os.environ.get("PATH", os.defpath)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as exc:
    sys.stderr.write("%s: cannot be started: %s\\n" % (sys.argv[2], exc.strerror))
    sys.exit(127)
"""
"""Starts a program within an environment. PATH is the image's, which only a container knows."""


def provide(role: Role, recipe: Recipe) -> Role:
    """Return a role whose pods install these packages before its program starts.

    Raises:
        SubmitError: if they cannot be described without uv, or the description is too long.
    """
    recipe = as_requirements(recipe)  # images have no uv
    order = order_to_make("", recipe.to_dict())
    text = json.dumps({"program": program_text(), "order": order})
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    if len(packed) > _LONGEST:
        raise SubmitError(
            f"environment {recipe.environment}: its files take {len(packed):,} characters, and at "
            f"most {_LONGEST:,} travel in a pod; install the packages in the image, and switch "
            "this off by --environment none"
        )
    made = {"packed": packed, "variables": sorted(recipe.variables)}
    return replace(role, metadata={**role.metadata, KEY: made})


def is_wanted(role: Role) -> bool:
    """Tell whether a role has packages to install."""
    return role.environment is not None and not role.environment.is_none


def failure_rules(role: Role) -> list[dict[str, Any]]:
    """Return the rules of a Job's ``podFailurePolicy``: the same installation would fail again."""
    if not is_wanted(role):
        return []
    codes = {
        "containerName": names.ENVIRONMENT,
        "operator": "In",
        "values": [FAILED, *_NOT_STARTED],
    }
    return [{"action": "FailIndex", "onExitCodes": codes}]


def add_making(role: Role, spec: dict[str, Any]) -> None:
    """Add the init container that installs a role's packages, and start its program in them."""
    if not is_wanted(role):
        return
    main = spec["containers"][0]
    made: Mapping[str, Any] = role.metadata.get(KEY) or {}
    packed = str(made.get("packed") or _PLACEHOLDER)
    pieces = [packed[start : start + _PIECE] for start in range(0, len(packed), _PIECE)]
    title = f"environment {role.environment}".replace("$", "$$")
    mount = {"name": names.ENVIRONMENT, "mountPath": FOLDER}
    resources = {
        kind: {name: amount for name, amount in some.items() if name in ("cpu", "memory")}
        for kind, some in (main.get("resources") or {}).items()
    }
    making = {
        "name": names.ENVIRONMENT,
        "image": main["image"],
        "command": ["python3", "-c", _MAKE, FOLDER, title, *pieces],
        "env": _variables(main["env"], made.get("variables") or ()),
        "volumeMounts": [mount],
        "resources": resources,
        **{name: main[name] for name in ("securityContext", "imagePullPolicy") if name in main},
    }
    spec["volumes"] = [*spec["volumes"], {"name": names.ENVIRONMENT, "emptyDir": {}}]
    spec["initContainers"] = [*spec.get("initContainers", ()), making]
    main["volumeMounts"] = [*main["volumeMounts"], mount]
    command = main["command"]
    if role.entrypoint == "python":
        command = ["python"]
    venv = f"{FOLDER}/current/venv"
    main["command"] = [f"{venv}/bin/python", "-I", "-S", "-c", _ENTER, venv, *command]


def _variables(env: list[dict[str, Any]], mentioned: Collection[str]) -> list[dict[str, Any]]:
    """Return the variables of a program that an installer gets as well; secrets are references."""
    found = []
    for each in env:
        name = str(each["name"])
        if name in mentioned or name.startswith(_PREFIXES):
            found.append(each)
    return found


def is_being_made(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod installs its packages now."""
    return bool(states.program(pod, "running", names.ENVIRONMENT))


def why_not_made(pod: Mapping[str, Any]) -> str:
    """Return why a pod could not install its packages, with the installer's last lines.

    ``""`` if it has installed them, or another pod may succeed.
    """
    end = states.program(pod, "terminated", names.ENVIRONMENT)
    code = end.get("exitCode")
    said = str(end.get("message") or "").strip()
    if code == FAILED:
        return said or "its packages cannot be installed"
    if code not in _NOT_STARTED:
        return ""
    containers = (pod.get("spec") or {}).get("initContainers") or ()
    image = next((each["image"] for each in containers if each["name"] == names.ENVIRONMENT), "")
    title = names.annotations_of(pod).get(names.ANNOTATION_ENVIRONMENT, "")
    return (
        f"environment {title}: image {image!r} has no python3 that can be started: name an image "
        "that has one, or install the packages in the image, and switch this off by --environment "
        f"none\n{said}"
    ).strip()
