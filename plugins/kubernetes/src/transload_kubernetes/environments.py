"""Have an init container of each pod install the packages that a role needs, in its image.

What it installs them from travels in the arguments of that container. It runs the program that
makes environments everywhere, and the program of the role then starts within what was made. Where
pods reach no index, wheels travel as well (`transload_kubernetes.wheels`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import pkgutil
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from transload.errors import SubmitError
from transload.schedulers.environments import (
    Recipe,
    WheelTarget,
    order_to_make,
    program_text,
)
from transload.specs import Role
from transload_kubernetes import names, states
from transload_kubernetes.fetching import fetching
from transload_kubernetes.installing import FAILED
from transload_kubernetes.options import Options

KEY: Final = "kubernetes.environment"
"""Key of a role's metadata for what its init container installs."""
FOLDER: Final = "/transload/environment"
WHEELS: Final = "/transload/wheels"
"""Folder of the wheels, in the init container that installs them."""
_NOT_STARTED: Final = (126, 127, 128)
_PLACEHOLDER: Final = "<what is installed>"
_WHEELS_PLACEHOLDER: Final = "<folder of wheels>"
_LONGEST: Final = 300_000
"""Characters that may travel in a pod, since an object of a cluster has at most 1.5 MB."""
_MOST_BYTES: Final = 1_000_000
"""Bytes of wheels that may travel in a ConfigMap, of which a cluster takes at most 1 MiB."""
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


@dataclass(frozen=True)
class Wheels:
    """The wheels of a role's packages, on their way to its pods.

    Args:
        target: the Python that they are for.
        folder: where the init container that installs them finds them.
        image: the one that has them, or ``""`` for the role's own, which has none.
        url: where an archive of them is, to be fetched first, or ``""`` for nowhere.
        files: name → content in base64, of those that travel in the job's ConfigMap.
    """

    target: WheelTarget
    folder: str
    image: str = ""
    url: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


def provide(role: Role, recipe: Recipe, wheels: Wheels | None = None) -> Role:
    """Return a role whose pods install these packages before its program starts.

    Args:
        role: the role, which is not changed.
        recipe: the packages, as requirements.
        wheels: they are installed from these, or with None from an index.

    Raises:
        SubmitError: if the description of the packages is too long.
    """
    content = {"program": program_text(), "order": order_to_make("", recipe.to_dict())}
    made: dict[str, Any] = {"variables": sorted(recipe.variables)}
    if wheels is not None:
        content["target"] = asdict(wheels.target)
        made["wheels"] = asdict(wheels)
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


def refuse_large(contents: Iterable[str], what: str) -> None:
    """Refuse wheels, in base64, that together are too large for a ConfigMap.

    Raises:
        SubmitError: with their size, and other ways for them.
    """
    size = sum(len(base64.b64decode(each)) for each in contents)
    if size > _MOST_BYTES:
        raise SubmitError(
            f"{what}: its wheels have {size:,} bytes, and a ConfigMap takes at most "
            f"{_MOST_BYTES:,}: set run option image_repo, a registry, or workspace_url, a storage, "
            "which the pods reach"
        )


def config_map(
    roles: Iterable[Role], base: str, labels: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the ConfigMap with the wheels that the roles of a job install, or None without any.

    Raises:
        SubmitError: if they are too large for it.
    """
    found: dict[str, str] = {}
    for role in roles:
        wheels = _wheels_of(role)
        if wheels is not None:
            found.update({_key(data): data for data in wheels.files.values()})
    if not found:
        return None
    refuse_large(found.values(), "environments of the job")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.wheels_name(base), "labels": dict(labels)},
        "immutable": True,
        "binaryData": found,
    }


def _wheels_of(role: Role) -> Wheels | None:
    made: Mapping[str, Any] = role.metadata.get(KEY) or {}
    found = made.get("wheels")
    if not found:
        return None
    return Wheels(**{**found, "target": WheelTarget(**found["target"])})


def _key(data: str) -> str:
    """Return the key of a wheel in the ConfigMap, by its content.

    Its name may have characters that are not allowed there.
    """
    return hashlib.sha256(data.encode()).hexdigest()[:32]


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


def add_making(role: Role, spec: dict[str, Any], base: str, options: Options) -> None:
    """Add the init container that installs a role's packages, and start its program in them.

    Args:
        role: the role.
        spec: that of its pods.
        base: the prefix of the names of the job's objects.
        options: the run options.
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
    wheels = _wheels_of(role)
    folder = ""
    if wheels is not None:
        folder = wheels.folder
    elif options.cfg.get("offline"):
        folder = _WHEELS_PLACEHOLDER
    variables: list[dict[str, Any]] = []
    if not folder:  # wheels need no index, nor what opens it
        variables = _variables(main["env"], made.get("variables") or ())
    making = {
        "name": names.ENVIRONMENT,
        "image": main["image"],
        "command": ["python3", "-c", _program(), FOLDER, folder, title, *pieces],
        "env": variables,
        "volumeMounts": [mount],
        "resources": resources,
        **{name: main[name] for name in ("securityContext", "imagePullPolicy") if name in main},
    }
    spec["volumes"] = [*spec["volumes"], {"name": names.ENVIRONMENT, "emptyDir": {}}]
    before = list(spec.get("initContainers", ()))
    if wheels is not None:
        making["image"] = wheels.image or making["image"]
        _add_files(wheels, spec, making, base)
        if wheels.url:
            image = options.text("workspace_image") or main["image"]
            fetch = fetching(names.WHEELS, wheels.url, wheels.folder, image, main, mount)
            before.append(fetch)
    spec["initContainers"] = [*before, making]
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


def _add_files(wheels: Wheels, spec: dict[str, Any], making: dict[str, Any], base: str) -> None:
    """Mount the wheels that travel in the job's ConfigMap, each under its name."""
    if not wheels.files:
        return
    items = [{"key": _key(data), "path": name} for name, data in wheels.files.items()]
    source = {"name": names.wheels_name(base), "items": items}
    spec["volumes"] = [*spec["volumes"], {"name": names.WHEELS, "configMap": source}]
    mount = {"name": names.WHEELS, "mountPath": wheels.folder, "readOnly": True}
    making["volumeMounts"] = [*making["volumeMounts"], mount]


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
