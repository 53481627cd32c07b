"""The options of the Docker scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transload.specs import Connection, Options, option


@dataclass(frozen=True, kw_only=True)
class DockerConnection(Connection):
    """The settings that say which engine this is."""

    docker_host: str | None = option(
        "where the engine is (unix://, tcp://, ssh://); default: DOCKER_HOST"
    )


@dataclass(frozen=True, kw_only=True)
class DockerOptions(Options):
    """The run options of the Docker scheduler."""

    image: str | None = option(
        "image for roles without one; a role's that is a folder is mounted into it at the same path"
    )
    pull: Literal["never", "missing", "always"] = option(
        "when images are pulled: never, missing (those that the engine lacks) or always", "never"
    )
    env: dict[str, str] = option("variables for every replica, below those of its role", {})
    copy_env: list[str] = option(
        "patterns (FOO_*) of variables of the submitting process to pass on", []
    )
    network: str | None = option(
        "name of an existing network to use (or host) instead of one made for the job"
    )
    publish: Literal["auto", "random", "none"] = option(
        "ports on this machine: auto (same number, for a single replica), random or none", "auto"
    )
    publish_address: str = option(
        "address of this machine that ports are published on", "127.0.0.1"
    )
    gpu_ids: list[str] = option(
        "ids of the GPUs to choose from, each given to one job at a time; default: all", []
    )
    user: str | None = option(
        "user (and group) inside the containers, as UID[:GID] or NAME; default: the image's"
    )
    image_entrypoint: bool = option(
        "keep the image's own ENTRYPOINT and give it the role's as arguments", False
    )
    privileged: bool = option("containers with all rights on the machine", False)
