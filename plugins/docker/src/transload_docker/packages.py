"""Put uv and files of requirements into a volume that containers mount, beside one for uv's cache."""

from __future__ import annotations

import io
import os
import platform
import re
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SubmitError
from transload.schedulers import environments
from transload.specs import VolumeMount
from transload.specs.job_variables import REQUIREMENTS
from transload_docker import images
from transload_docker.convert import base_image

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages
    from transload.specs import Role
    from transload_docker.engine import Engine
    from transload_docker.options import DockerOptions

_PROGRAMS: Final = VolumeMount("transload-uv", "/opt/transload/uv", read_only=True)
_CACHE: Final = VolumeMount("transload-uv-cache", "/opt/transload/uv-cache")
_LINKER: Final = rb"/lib[\w/]*/ld-[\w.-]+"
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def with_packages(role: Role, packages: Packages, opts: DockerOptions) -> Role:
    """Return a role that is started by this machine's uv, with the volumes that it needs."""
    folder = _PROGRAMS.dst_path
    uv = "uv"
    found = environments.travelling_uv()
    if found is not None:
        uv = f"{folder}/uv-{environments.uv_version(found)}"
    changed = environments.run_by_uv(role, packages, uv=uv, file=f"{folder}/{packages.file_name}")
    user = re.sub(r"\W", "-", opts.user or "image")
    changed.env.setdefault("UV_CACHE_DIR", f"{_CACHE.dst_path}/{user}")
    return replace(changed, mounts=[*role.mounts, _PROGRAMS, _CACHE])


def bring(engine: Engine, role: Role, packages: Packages, opts: DockerOptions) -> None:
    """Put uv and the file of requirements into their volume, unless they are there.

    Args:
        engine: has the volumes.
        role: the role, as `with_packages` returned it.
        packages: what it needs.
        opts: the run options.

    Raises:
        SubmitError: if this machine's uv does not run in the image.
    """
    base = images.ensure(engine, base_image(role, opts), opts.pull)
    mounts = [
        {"Type": "volume", "Source": each.src, "Target": each.dst_path}
        for each in (_PROGRAMS, _CACHE)
    ]
    body = {"Image": base["Id"], "Cmd": ["x"], "HostConfig": {"Mounts": mounts}}
    made = engine.call(lambda api: api.create_container_from_config(body))["Id"]
    try:
        file = role.env[REQUIREMENTS]
        if not engine.has_file(made, file):
            _put(engine, made, file, packages.requirements.encode())
        uv = role.entrypoint
        if not uv.startswith("/"):
            return
        source = environments.uv_here()
        _refuse_other_machines(engine, made, base, source, role)
        if not engine.has_file(made, uv):
            with open(source, "rb") as program:
                _put(engine, made, uv, program.read())
    finally:
        engine.remove_container(made)


def _refuse_other_machines(
    engine: Engine, container: str, base: Mapping[str, Any], uv: str, role: Role
) -> None:
    """Refuse an image in which this machine's uv does not run."""
    with open(uv, "rb") as file:
        linker = re.search(_LINKER, file.read(4096))
    same = base.get("Architecture") == _MACHINES.get(platform.machine())
    if same and (linker is None or engine.has_file(container, linker[0].decode())):
        return
    raise SubmitError(
        f"role {role.name!r}: this machine's uv does not run in image {role.image!r}, which is of "
        "another kind (such as Alpine): have the packages in the image, and switch this off by "
        "--environment none"
    )


def _put(engine: Engine, container: str, path: str, data: bytes) -> None:
    """Put a program or a text into a volume of a container, and let everybody use the cache."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        cache = tarfile.TarInfo(_CACHE.dst_path.lstrip("/"))
        cache.type = tarfile.DIRTYPE
        cache.mode = 0o1777
        tar.addfile(cache)
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.mode = 0o755 if os.path.basename(path).startswith("uv-") else 0o644
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
    engine.call(lambda api: api.put_archive(container, "/", buffer.getvalue()))
