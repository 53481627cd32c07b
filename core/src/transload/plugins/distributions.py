"""List the distributions of this project that bring schedulers, orchestrators and commands.

Hints on what to install, and the extras of the core, come from it. Nothing else in the core names
them.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
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
    Distribution("kfp", "KFP support", {"adapters": ("kfp",)}),
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
    Distribution(
        "torchx",
        "TorchX's own commands, and migrate",
        {"cli_commands": ("builtins", "configure", "migrate", "runopts")},
    ),
)


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
    """Return what to type to install the distribution of a plugin beside this core."""
    checkout = _checkout()
    if checkout is None:
        return f"pip install transload-{plugin}"
    if sys.prefix == sys.base_prefix:  # no virtual environment
        return f"pip install -e {shlex.quote(str(checkout / 'plugins' / plugin))}"
    words = ["python3", str(checkout / "quickstart.py"), "--with", plugin]
    if Path(sys.prefix) != checkout / ".venv":
        words[2:2] = ["--venv", sys.prefix]
    return shlex.join(words)


def _checkout() -> Path | None:
    """Return the folder of the repository from which the core is installed, or None.

    An installer notes where it took a distribution from (PEP 610).
    """
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        noted = json.loads(distribution("transload").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    if "dir_info" not in noted:
        return None
    checkout = Path(unquote(urlsplit(noted["url"]).path)).parent
    if (checkout / "quickstart.py").exists():
        return checkout
    return None


def install_hint(distribution: Distribution) -> str:
    """Return what is missing without a distribution, and what to type."""
    command = install_command(distribution.plugin)
    return f"{distribution.title} is not installed. Install it: {command}"
