"""The test sessions: `python3 run_tests.py`, or `nox -s NAME -- PYTEST ARGUMENTS`.

Each has an environment of its own below .nox, in which the distributions of this repository are
editable. `-R` installs nothing. Experiments have sessions in benchmarks/noxfile.py.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "typing", "main", "airflow", "ax", "kfp", "mlflow", "prefect"]
nox.options.sessions += ["torch", "docs"]

PLUGINS = sorted(path.parent.name for path in Path().glob("plugins/[!_]*/pyproject.toml"))
DISTRIBUTIONS = ("core", *(f"plugins/{name}" for name in PLUGINS))
TOGETHER = ("docker", "kubernetes", "report", "search", "slurm", "torchx")
USED = {
    "main": TOGETHER,
    "airflow": ("airflow", "report", "search"),
    "ax": ("ax", "report", "search"),
    "kfp": ("docker", "kfp", "kubernetes", "report", "search"),
    "mlflow": ("mlflow", "search"),
    "prefect": ("prefect", "report", "search"),
    "torch": ("docker", "slurm"),
    "unit": (),
    "docs": (),
}
"""The plugins in each environment, besides the core and the conformance suites."""
SUITES = {"main": ("core", "template", "testing", *TOGETHER), "unit": ("core",)}
"""The folders of tests that run in it, where that is not the one of its name."""
CHECKS = ("lint", "typing")
PINS = Path("tests/constraints")
SLOW = ("-m", "slow", "--timeout=900", "-q")
SCHEMAS = {
    "github-workflows": "workflows/*.yml",
    "github-issue-forms": "ISSUE_TEMPLATE/[!c]*.yml",
    "dependabot": "dependabot.yml",
    "citation-file-format": "../CITATION.cff",
}
"""What a public runner reads, by the name of its schema."""
SLURM_RELEASES = ("trixie", "sid")
AIRFLOWS = {
    "3.1": ("apache-airflow~=3.1.0",),
    "3.2": ("apache-airflow~=3.2.0", "fastapi<0.137"),  # its API breaks with a newer one
    "3.3": ("apache-airflow~=3.3.0",),
    "3.4": ("apache-airflow>=3.4.0b1,<3.5",),
}
"""The versions of Airflow on which each kind of clear is tried."""

os.environ.pop("UV_COMPILE_BYTECODE", None)  # most of the packages is never imported
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if not os.environ.get("UV_FIND_LINKS"):  # a folder of wheels of one's own has a torch without CUDA
    os.environ.setdefault("UV_TORCH_BACKEND", "cpu")


def requirements(name: str) -> list[str]:
    """Return what an environment holds, as options of an installer."""
    if name in CHECKS:
        files = [f"tests/requirements-{name}.txt"]
        folders = ["core", "plugins/testing"] if name == "typing" else []
    else:
        suites = () if name == "unit" else SUITES.get(name, (name,))
        files = ["tests/requirements.txt", *(f"tests/{each}/requirements.txt" for each in suites)]
        folders = ["core", "plugins/testing", *(f"plugins/{each}" for each in USED[name])]
    words = [word for file in files if Path(file).exists() for word in ("-r", file)]
    return words + [word for folder in folders for word in ("-e", f"./{folder}")]


def install(session: nox.Session, name: str, *more: str) -> None:
    """Install what an environment holds, in the versions that it was tried with."""
    pins = PINS / f"{'main' if name == 'unit' else name}.txt"
    session.install(*requirements(name), *more, "-c", str(pins))


def run_suites(session: nox.Session, name: str, *options: str, workers: int = 4) -> None:
    """Run the suites of an environment without their slow tests, or what was asked for."""
    given = session.posargs or ["-q", "-n", str(workers)]
    chosen = [word for word in given if Path(word.partition("::")[0]).exists()]
    folders = [] if chosen else [f"tests/{suite}" for suite in SUITES.get(name, (name,))]
    good = [0, 5] if "slow" in given else [0]  # 5: there is no such test
    again = [] if name == "unit" else ["--reruns=1"]
    words = [*folders, "--timeout=200", "-m", "not slow", *again, *options, *given]
    session.run("pytest", *words, success_codes=good)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, docstrings, banned imports, formatting and spelling."""
    session.install("-r", "tests/requirements-lint.txt", "-c", str(PINS / "lint.txt"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    for schema, files in SCHEMAS.items():
        paths = sorted(map(str, Path(".github").glob(files)))
        session.run("check-jsonschema", "--quiet", "--builtin-schema", f"vendor.{schema}", *paths)


@nox.session
def typing(session: nox.Session) -> None:
    """Check the types of every source tree, strictly."""
    install(session, "typing")
    for folder in DISTRIBUTIONS:
        session.run("mypy", f"{folder}/src")


@nox.session
def unit(session: nox.Session) -> None:
    """Run the tests of the core that need no process, no server and none of the large packages."""
    install(session, "unit")
    # in one process: two would take twice as long, each to collect all tests
    run_suites(session, "unit", "-m", "unit", workers=0)


@nox.session
def main(session: nox.Session) -> None:
    """Test the core and all plugins that can share an environment."""
    install(session, "main")
    run_suites(session, "main")


def _of_a_host(name: str) -> None:
    def run(session: nox.Session) -> None:
        install(session, name)
        run_suites(session, name)

    run.__doc__ = f"Test {name}, which has an environment of its own."
    nox.session(run, name=name)


for _name in ("airflow", "ax", "kfp", "mlflow", "prefect", "torch"):
    _of_a_host(_name)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into docs/_build, every warning an error, and run the code of its pages."""
    install(session, "docs")
    # without their hosts: state tables are read without them
    session.install("--no-deps", *(word for each in DISTRIBUTIONS for word in ("-e", f"./{each}")))
    strict = ("-E", "-q", "-n", "-W", "--keep-going")
    session.run("python", "-m", "sphinx", "-c", "docs", *strict, ".", "docs/_build/0.1.0")
    run_suites(session, "docs")


@nox.session(venv_backend="none")
def slow(session: nox.Session) -> None:
    """Run every suite's slow tests, the lowest and the newest versions, and all wheels."""
    for name in ("main", "airflow", "ax", "kfp", "mlflow", "prefect", "torch", "docs"):
        session.notify(name, SLOW)
        session.notify(f"newest({name})")
    for name in ("core", *PLUGINS):
        session.notify(f"lowest({name})")
    for name in ("airflow", "kfp", "prefect"):
        session.notify(f"suggested({name})")
    session.notify("real_kubernetes", SLOW)
    for release in SLURM_RELEASES:
        session.notify(f"slurm_release({release})")
    for version in AIRFLOWS:
        session.notify(f"airflow_versions({version})")
    session.notify("wheels")


@nox.session
@nox.parametrize("version", [*AIRFLOWS], ids=[*AIRFLOWS])
def airflow_versions(session: nox.Session, version: str) -> None:
    """Play each kind of clear on the database of one version of Airflow, some on its servers."""
    folders = ("core", "plugins/testing", *(f"plugins/{each}" for each in USED["airflow"]))
    own = [word for folder in folders for word in ("-e", f"./{folder}")]
    session.install("-r", "tests/requirements.txt", *own, *AIRFLOWS[version])
    given = session.posargs or ["-q", "-n", "2"]
    # older releases warn of what newer ones have mended
    lenient = ("--timeout=200", "-W", "default")
    suites = ("tests/airflow/test_clears.py", "tests/airflow/test_retry_policy.py")
    session.run("pytest", *suites, *lenient, *given)
    if not session.posargs:
        session.run("pytest", "tests/airflow/test_kill.py", "-k", "clear", *lenient, *given)


@nox.session
@nox.parametrize("name", [*USED], ids=[*USED])
def newest(session: nox.Session, name: str) -> None:
    """Run an environment's suites with the newest versions that the index has."""
    session.install("--upgrade", *requirements(name))
    run_suites(session, name)


@nox.session
@nox.parametrize("name", ["core", *PLUGINS], ids=["core", *PLUGINS])
def lowest(session: nox.Session, name: str) -> None:
    """Run a suite with the lowest versions that the metadata of its distribution allows.

    `tests/<name>/lowest.txt` may raise one.
    """
    raised = Path("tests", name, "lowest.txt")
    more = ["-c", str(raised)] if raised.exists() else []
    folder = "./core" if name == "core" else f"./plugins/{name}"
    session.install("--resolution", "lowest-direct", *more, "-e", "./core", "-e", folder)
    home = name if name in USED else "main"
    session.install(*requirements(home), *more)
    # old releases warn of what newer ones have mended
    given = session.posargs or [f"tests/{name}", "-q", "-n", "2"]
    session.run("pytest", "-m", "not slow", "-W", "ignore::DeprecationWarning", *given)


@nox.session
@nox.parametrize("name", ["airflow", "kfp", "prefect"], ids=["airflow", "kfp", "prefect"])
def suggested(session: nox.Session, name: str) -> None:
    """Run a host's searches with Ax's suggester, which is too large for the host's environment."""
    session.install(*requirements(name), *requirements("ax"), "-c", str(PINS / f"{name}.txt"))
    chosen = ("-k", "test_ax or test_searches and test_example")
    quiet = ("-W", "ignore::DeprecationWarning")
    session.run("pytest", f"tests/{name}", *SLOW, *chosen, *quiet)


@nox.session
def real_kubernetes(session: nox.Session) -> None:
    """Test the plugin kubernetes on the cluster that REAL_KUBECONFIG names."""
    if "REAL_KUBECONFIG" not in os.environ:
        session.skip("REAL_KUBECONFIG names no cluster")
    install(session, "main")
    given = session.posargs or ["-q", "-n", "8", "-m", "not slow"]
    limit = {} if session.posargs else {"REAL_SECONDS": "200"}
    outages = "tests/real_kubernetes/test_outages.py"
    alone = f"--ignore={outages}"
    session.run("pytest", "tests/real_kubernetes", alone, "--timeout=200", *given, env=limit)
    if "slow" in given:  # they concern everybody on the cluster
        session.run("pytest", outages, "--timeout=300", "-q")


@nox.session
@nox.parametrize("release", SLURM_RELEASES, ids=SLURM_RELEASES)
def slurm_release(session: nox.Session, release: str) -> None:
    """Run the Slurm suite with a newer Slurm, in a root of that release of Debian."""
    why = runpy.run_path("tests/slurm/root.py")["missing"]()
    if why is not None:
        session.skip(why)
    install(session, "main")
    python = f"{session.virtualenv.location}/bin/python"
    inside = (release, f".nox/debian-{release}", python, "-m", "pytest")
    given = session.posargs or ["tests/slurm", "-q", "-n", "2", "--timeout=200", "-m", "not slow"]
    session.run("python", "tests/slurm/root.py", *inside, *given)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build each distribution; try its wheel with nothing but what its metadata asks for."""
    install(session, "typing")
    made = Path(session.create_tmp()).resolve() / "wheels"
    shutil.rmtree(made, ignore_errors=True)
    for folder in DISTRIBUTIONS:
        session.run("uv", "build", "--quiet", "--out-dir", str(made), folder, external=True)
    for folder in DISTRIBUTIONS:
        name = Path(folder).name
        python = made.parent / name / "bin" / "python"
        session.run("uv", "venv", "--quiet", "--clear", str(python.parents[1]), external=True)
        project = nox.project.load_toml(f"{folder}/pyproject.toml")["project"]
        wanted = f"{project['name']}=={project['version']}"
        pins = PINS / f"{name if name in USED else 'main'}.txt"
        words = ("--find-links", str(made), wanted, "-c", str(pins))
        session.run("uv", "pip", "install", "--python", str(python), *words, external=True)
        checked = dict.fromkeys(("core", folder))
        session.run(str(python), "-P", "tests/wheels.py", *checked, external=True)
        lenient = ("--config-file=", "--ignore-missing-imports", "--follow-imports=silent")
        typed = ("--strict", *lenient, "--python-executable", str(python))
        session.run("mypy", *typed, f"tests/typed/{name}.py")
        shutil.rmtree(python.parents[1])


@nox.session(venv_backend="none")
def constraints(session: nox.Session) -> None:
    """Write tests/constraints anew: the newest versions that the index has, by environment.

    Only after the sessions `newest` have passed.
    """
    for name in (*USED, *CHECKS):
        if name == "unit":
            continue
        source = Path(".nox", f"{name}.in")
        source.parent.mkdir(exist_ok=True)
        words = requirements(name)
        pairs = zip(words[::2], words[1::2], strict=True)
        source.write_text("".join(f"{option} {Path(path).resolve()}\n" for option, path in pairs))
        command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", str(source)]
        found = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
        pins = [line.partition("+")[0] for line in found.splitlines() if line[:1].isalnum()]
        (PINS / f"{name}.txt").write_text("\n".join(pins) + "\n")
