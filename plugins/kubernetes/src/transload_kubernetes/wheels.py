"""Bring the wheels of a role's packages to pods that reach no index.

They are fetched here, and travel as a layer of an image, through a storage, or in a ConfigMap.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from transload.errors import ConfigError, SubmitError
from transload.schedulers.environments import Recipe, WheelTarget, fetch_wheels
from transload.specs import Role, Workspace
from transload.workspace import archive_digest
from transload_kubernetes.environments import FOLDER, WHEELS, Wheels, refuse_large
from transload_kubernetes.options import MACHINES, Options
from transload_kubernetes.pod import named_image
from transload_kubernetes.registry import Image, as_submit_error
from transload_kubernetes.workspace import packed, upload

_OFFICIAL: Final = re.compile(r"(?:^|/)python:(3\.\d+)")
"""The official image of Python, of which the name says the version."""
_VERSION: Final = "PYTHON_VERSION"
"""Variable of the official image of Python, and of what is built on it."""


@dataclass(frozen=True)
class _Base:
    """What is known of the image that a role's packages are installed in.

    Args:
        name: its name.
        digest: that of its manifest, or ``""`` if its registry was not asked.
        manifest: its manifest.
        config: its configuration.
    """

    name: str
    digest: str = ""
    manifest: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def python(self) -> str:
        """The version of its Python, or ``""`` if it does not say."""
        for each in (self.config.get("config") or {}).get("Env") or ():
            name, _, value = str(each).partition("=")
            if name == _VERSION and value.startswith("3."):
                return ".".join(value.split(".")[:2])
        found = _OFFICIAL.search(self.name)
        if found is None:
            return ""
        return found[1]


def bring(role: Role, recipe: Recipe, options: Options, variables: Mapping[str, str]) -> Wheels:
    """Fetch the wheels of a role's packages, and bring them to where its pods find them.

    With ``image_repo`` an image that was pushed for the same packages is used again.

    Args:
        role: the role.
        recipe: what is to be installed: requirements.
        options: the run options.
        variables: for the installer here alone.

    Raises:
        ConfigError: if the image's Python is not known, or is for another kind of machine.
        SubmitError: if the wheels cannot be fetched or sent, or are too large for a ConfigMap.
    """
    name = named_image(role, options.text("image"))
    repository = options.text("image_repo")
    if repository:
        with as_submit_error(f"image {name!r} with wheels, to {repository}"):
            return _in_an_image(name, repository, recipe, options, variables)
    target = _target(_Base(name), recipe, options)
    with tempfile.TemporaryDirectory(prefix="transload-") as folder:
        wheels = fetch_wheels(recipe, target, variables, folder)
        if not os.listdir(wheels):
            return Wheels(target, FOLDER)
        storage = options.text("workspace_url")
        if storage:
            workspace = Workspace({wheels: ""})
            url = upload(workspace, archive_digest(workspace), storage)
            return Wheels(target, f"{FOLDER}/wheels", url=url)
        files = {
            path.name: base64.b64encode(path.read_bytes()).decode()
            for path in sorted(Path(wheels).iterdir())
        }
    refuse_large(files.values(), f"environment {recipe.environment}")
    return Wheels(target, WHEELS, files=files)


def _in_an_image(
    name: str,
    repository: str,
    recipe: Recipe,
    options: Options,
    variables: Mapping[str, str],
) -> Wheels:
    """Push an image with the wheels as one more layer, unless it is there."""
    image = Image(name)
    digest, manifest = image.manifest(options.architecture())
    base = _Base(name, digest, manifest, image.config(manifest))
    target = _target(base, recipe, options)
    environment = recipe.environment
    content = [
        digest,
        environment.sha256,
        sorted(environment.groups),
        sorted(environment.extras),
        target.version,
        target.platforms[0],
    ]
    tag = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
    made = Image(f"{repository}:{tag}")
    if not made.exists():
        with tempfile.TemporaryDirectory(prefix="transload-") as folder:
            workspace = Workspace({fetch_wheels(recipe, target, variables, folder): ""})
            with packed(workspace, WHEELS) as (layer, inner):
                made.push(image, base.manifest, base.config, layer, inner, "wheels")
    return Wheels(target, WHEELS, image=made.name)


def _target(base: _Base, recipe: Recipe, options: Options) -> WheelTarget:
    """Return the Python that the wheels must fit, by the options and what the image says."""
    version = options.text("offline_python") or recipe.environment.python or base.python
    if not version:
        raise ConfigError(
            f"run option offline_python: must be given: image {base.name!r} does not say which "
            "Python it has; set it, such as offline_python=3.11"
        )
    architecture = str(base.config.get("architecture") or options.architecture())
    machine = MACHINES.get(architecture, architecture)
    given = options.text("offline_platform")
    libc = "manylinux_2_28"
    if "alpine" in base.name:
        libc = "musllinux_1_2"
    target = WheelTarget.of_platform(version, given or f"{libc}_{machine}")
    if target is None:
        raise SubmitError(
            f"run option offline_platform: must be given: wheels for nodes of {architecture!r} "
            "are not known"
        )
    if base.config and target.machine != machine:
        raise ConfigError(
            f"run option offline_platform={given!r}: image {base.name!r} is one for {machine}; "
            "change one of them"
        )
    return target
