"""Have an init container of each pod install the packages that a role needs, in its image.

What it installs them from travels in the arguments of that container. It runs the program that
makes environments everywhere, and the program of the role then starts within what was made.
"""

from __future__ import annotations

import base64
import json
import pkgutil
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from transload.errors import SubmitError
from transload.schedulers.environments import Recipe, order_to_make, program_text
from transload.specs import Role
from transload_kubernetes import names, states
from transload_kubernetes.installing import FAILED

KEY: Final = "kubernetes.environment"
"""Key of a role's metadata for what its init container installs."""
FOLDER: Final = "/transload/environment"
_NOT_STARTED: Final = (126, 127, 128)
_PLACEHOLDER: Final = "<what is installed>"
_LONGEST: Final = 300_000
"""Characters that may travel in a pod, since an object of a cluster has at most 1.5 MB."""
_PIECE: Final = 60_000  # Linux takes at most 128 KiB for one argument
_PREFIXES: Final = ("UV_", "PIP_", "TRANSLOAD_PART")
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

    Args:
        role: the role, which is not changed.
        recipe: the packages, as requirements.

    Raises:
        SubmitError: if the description of the packages is too long.
    """
    content = {"program": program_text(), "order": order_to_make("", recipe.to_dict())}
    made: dict[str, Any] = {"variables": sorted(recipe.variables)}
    text = json.dumps(content)
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    if len(packed) > _LONGEST:
        raise SubmitError(
            f"environment {recipe.environment}: its files take {len(packed):,} characters, and at "
            f"most {_LONGEST:,} travel in a pod; install the packages in the image, and switch "
            "this off by --environment none"
        )
    made["packed"] = packed
    return replace(role, metadata={**role.metadata, KEY: made})


def is_wanted(role: Role) -> bool:
    """Tell whether a role has packages to install."""
    return role.environment is not None and not role.environment.is_none


def failure_rules(role: Role) -> list[dict[str, Any]]:
    """Return the rules of a Job's ``podFailurePolicy``.

    The same installation would fail again.
    """
    if not is_wanted(role):
        return []
    codes = {
        "containerName": names.ENVIRONMENT,
        "operator": "In",
        "values": [FAILED, *_NOT_STARTED],
    }
    return [{"action": "FailIndex", "onExitCodes": codes}]


def add_making(role: Role, spec: dict[str, Any]) -> None:
    """Add the init container that installs a role's packages, and start its program in them.

    Args:
        role: the role.
        spec: that of its pods.
    """
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
        "command": ["python3", "-c", _program(), FOLDER, title, *pieces],
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


def _program() -> str:
    """Return the program of the init container, in the form of a container's field."""
    text = pkgutil.get_data("transload_kubernetes", "installing.py")
    assert text is not None
    return text.decode().replace("$", "$$")


def _variables(env: list[dict[str, Any]], mentioned: Collection[str]) -> list[dict[str, Any]]:
    """Return the variables of a program that an installer gets as well. Secrets are references."""
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
