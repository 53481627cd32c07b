"""The test sessions: `python3 run_tests.py` (or `nox`) runs the default ones, `nox -s slow` all that takes long.

Each session can be run alone. Environments are kept between runs; `-R` skips installing dependencies altogether, while
the distributions of this repository are always built and installed anew: tests see wheels, never the source tree.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/[!_]*/pyproject.toml"))
TESTED = [name for name in PLUGINS if (ROOT / "tests" / name).is_dir()]
DISTRIBUTIONS = ["core", *(f"plugins/{name}" for name in PLUGINS)]
TOOLS = ("-r", "tests/requirements.txt")
QUICK = ("-m", "not slow")
SLOW = ("-m", "slow", "-q")
nox.options.sessions = ["lint", "typing", "core", *TESTED, "torch", "docs"]

# Uncompiled packages cost every single test process seconds.
os.environ["UV_COMPILE_BYTECODE"] = "1"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def install_own(session: nox.Session, *folders: str) -> None:
    """Build these distributions and install the wheels, without their dependencies, whatever was there before."""
    paths = [f"./{folder}" for folder in folders]
    if session.venv_backend == "uv":
        session.run("uv", "pip", "install", "--quiet", "--no-deps", "--reinstall", "--refresh", *paths, external=True)
    else:
        session.run("python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", *paths)


def suite(session: nox.Session, name: str, *folders: str) -> None:
    """Install distributions and what their tests need, then run `tests/<name>`.

    What they need stands in `tests/<name>/requirements.txt` and, for versions that these tests alone insist on,
    `constraints.txt` next to it; both may be missing.
    """
    more: list[str] = []
    for option, file in (("-r", "requirements.txt"), ("-c", "constraints.txt")):
        path = ROOT / "tests" / name / file
        more += [option, str(path.relative_to(ROOT))] if path.exists() else []
    find_cpu_torch(session)
    session.install(*TOOLS, *more, "./core[testing]", *(f"./{folder}" for folder in folders))
    install_own(session, "core", *folders)
    run_pytest(session, f"tests/{name}")


def run_pytest(session: nox.Session, *folders: str) -> None:
    """Run these folders' quick tests, or what the words after `--` say."""
    given = tuple(session.posargs) or ("-q", "-n", "2")
    slow = given == SLOW
    named = any((ROOT / word.partition("::")[0]).exists() for word in given if not word.startswith("-"))
    where = () if named else folders
    limit = f"--timeout={900 if slow else 120}"  # a test that hangs shows where, instead of hanging the run
    again = "--reruns=1"  # a real server on a busy machine may be late once; the summary lists what ran twice
    # 5: this suite has no slow test
    session.run("pytest", *where, limit, again, *QUICK, *given, success_codes=[0, 5] if slow else [0])


def find_cpu_torch(session: nox.Session) -> None:
    """Keep the gigabytes of CUDA away: this machine's own folder of wheels if pip has one, else PyTorch's CPU index."""
    folders = [place for place in os.environ.get("PIP_FIND_LINKS", "").split() if Path(place).is_dir()]
    if folders:
        session.env.setdefault("UV_FIND_LINKS", ",".join(folders))
    else:
        session.env.setdefault("UV_TORCH_BACKEND", "cpu")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, docstrings, banned imports and formatting."""
    session.install("-r", "tests/requirements-lint.txt")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def typing(session: nox.Session) -> None:
    """Check the types of every source tree, strictly."""
    session.install("-r", "tests/requirements-typing.txt", "./core[testing]")
    install_own(session, "core")
    for folder in DISTRIBUTIONS:
        session.run("mypy", f"{folder}/src")


@nox.session
def core(session: nox.Session) -> None:
    """Test the core, and the template of an adapter, which needs nothing else."""
    find_cpu_torch(session)
    stores = ("-r", "tests/core/requirements-slow.txt") if "slow" in session.posargs else ()
    session.install(*TOOLS, "-r", "tests/core/requirements.txt", *stores, "./core[testing]")
    install_own(session, "core")
    run_pytest(session, "tests/core", "tests/template")


@nox.session
def torch(session: nox.Session) -> None:
    """Test `dist.ddp` with a real torch (CPU, gloo)."""
    suite(session, "torch")


def _plugin_session(name: str) -> None:
    """Make the session of one plugin, named like it."""

    def run(session: nox.Session) -> None:
        suite(session, name, f"plugins/{name}")

    run.__doc__ = f"Test the plugin {name}."
    nox.session(run, name=name)


for _name in TESTED:
    _plugin_session(_name)


@nox.session(venv_backend="none")
def slow(session: nox.Session) -> None:
    """Run every suite's slow tests, then the lowest versions and the wheels of everything."""
    for name in ("core", *TESTED):
        session.notify(name, SLOW)
    session.notify("lowest")
    session.notify("wheels")


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Test the core with the lowest versions that its metadata allows."""
    pins = Path(session.create_tmp()) / "lowest.txt"
    resolve = ("--resolution", "lowest-direct", "--no-deps", "--extra", "testing", "--quiet", "-o", str(pins))
    session.run("uv", "pip", "compile", "core/pyproject.toml", *resolve, external=True)
    session.install(*TOOLS, "numpy", "scikit-learn", "-c", str(pins), "./core[testing]")
    install_own(session, "core")
    run_pytest(session, "tests/core")


@nox.session(venv_backend="uv")
def wheels(session: nox.Session) -> None:
    """Build the sdist and wheel of every distribution, install the wheels, import each, load each plugin."""
    made = Path(session.create_tmp()).resolve() / "wheels"
    shutil.rmtree(made, ignore_errors=True)
    for folder in DISTRIBUTIONS:
        session.run("uv", "build", "--quiet", "--out-dir", str(made), folder, external=True)
    session.install("--reinstall", *(str(path) for path in sorted(made.glob("*.whl"))))
    session.run("python", "-P", "tests/wheels.py", *DISTRIBUTIONS)


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Time the core against TorchX 0.7.0; write docs/benchmarks.md and its picture: best on a machine that idles."""
    session.install("torchx==0.7.0", "matplotlib", "./core[testing]")
    install_own(session, "core")
    session.run("python", "benchmarks/run_all.py", *session.posargs)
    session.run("python", "docs/make_plots.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into docs/_build, every warning an error, and run the code that its pages show."""
    session.install(*TOOLS, "-r", "tests/docs/requirements.txt", "./core[testing]")
    install_own(session, *DISTRIBUTIONS)  # without their hosts: state tables are read without them
    session.run("python", "-m", "sphinx", "-c", "docs", "-E", "-q", "-n", "-W", "--keep-going", ".", "docs/_build/html")
    run_pytest(session, "tests/docs")
