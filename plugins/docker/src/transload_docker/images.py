"""Pull images as the policy says, and build them anew to carry a workspace."""

from __future__ import annotations

import copy
import hashlib
import tempfile
from typing import Any, Final

from transload.errors import SpecError, SubmitError
from transload.keeper import layout
from transload.runtime.progress_lines import pieces, progress
from transload.schedulers.folder.home import make_private
from transload.specs import AppDef, Workspace
from transload.workspace import workspace_digest, write_workspace_archive
from transload_docker import names
from transload_docker.convert import WORKSPACE_REPOSITORY, base_image
from transload_docker.engine import CONFLICT, NOT_FOUND, Engine, EngineError
from transload_docker.options import DockerOptions

DEFAULT_FOLDER: Final = "/workspace"
"""Where a workspace goes in an image that has no working directory of its own."""


def inspect(engine: Engine, image: str) -> dict[str, Any] | None:
    """Return what the engine knows of an image, or None if it has none of that name."""
    try:
        found: dict[str, Any] = engine.query(lambda api: api.inspect_image(image))
    except EngineError as exc:
        if exc.code == NOT_FOUND:
            return None
        raise SubmitError(f"image {image!r}: {exc}") from exc
    return found


def ensure(engine: Engine, image: str, policy: str) -> dict[str, Any]:
    """Return what the engine knows of an image, pulled first if the policy says so.

    Raises:
        SubmitError: if it is not there and not to be pulled, or cannot be pulled.
    """
    own = image.startswith(f"{WORKSPACE_REPOSITORY}:")
    found = inspect(engine, image)
    if found is not None and (policy != "always" or own):
        return found
    if policy == "never" or own:
        raise SubmitError(
            f"image {image!r} is not on the engine {engine.url}, and pull=never: "
            f"pull it (docker pull {image}), or run with pull=missing"
        )
    return _pull(engine, image)


def _pull(engine: Engine, image: str) -> dict[str, Any]:
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(image)

    def pull(api: Any) -> str | None:  # to its end: the engine may go away while it works
        seen: dict[str, int] = {}
        with progress(f"pulling {image}") as step:
            for line in api.pull(repository, tag=tag or "latest", stream=True, decode=True):
                if "error" in line:
                    return str(line["error"])
                come = (line.get("progressDetail") or {}).get("current")
                if come is not None and line.get("status") == "Downloading":
                    step(come - seen.get(line["id"], 0))
                    seen[line["id"]] = come
        return None

    try:
        problem = engine.call(pull)
    except EngineError as exc:
        raise SubmitError(
            f"image {image!r} cannot be pulled: {exc}", transient=exc.code >= 500
        ) from exc
    if problem is not None:
        raise SubmitError(f"image {image!r} cannot be pulled: {problem}")
    found = inspect(engine, image)
    if found is None:
        raise SubmitError(f"image {image!r} was pulled and is not there")
    return found


def with_workspaces(engine: Engine, home: str, app: AppDef, opts: DockerOptions) -> AppDef:
    """Return the job with an image that carries the workspace for each role that has one.

    If no role has one, this is ``app`` itself.

    Raises:
        SubmitError: if an image is missing or cannot be built.
        SpecError: if a workspace cannot be read.
    """
    if not any(role.workspace for role in app.roles):
        return app
    app = copy.deepcopy(app)
    for index, role in enumerate(app.roles):
        if role.workspace:
            base = ensure(engine, base_image(role, opts), opts.pull)
            try:
                role.image = _patched(engine, home, base, role.workspace)
            except OSError as exc:
                raise SpecError(f"roles[{index}].workspace: cannot be read: {exc}") from exc
            role.workspace = None
    return app


def _patched(engine: Engine, home: str, base: dict[str, Any], workspace: Workspace) -> str:
    """Return the name of an image with a workspace, which is built unless it is there."""
    config = base.get("Config") or {}
    folder = config.get("WorkingDir") or ""
    folder = DEFAULT_FOLDER if folder in ("", "/") else folder
    key = f"{base['Id']}\n{folder}\n{workspace_digest(workspace)}"
    tag = hashlib.sha256(key.encode()).hexdigest()[:16]
    name = f"{WORKSPACE_REPOSITORY}:{tag}"
    make_private(f"{home}/images")
    with layout.locked(f"{home}/images/{tag}"):  # of this one alone
        if inspect(engine, name) is None:
            try:
                _build(engine, base["Id"], config, workspace, folder, tag)
            except EngineError as exc:
                raise SubmitError(
                    f"workspace {workspace}: its image cannot be built: {exc}"
                ) from exc
    return name


def _build(
    engine: Engine, base: str, config: dict[str, Any], workspace: Workspace, folder: str, tag: str
) -> None:
    # create, copy in, commit: works on every engine, needs no builder and never runs anything
    body: dict[str, Any] = {"Image": base, "Labels": {names.LABEL_WORKSPACE: tag}}
    if not config.get("Entrypoint") and not config.get("Cmd"):
        body["Cmd"] = ["/transload-workspace"]  # an engine makes no container without a program
    made = engine.call(lambda api: api.create_container_from_config(body))["Id"]
    try:
        with tempfile.TemporaryFile() as archive:
            write_workspace_archive(archive, workspace, folder)
            sent = pieces(archive, "sending the workspace")
            engine.call(lambda api: api.put_archive(made, "/", sent))
        changes = [f"WORKDIR {folder}"]  # entrypoint and command stay those of the base
        engine.call(
            lambda api: api.commit(made, repository=WORKSPACE_REPOSITORY, tag=tag, changes=changes)
        )
    finally:
        engine.remove_container(made)


def remove_workspace_images(engine: Engine, home: str) -> list[str]:
    """Remove the patched images that no container uses, and return their names."""
    rows = engine.query(lambda api: api.images(name=WORKSPACE_REPOSITORY))
    removed = []
    for tag in [tag for row in rows for tag in row.get("RepoTags") or ()]:
        try:
            engine.call(lambda api, tag=tag: api.remove_image(tag))  # type: ignore[misc]
            removed.append(tag)
            layout.unlink(f"{home}/images/{tag.rpartition(':')[2]}")
        except EngineError as exc:
            if exc.code not in (CONFLICT, NOT_FOUND):
                raise
    return removed
