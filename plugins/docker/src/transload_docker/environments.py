"""Images with the packages of a role, made in a container and kept under the digest of both.

They are installed in a container of the role's image. The engine ends and removes the container
when the process that asked for it dies. An image gets its name once all is installed. Without a
name it is never used.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from transload.cli.progress import changing_line
from transload.errors import SchedulerUnavailable, SubmitError
from transload.schedulers.environments import (
    MadeEnvironment,
    Recipe,
    as_requirements,
    follow_making,
    order_to_make,
    program_text,
)
from transload.specs import CfgVal, Role
from transload_docker import builder, images, names
from transload_docker.convert import (
    ENVIRONMENT_IMAGE,
    ENVIRONMENT_REPOSITORY,
    base_image,
    is_folder,
)
from transload_docker.engine import CONFLICT, NOT_FOUND, Engine, EngineError, ignoring, path_of
from transload_docker.home import Home
from transload_docker.states import seconds

_ROOT: Final = "/opt/transload"
_TOOLS: Final = "/opt/transload-builder"
_SLOTS: Final = 64
_LONGEST_WAIT_S: Final = 6 * 3600.0
_IDLE_S: Final = 600.0
"""One that was used so recently may be for a job that is being submitted."""
_REMOVAL_S: Final = 60.0
_KEPT_LINES: Final = 12
_PYTHONS: Final = ("python3", "python")
_ELF: Final = b"\x7fELF"
_LINKER: Final = rb"/lib[\w/]*/ld-[\w.-]+"
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_DEFAULTS: Final = {
    "UV_NO_CACHE": "1",  # what is cached would be part of the image
    "PIP_NO_CACHE_DIR": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "UV_COMPILE_BYTECODE": "1",  # else each container would, and lose it
}


@dataclass(frozen=True)
class _Wanted:
    """An image that carries packages.

    Args:
        recipe: the packages.
        image: what they are installed on top of.
        base: what the engine knows of that.
        path: PATH of the job's programs.
        network: of the container that installs them, or ``""`` for the engine's default.
        tag: the digest of content and place, 32 hex digits.
    """

    recipe: Recipe
    image: str
    base: dict[str, Any]
    path: str
    network: str
    tag: str

    @property
    def name(self) -> str:
        return f"{ENVIRONMENT_REPOSITORY}:{self.tag}"

    @property
    def title(self) -> str:
        return f"environment {self.recipe.environment}"

    @property
    def config(self) -> dict[str, Any]:
        return self.base.get("Config") or {}

    def labels(self) -> dict[str, str]:
        environment = self.recipe.environment
        record = {
            "kind": environment.kind,
            "name": environment.name,
            "sha256": environment.sha256,
        }
        return {
            names.LABEL_ENVIRONMENT: self.tag,
            names.LABEL_ENVIRONMENT_OF: json.dumps(record),
        }


def provide(
    engine: Engine,
    home: Home,
    role: Role,
    recipe: Recipe,
    cfg: Mapping[str, CfgVal],
    variables: Mapping[str, str],
) -> Role:
    """Return a role that runs in an image with its packages, which is made if it is not there.

    Raises:
        SubmitError: if it cannot be made, with the installer's last lines.
        SchedulerUnavailable: if the engine cannot be reached.
    """
    wanted = _wanted(engine, role, recipe, cfg)
    folder = _find(engine, wanted)
    if folder is None:
        with _locked(home, wanted):
            folder = _find(engine, wanted)  # whoever had the lock may have made it
            if folder is None:
                folder = _make(engine, home, wanted, variables)
    added = {"VIRTUAL_ENV": f"{folder}/venv", "PATH": f"{folder}/venv/bin:{wanted.path}"}
    changed = replace(role, env={**role.env, **added})
    if is_folder(role.image) and not role.workspace:
        # the folder is mounted still
        return replace(changed, metadata={**role.metadata, ENVIRONMENT_IMAGE: wanted.name})
    return replace(changed, image=wanted.name)


def _wanted(engine: Engine, role: Role, recipe: Recipe, cfg: Mapping[str, CfgVal]) -> _Wanted:
    image = base_image(role, cfg)
    base = images.ensure(engine, image, str(cfg["pull"]))
    given = cfg.get("env")
    path = path_of(base.get("Config") or {})
    if isinstance(given, Mapping):
        path = str(given.get("PATH", path))
    path = role.env.get("PATH", path)
    network = str(cfg.get("network") or "")
    if network == "none":
        network = ""  # the job has none, but an index must be reached
    environment = recipe.environment
    parts = [
        base["Id"],
        path,
        environment.sha256,
        sorted(environment.groups),
        sorted(environment.extras),
        environment.python,
    ]
    tag = names.short_hash(json.dumps(parts), 32)
    return _Wanted(recipe, image, base, path, network, tag)


def _find(engine: Engine, wanted: _Wanted) -> str | None:
    """Note the use of a finished image, and return the folder of its packages, if it is there."""
    try:
        # an engine remembers when an image was last named
        engine.call(lambda api: api.tag(wanted.name, ENVIRONMENT_REPOSITORY, wanted.tag))
    except EngineError as exc:
        if exc.code == NOT_FOUND:
            return None
        raise SubmitError(f"{wanted.title}: {exc}", transient=exc.code >= 500) from exc
    found = images.inspect(engine, wanted.name) or {}
    return _labels(found).get(names.LABEL_ENVIRONMENT_PATH)


def _labels(image: Mapping[str, Any]) -> dict[str, str]:
    return (image.get("Config") or {}).get("Labels") or {}


@contextlib.contextmanager
def _locked(home: Home, wanted: _Wanted) -> Iterator[None]:
    """Hold the lock under which an image is made. It is free again when its holder dies."""
    name = _lock_name(wanted.tag)
    with contextlib.ExitStack() as stack:
        if not stack.enter_context(home.lock(wanted.tag, patience=0.0, name=name)):
            with changing_line(rare=True) as show:
                show(f"{wanted.title}: another process makes it: waiting")
                stack.enter_context(home.lock(wanted.tag, patience=_LONGEST_WAIT_S, name=name))
        yield


def _lock_name(tag: str) -> str:
    return f"environment-lock-{int(names.short_hash(tag), 16) % _SLOTS:02d}"


# -- making one


def _make(engine: Engine, home: Home, wanted: _Wanted, variables: Mapping[str, str]) -> str:
    """Make the image of an environment, and return the folder in it. The lock is held."""
    container = _container_name(home, wanted.tag)
    try:
        _remove_left(engine, container, wanted.tag)
        python, uv = _look_into(engine, wanted, container)
        body = _body(wanted, [python, "-I", f"{_TOOLS}/builder.py", _TOOLS, _ROOT, wanted.path])
        made = _create(engine, body, container)
        try:
            return _install(engine, wanted, made, variables, uv)
        finally:
            with contextlib.suppress(SchedulerUnavailable, EngineError):
                engine.remove_container(made)
    except EngineError as exc:
        text = f"{wanted.title}: cannot be made inside of image {wanted.image!r}: {exc}"
        raise SubmitError(text, transient=exc.code >= 500) from exc


def _container_name(home: Home, tag: str) -> str:
    return f"{ENVIRONMENT_REPOSITORY}.{tag}.{names.short_hash(home.owner)}"


def _create(engine: Engine, body: dict[str, Any], name: str) -> str:
    deadline = time.monotonic() + _REMOVAL_S
    while True:
        try:
            made = engine.call(lambda api: api.create_container_from_config(body, name))
            return str(made["Id"])
        except EngineError as exc:
            # the engine is still removing that of a maker that was killed
            if exc.code != CONFLICT or time.monotonic() >= deadline:
                raise
        time.sleep(0.1)


def _remove_left(engine: Engine, container: str, tag: str) -> None:
    """Remove what a killed maker has left. The lock is held."""
    engine.remove_container(container)
    filters = {"dangling": True, "label": f"{names.LABEL_ENVIRONMENT}={tag}"}
    for row in engine.query(lambda api: api.images(filters=filters)):
        with ignoring(CONFLICT, NOT_FOUND):
            engine.call(lambda api, image=row["Id"]: api.remove_image(image))  # type: ignore[misc]


def _look_into(engine: Engine, wanted: _Wanted, name: str) -> tuple[str, str]:
    """Return the path of Python in an image, and that of this machine's uv, if it runs there.

    Raises:
        SubmitError: if the image has no Python.
    """
    body = _body(wanted, ["python3"])
    probe = _create(engine, body, name)
    try:
        found = (engine.find_program(probe, each, wanted.path) for each in _PYTHONS)
        python = next(filter(None, found), "")
        uv = _uv_for(engine, wanted, probe)
    finally:
        engine.remove_container(probe)
    if not python:
        raise SubmitError(
            f"{wanted.title}: image {wanted.image!r} has no Python on PATH ({wanted.path}): name "
            "an image that has one, or install the packages in the image, and switch this off by "
            "--environment none"
        )
    return python, uv


def _uv_for(engine: Engine, wanted: _Wanted, container_id: str) -> str:
    """Return the path of this machine's uv if it runs in a container, else "".

    It does on the same kind of machine, with the same dynamic linker.
    """
    uv = _find_uv()
    if not uv or wanted.base.get("Architecture") != _MACHINES.get(platform.machine()):
        return ""
    with open(uv, "rb") as file:
        linker = re.search(_LINKER, file.read(4096))
    if linker is None or engine.has_file(container_id, linker[0].decode()):
        return uv
    return ""


def _find_uv() -> str:
    """Return the path of the program uv of this machine, or "" if there is none.

    A script that starts uv is not such a program.
    """
    try:
        from uv import find_uv_bin  # type: ignore[import-not-found,unused-ignore]

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv") or ""
    if not found or _is_program(found):
        return found
    code = "import os; print(os.environ.get('UV', ''))"  # uv says where it is
    words = [found, "run", "--no-project", "--offline", "--python", sys.executable, "python"]
    try:
        done = subprocess.run(
            [*words, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    found = done.stdout.strip()
    if _is_program(found):
        return found
    return ""


def _is_program(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:
        return False


def _body(wanted: _Wanted, command: list[str]) -> dict[str, Any]:
    """Return the request body of a container that installs packages.

    It ends when its stdin closes, and is then removed by the engine.
    """
    host: dict[str, Any] = {"Init": True, "AutoRemove": True, "LogConfig": {"Type": "json-file"}}
    if wanted.network:
        host["NetworkMode"] = wanted.network
    body: dict[str, Any] = {
        "Image": wanted.base["Id"],
        "Labels": wanted.labels(),
        "AttachStdin": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "HostConfig": host,
    }
    if wanted.config.get("Entrypoint"):
        body["Entrypoint"] = command
    else:
        body["Cmd"] = command  # an image without an entrypoint is to have none afterwards
    if wanted.config.get("User"):
        body["User"] = "0"
    return body


def _changes(wanted: _Wanted, folder: str) -> list[str]:
    """Return what makes the image start as the one below it does."""
    config = wanted.config
    changes = [f"LABEL {names.LABEL_ENVIRONMENT_PATH}={folder}"]
    if config.get("User"):
        changes.append(f"USER {config['User']}")
    if config.get("Entrypoint"):
        changes.append(f"ENTRYPOINT {json.dumps(config['Entrypoint'])}")
    if config.get("Cmd"):
        changes.append(f"CMD {json.dumps(config['Cmd'])}")
    elif not config.get("Entrypoint"):
        changes.append('CMD ["python3"]')
    return changes


def _install(
    engine: Engine, wanted: _Wanted, container: str, variables: Mapping[str, str], uv: str
) -> str:
    """Install packages in a container, and keep it as an image. Return the folder in it."""
    recipe = wanted.recipe
    if not uv and shutil.which("uv"):
        recipe = as_requirements(recipe)  # which pip reads
    order = order_to_make(
        _ROOT,
        recipe.to_dict(),
        variables={**_DEFAULTS, **variables},
    )
    tools = _tools(uv)
    engine.call(lambda api: api.put_archive(container, "/", tools))
    with _stdin(engine, container) as link:
        engine.call(lambda api: api.start(container))
        engine.call(lambda api: link.sendall(json.dumps(order).encode() + b"\n"))
        made = engine.call(lambda api: _followed(api, container, wanted))
        folder = str(made["path"])
        with changing_line(rare=True) as show:
            show(f"environment {recipe.environment.name}: being kept as image {wanted.name}")
            image = engine.commit(container, _changes(wanted, folder))
            # only now, by one who lives and saw that all went well
            engine.call(lambda api: api.tag(image, ENVIRONMENT_REPOSITORY, wanted.tag))
        # before stdin is closed: who removes it then is known
        engine.remove_container(container)
    return folder


def _tools(uv: str) -> bytes:
    """Return an archive of what runs in the container, with uv if it is given."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add_text(tar, "make_environment.py", program_text())
        with open(builder.__file__, encoding="utf-8") as file:
            _add_text(tar, "builder.py", file.read())
        if uv:
            entry = tar.gettarinfo(os.path.realpath(uv), f"{_TOOLS.lstrip('/')}/uv")
            entry.mode = 0o755
            with open(uv, "rb") as program:
                tar.addfile(entry, program)
    return buffer.getvalue()


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    entry = tarfile.TarInfo(f"{_TOOLS.lstrip('/')}/{name}")
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


@contextlib.contextmanager
def _stdin(engine: Engine, container: str) -> Iterator[Any]:
    """Provide the stdin of a container.

    The container sees its end with this block, or when this process dies.
    """
    params = {"stdin": 1, "stream": 1}
    link = engine.call(lambda api: api.attach_socket(container, params=params))
    inner = getattr(link, "_sock", link)
    try:
        yield inner
    finally:
        with contextlib.suppress(OSError):
            inner.shutdown(socket.SHUT_RDWR)
        link.close()
        inner.close()


def _followed(api: Any, container: str, wanted: _Wanted) -> dict[str, Any]:
    """Do `_follow` with what a container writes."""
    stream = api.logs(container, stream=True, follow=True)
    try:
        return _follow(stream, wanted)
    finally:
        # its own ``close`` leaves the socket open, and there is none for an engine over ssh
        stream._response.close()


def _follow(chunks: Iterable[bytes], wanted: _Wanted) -> dict[str, Any]:
    """Read what the builder writes, and show it, until nothing changes any more.

    Raises:
        SubmitError: if it fails, with its last lines.
    """
    others: deque[str] = deque(maxlen=_KEPT_LINES)
    lines = _lines(chunks, others)
    try:
        made = follow_making(lines, wanted.recipe.environment)
    except SubmitError as exc:
        if exc.lines or not others:
            raise
        raise SubmitError(str(exc), exc.transient, lines=others) from exc
    if builder.READY not in lines:
        text = f"{wanted.title}: cannot be made: its container ended"
        raise SubmitError(text, transient=True, lines=others)
    return made


def _lines(chunks: Iterable[bytes], others: deque[str]) -> Iterator[bytes]:
    """Split output into lines, and note in ``others`` those that the builder has not written."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if not line.startswith(b"{"):
                others.append(line.decode("utf-8", "replace"))
            yield line


# -- what is there


def listed(engine: Engine) -> list[MadeEnvironment]:
    """Return the images that carry packages, and which of them containers use.

    Raises:
        SchedulerUnavailable: if the engine cannot be reached.
    """
    used = _used(engine)
    rows = engine.query(lambda api: api.images(name=ENVIRONMENT_REPOSITORY))
    found = []
    for name in [name for row in rows for name in row.get("RepoTags") or ()]:
        made = _describe(engine, name, used)
        if made is not None:
            found.append(made)
    return found


def _used(engine: Engine) -> set[str]:
    """Return the tags of those on which containers are based, running or not."""
    filters = {"label": [names.LABEL_ENVIRONMENT]}
    rows = engine.query(lambda api: api.containers(all=True, filters=filters))
    return {row["Labels"][names.LABEL_ENVIRONMENT] for row in rows}


def _describe(engine: Engine, name: str, used: set[str]) -> MadeEnvironment | None:
    """Return what is known of an image, or None if it is gone, or none of ours."""
    image = images.inspect(engine, name)
    if image is None or names.LABEL_ENVIRONMENT_PATH not in _labels(image):
        return None
    labels = _labels(image)
    try:
        record = json.loads(labels.get(names.LABEL_ENVIRONMENT_OF, "{}"))
        layers = engine.query(lambda api: api.history(name))
    except (ValueError, EngineError):
        return None
    tag = name.rpartition(":")[2]
    return MadeEnvironment(
        key=tag,
        kind=str(record.get("kind", "")),
        name=str(record.get("name", "")),
        sha256=str(record.get("sha256", "")),
        size=layers[0]["Size"],
        last_used=_last_used(image),
        in_use=tag in used,
        path=name,
    )


def _last_used(image: Mapping[str, Any]) -> float:
    named = seconds((image.get("Metadata") or {}).get("LastTagTime"))
    return named or seconds(image.get("Created")) or 0.0


def delete(
    engine: Engine, home: Home, older_than: float | None, *, dry_run: bool
) -> list[MadeEnvironment]:
    """Delete the images that no container uses or used within ``older_than`` s, and return them.

    Remains of makers that were killed are deleted, too.
    """
    least = max(older_than or 0.0, _IDLE_S)
    deleted = []
    for each in listed(engine):
        if each.in_use or time.time() - (each.last_used or 0.0) < least:
            continue
        if dry_run or _remove(engine, home, each.key, least):
            deleted.append(each)
    if not dry_run:
        _sweep(engine, home)
    return deleted


def _remove(engine: Engine, home: Home, tag: str, least: float) -> bool:
    """Remove an image unless somebody makes or uses it, or has just begun to."""
    name = f"{ENVIRONMENT_REPOSITORY}:{tag}"
    with home.lock(tag, patience=0.0, name=_lock_name(tag)) as got:
        image = images.inspect(engine, name)
        if not got or image is None or time.time() - _last_used(image) < least:
            return False
        try:
            engine.call(lambda api: api.remove_image(name))
        except EngineError as exc:
            if exc.code in (CONFLICT, NOT_FOUND):
                return False
            raise SchedulerUnavailable(f"environment {name} cannot be removed: {exc}") from exc
    return True


def _sweep(engine: Engine, home: Home) -> None:
    """Remove what makers of this state folder have left that were killed."""
    filters = {"label": [names.LABEL_ENVIRONMENT]}
    rows = engine.query(lambda api: api.containers(all=True, filters=filters))
    rows += engine.query(lambda api: api.images(filters={**filters, "dangling": True}))
    for tag in {row["Labels"][names.LABEL_ENVIRONMENT] for row in rows}:
        with home.lock(tag, patience=0.0, name=_lock_name(tag)) as got:
            if got:
                _remove_left(engine, _container_name(home, tag), tag)
