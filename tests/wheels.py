"""Check that each installed wheel is complete and imports, and that its plugins load.

Run by the session ``wheels``, outside of the source tree: ``python -P tests/wheels.py core
plugins/airflow ...``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = (
    "transload_airflow.searches",
    "transload_kfp.search",
    "transload_kfp.search_steps",
    "transload_prefect.search",
)
"""What an extra of the distribution asks for more."""


def check(folder: str) -> str:
    """Check one distribution by importing each of its modules, and return a line about it.

    Raises:
        SystemExit: Something is missing from the wheel.
    """
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    found = importlib.metadata.distribution(name)
    module = importlib.import_module(name.replace("-", "_"))
    files = {str(path) for path in found.files or ()}
    sources = {
        str(path.relative_to(ROOT / folder / "src"))
        for path in (ROOT / folder / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for problem, wrong in {
        f"version {found.version} instead of {version}": found.version != version,
        f"__version__ is not {version}": module.__version__ != version,
        f"files missing: {sorted(sources - files)}": not sources <= files,
        "no LICENSE": not any(path.endswith("LICENSE") for path in files),
        "imported from the source tree": ROOT / folder
        in Path(module.__file__ or "").resolve().parents,
    }.items():
        if wrong:
            raise SystemExit(f"{name}: {problem}")
    alone = [each for each in _modules(name.replace("-", "_")) if each not in EXTRAS]
    code = f"import importlib\nfor name in {alone!r}:\n    importlib.import_module(name)"
    with tempfile.TemporaryDirectory(prefix="tl-") as home:
        environment = {**os.environ, "HOME": home, "AIRFLOW_HOME": home, "TRANSLOAD_HOME": home}
        command = [sys.executable, "-P", "-c", code]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env=environment, cwd=home
        )
    if done.returncode:
        raise SystemExit(
            f"{name}: a module cannot be imported with what the metadata asks for:\n{done.stderr}"
        )
    plugins = [point for point in found.entry_points if point.group == "transload"]
    for point in plugins:
        point.load()
    return f"{name} {version}: {len(sources)} files, plugins: {', '.join(point.name for point in plugins) or 'none'}"


def _modules(package: str) -> list[str]:
    """Return the names of all modules of an installed package, programs (``__main__``) apart."""
    folder = Path(importlib.import_module(package).__file__ or "").parent
    paths = [
        path.relative_to(folder.parent).with_suffix("") for path in sorted(folder.rglob("*.py"))
    ]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    return [name for name in names if not name.endswith("__main__")]


def main(folders: list[str]) -> None:
    """Check all, then run the installed command, and an app with it."""
    for folder in folders:
        print(check(folder))
    command = str(Path(sys.executable).parent / "transload")
    answer = subprocess.run(
        [command, "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    print(answer.stdout.strip())
    with tempfile.TemporaryDirectory(prefix="tl-") as home:
        environment = {**os.environ, "TRANSLOAD_HOME": home}
        words = [command, "run", "-s", "local", "utils.echo", "--msg", "from a wheel"]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment)
        if answer.returncode or "from a wheel" not in answer.stdout:
            raise SystemExit(
                f"{' '.join(words)}: exit {answer.returncode}\n{answer.stdout}{answer.stderr}"
            )
        words = [command, "info", "--json"]
        answer = subprocess.run(
            words, capture_output=True, text=True, check=True, timeout=60, env=environment
        )
    found = {row["name"]: row["error"] for row in json.loads(answer.stdout)["schedulers"]}
    if any(found.values()):
        raise SystemExit(f"schedulers that do not load: {found}")
    print(f"schedulers: {', '.join(found)}")


if __name__ == "__main__":
    main(sys.argv[1:])
