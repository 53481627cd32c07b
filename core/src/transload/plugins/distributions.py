"""List the distributions of this project that bring schedulers, orchestrators and commands.

Hints on what to install, and the extras of the core, come from it. Nothing else in the core names
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Distribution:
    """A distribution ``transload-PLUGIN``, which can be installed beside the core.

    Attributes:
        plugin: name of its plugin, of its folder in a checkout, and of the core's extra.
        title: what is missing without it, as the beginning of a sentence.
        provides: kind (``schedulers``, ``adapters`` …) → the names that it registers.
    """

    plugin: str
    title: str
    provides: Mapping[str, tuple[str, ...]]


DISTRIBUTIONS: Final = (
    Distribution("airflow", "Airflow support", {"adapters": ("airflow",)}),
    Distribution(
        "ax",
        "Ax support",
        {"adapters": ("ax",), "suggesters": ("ax", "ax-quality", "ax-sobol")},
    ),
    Distribution("docker", "Docker support", {"schedulers": ("docker", "local_docker")}),
    Distribution("kfp", "KFP support", {"adapters": ("kfp",), "cli_commands": ("kfp",)}),
    Distribution("kubernetes", "Kubernetes support", {"schedulers": ("kubernetes",)}),
    Distribution("mlflow", "MLflow support", {"trackers": ("mlflow",)}),
    Distribution("prefect", "Prefect support", {"adapters": ("prefect",)}),
    Distribution("report", "The command report", {"cli_commands": ("report",)}),
    Distribution(
        "search",
        "The command search",
        {"cli_commands": ("search",), "suggesters": ("random",)},
    ),
    Distribution("slurm", "Slurm support", {"schedulers": ("slurm",)}),
    Distribution("torchx", "The command migrate", {"cli_commands": ("migrate",)}),
)


TORCHX_SCHEDULERS: Final = (
    "aws_batch",
    "aws_sagemaker",
    "gcp_batch",
    "kubernetes_mcad",
    "lsf",
    "ray",
)
"""Schedulers of TorchX that transload does not provide."""


def find_distribution(kind: str, name: str) -> Distribution | None:
    """Return the distribution that registers a name of a kind, or None."""
    for distribution in DISTRIBUTIONS:
        if name in distribution.provides.get(kind, ()):
            return distribution
    return None


def distributed_names(kind: str) -> list[str]:
    """Return all names of a kind that distributions of this project register."""
    return [name for each in DISTRIBUTIONS for name in each.provides.get(kind, ())]


def install_command(plugin: str) -> str:
    """Return what to type to install the distribution of a plugin."""
    return f"pip install transload-{plugin} (in a checkout: python3 quickstart.py --with {plugin})"


def install_hint(distribution: Distribution) -> str:
    """Return what is missing without a distribution, and what to type."""
    command = install_command(distribution.plugin)
    return f"{distribution.title} is not installed. Install it: {command}"
