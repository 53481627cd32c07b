"""Provide clusters as Prefect's blocks, each a scheduler under another name with its secrets."""

from __future__ import annotations

from typing import Any, ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr, model_validator

from transload.errors import ConfigError
from transload.runner import Cluster


class TransloadCluster(Block):
    """A cluster for jobs, without a settings file on the machine that runs the flow.

    Save it under its name. A process that attaches to one of its jobs later loads the secrets by
    that name.

    Example:
        >>> TransloadCluster(name="prod", kind="kubernetes", connection={"context":
        "prod-eu"}).save("prod") ...     # doctest: +SKIP
        >>> app_task("train.py:train", cluster="prod")  # doctest: +SKIP
    """

    _block_type_name: ClassVar[str] = "Transload Cluster"
    _block_type_slug: ClassVar[str] = "transload-cluster"
    _description: ClassVar[str] = (
        "A scheduler with a name of its own: a Kubernetes cluster, a Slurm, a Docker engine."
    )

    name: str = Field(
        description="Name of the cluster, as in handles: prod://session/app. Save the block under it."
    )
    kind: str = Field(
        description="The scheduler that it is one of: kubernetes, slurm, docker, local."
    )
    connection: dict[str, Any] = Field(
        default_factory=dict, description="Which one: context, ssh, docker_host …"
    )
    secrets: dict[str, SecretStr] = Field(
        default_factory=dict, description="Settings that are secrets: kubeconfig …"
    )

    @model_validator(mode="after")
    def _check(self) -> TransloadCluster:
        self.to_cluster()
        return self

    def to_cluster(self) -> Cluster:
        """Return the cluster. It only says where secrets are found.

        Raises:
            ConfigError: if it is not valid.
        """
        where = {setting: f"prefect:{self.name}/{setting}" for setting in self.secrets}
        return Cluster(self.name, self.kind, self.connection, where)


def secret_of(what: str, block: TransloadCluster | None = None) -> str:
    """Return a secret of a cluster, by the name of the block and of the setting.

    Args:
        what: ``NAME/SETTING``.
        block: the block itself, where it is at hand. By default, and for other names, it is the
            saved one.

    Raises:
        ConfigError: if there is no such block, or it has no such secret.
    """
    name, _, setting = what.partition("/")
    found = block if block is not None and block.name == name else cluster_named(name)
    if setting not in found.secrets:
        raise ConfigError(f"block transload-cluster/{name}: has no secret {setting!r}")
    return str(found.secrets[setting].get_secret_value())


def cluster_named(name: str | TransloadCluster) -> TransloadCluster:
    """Return a saved block, or the block itself.

    Raises:
        ConfigError: if there is none of that name.
    """
    if isinstance(name, TransloadCluster):
        return name
    try:
        found: Any = TransloadCluster.load(name, _sync=True)  # type: ignore[call-arg]
    except ValueError as exc:
        raise ConfigError(f"cluster={name!r}: there is no block transload-cluster/{name}") from exc
    assert isinstance(found, TransloadCluster)
    return found
