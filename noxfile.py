"""The test sessions: `python3 run_tests.py` (or `nox`) runs the default ones, `nox -s slow` all
that takes long.

Each session can be run alone. Environments are kept between runs; `-R` skips installing
dependencies altogether, while the distributions of this repository are always installed as they are
now: tests see wheels, never the source tree.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/[!_]*/pyproject.toml"))
TESTED = [name for name in PLUGINS if (ROOT / "tests" / name).is_dir()]
DISTRIBUTIONS = ["core", *(f"plugins/{name}" for name in PLUGINS)]
SEARCH, REPORT = "plugins/search", "plugins/report"
ALSO = {
    **dict.fromkeys(("airflow", "ax", "prefect"), (SEARCH, REPORT)),
    "kfp": ("plugins/docker", "plugins/kubernetes", SEARCH, REPORT),
    **dict.fromkeys(("mlflow", "report"), (SEARCH,)),
}
"""What a plugin's tests use besides the plugin: a scheduler for a launcher, the extra `search`, a
lineage's picture."""
TOOLS = ("-r", "tests/requirements.txt")
BASE = ("core", "plugins/testing")
"""What every suite installs: the core, and the conformance suites with the scripted scheduler."""
QUICK = ("-m", "not slow")
SLOW = ("-m", "slow", "-q")
WAITING = {
    "airflow": 3,
    "kubernetes": 4,
    "slurm": 4,
}  # workers of suites that mostly wait for others
OTHER_PYTHONS = ("3.12", "3.13")
SLURM_RELEASES = ("trixie", "sid")
ENGINES = runpy.run_path(str(ROOT / "tests" / "engines.py"))
SCHEMAS = {
    "github-workflows": ".github/workflows/*.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "dependabot": ".github/dependabot.yml",
    "citation-file-format": "CITATION.cff",
}
"""What the lint session compares with a schema: its name, and the files."""
EVERYWHERE = [
    path.stem.removeprefix("run_")
    for path in sorted((ROOT / "benchmarks" / "everywhere").glob("run_*.py"))
]
HOSTS = ("airflow", "ax", "kfp", "prefect")
HOST_SUITES = {"command_line": "core"}
PICTURES = {
    "airflow": ("airflow", "kill"),
    "docker": ("engines",),
    "kfp": ("kfp",),
    "prefect": ("prefect",),
}
PICTURES["ax"] = ("search", "report", "run", "preempted", "benchmarks")
"""What `docs/make_pictures.py` makes, by the host whose environment it needs."""
nox.options.sessions = [
    "lint",
    "typing",
    "core",
    *TESTED,
    "bare",
    "real_kubernetes",
    "torch",
    "docs",
]

# What a test imports is compiled by the first process that does, for all others; most of the
# packages never is.
os.environ.pop("UV_COMPILE_BYTECODE", None)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def install(session: nox.Session, *wanted: str, own: Sequence[str]) -> None:
    """Install what is wanted and these distributions' wheels of today: the latter also where
    nothing else shall be.
    """
    built = wheels_of(own)
    session.install(*wanted, *built)
    session.run("uv", "pip", "install", "--quiet", "--no-deps", *built, external=True)


def wheels_of(folders: Sequence[str]) -> list[str]:
    """Return the wheels of distributions, `FOLDER[extra]` with its extra; one is built if its
    sources have changed.

    Each lies in a folder that is named after its sources' content, so an installer sees whether it
    has this very one.
    """
    made = ROOT / ".nox" / "built"
    made.mkdir(parents=True, exist_ok=True)
    found = []
    with open(made / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for folder, bracket, extra in (each.partition("[") for each in folders):
            name = folder.replace("/", "-")
            place = made / f"{name}@{_digest(ROOT / folder)}"
            if not list(place.glob("*.whl")):
                for old in made.glob(f"{name}@*"):
                    shutil.rmtree(old)
                build = [own_uv(), "build", "--wheel", "--quiet", "--out-dir", str(place), folder]
                subprocess.run(build, cwd=ROOT, check=True)
            found.append(f"./{next(place.glob('*.whl')).relative_to(ROOT)}{bracket}{extra}")
    return found


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(
        each for each in folder.rglob("*") if each.is_file() and "__pycache__" not in each.parts
    ):
        digest.update(
            f"{path.relative_to(folder)} {path.stat().st_size} ".encode() + path.read_bytes()
        )
    return digest.hexdigest()[:16]


def suite(session: nox.Session, name: str, *folders: str) -> None:
    """Install distributions and what their tests need, then run `tests/<name>`.

    What they need stands in `tests/<name>/requirements.txt` and, for versions that these tests
    alone insist on, `constraints.txt` next to it; both may be missing.
    """
    find_cpu_torch(session)
    install(session, *TOOLS, *files_of(name), own=folders)
    run_pytest(session, f"tests/{name}", workers=WAITING.get(name, 2))


def files_of(name: str) -> list[str]:
    """Return the installer's options for the requirements and constraints of `tests/<name>`, as far
    as they exist.
    """
    more: list[str] = []
    for option, file in (("-r", "requirements.txt"), ("-c", "constraints.txt")):
        path = ROOT / "tests" / name / file
        more += [option, str(path.relative_to(ROOT))] if path.exists() else []
    return more


def run_pytest(
    session: nox.Session, *folders: str, more: tuple[str, ...] = (), workers: int = 2
) -> None:
    """Run these folders' quick tests, or what the words after `--` say; `more` are further
    options.
    """
    given = tuple(session.posargs) or ("-q", "-n", str(workers))
    slow = given == SLOW
    named = any(
        (ROOT / word.partition("::")[0]).exists() for word in given if not word.startswith("-")
    )
    if given[0].startswith("@"):  # a file of tests that were left out, slow ones too
        named, given = True, ("-q", "-n", str(workers), "-m", "", "--timeout=900", *given)
    where = () if named else folders
    # a test that hangs shows where, instead of hanging the run
    limit = f"--timeout={900 if slow else 120}"
    # a real server on a busy machine may be late once; the summary lists what ran twice.
    # tests/core/conftest.py says which tests have no second try
    again = "--reruns=1"
    # 5: this suite has no slow test
    good = [0, 5] if slow else [0]
    session.run(
        "pytest",
        *where,
        limit,
        again,
        *QUICK,
        *more,
        *given,
        success_codes=good,
        env=left_out(session),
    )


def left_out(session: nox.Session) -> dict[str, str]:
    """Return the variable that says where a session notes what it leaves out: see `run_tests.py
    --left-out`.
    """
    folder = ROOT / ".nox" / "left-out"
    folder.mkdir(parents=True, exist_ok=True)
    return {ENGINES["LEFT_OUT"]: str(folder / f"{session.name}.json")}


def find_cpu_torch(session: nox.Session) -> None:
    """Keep the gigabytes of CUDA away: this machine's own folder of wheels if pip has one, else
    PyTorch's CPU index.
    """
    folders = [
        place for place in os.environ.get("PIP_FIND_LINKS", "").split() if Path(place).is_dir()
    ]
    if folders:
        session.env.setdefault("UV_FIND_LINKS", ",".join(folders))
    else:
        session.env.setdefault("UV_TORCH_BACKEND", "cpu")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, docstrings, banned imports, formatting and spelling, and the files that only a
    public runner reads.
    """
    session.install("-r", "tests/requirements-lint.txt")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    for schema, pattern in SCHEMAS.items():
        files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
        session.run("check-jsonschema", "--quiet", "--builtin-schema", f"vendor.{schema}", *files)


@nox.session
def typing(session: nox.Session) -> None:
    """Check the types of every source tree, strictly."""
    install(session, "-r", "tests/requirements-typing.txt", own=BASE)
    for folder in DISTRIBUTIONS:
        session.run("mypy", f"{folder}/src")


@nox.session
def core(session: nox.Session) -> None:
    """Test the core, and the template of an adapter, which needs nothing else."""
    find_cpu_torch(session)
    stores = ("-r", "tests/core/requirements-slow.txt") if "slow" in session.posargs else ()
    install(session, *TOOLS, "-r", "tests/core/requirements.txt", *stores, own=BASE)
    run_pytest(session, "tests/core", "tests/template")


@nox.session
def unit(session: nox.Session) -> None:
    """Run the tests that need no process and no server, in less than 20 seconds."""
    install(session, *TOOLS, "-r", "tests/core/requirements.txt", own=BASE)
    # in one process: two would take twice as long, each to collect all tests
    run_pytest(session, "tests/core", more=("-m", "unit"), workers=0)


@nox.session
def bare(session: nox.Session) -> None:
    """Run the suites of Slurm and Docker, and collect others, as on a machine that has no engine.

    Where neither is here, the sessions `slurm` and `docker` were that, and nothing is left to do.
    """
    here = [name for name in ("slurm", "docker") if ENGINES["missing"](name) is None]
    if not here:
        session.log(
            "neither Slurm nor Docker can be used here: the sessions slurm and docker ran without "
            "them"
        )
        return
    find_cpu_torch(session)
    suites = ("core", "docker", "kubernetes", "slurm")
    wanted = [word for name in suites for word in files_of(name)]
    install(
        session,
        *TOOLS,
        *wanted,
        own=(*BASE, *(f"plugins/{name}" for name in suites if name != "core")),
    )
    pytest = ("python", "tests/engines.py", "hide", "--", "python", "-m", "pytest")
    everything = [f"tests/{name}" for name in (*suites, "template", "testing")]
    session.run(
        *pytest, *everything, "--collect-only", "-q", "--no-header", "--no-summary", silent=True
    )
    given = session.posargs or ["tests/slurm", "tests/docker", "-q", "-n", "2"]
    session.run(*pytest, "--timeout=120", *QUICK, *given)


@nox.session
def torch(session: nox.Session) -> None:
    """Test `dist.ddp` with a real torch (CPU, gloo)."""
    suite(session, "torch", *BASE, "plugins/docker", "plugins/slurm")


@nox.session(venv_backend="none")
def everywhere(session: nox.Session) -> None:
    """Run one component, unchanged, in every host, each on one engine; print one table; all
    accuracies must be equal.

    `-- --all`: each host on every engine. `-- --write`: that table goes to the pages, too. `--
    --engines=docker,slurm`: of what runs without them, the rows of these engines.
    """
    starter, *rows = hosts_and_engines(session, EVERYWHERE)
    with real_cluster(session):
        command = ("python", "benchmarks/everywhere/table.py", *session.posargs, starter, *rows)
        session.run(*command, external=True, env=left_out(session))


@nox.session(venv_backend="none")
def once(session: nox.Session) -> None:
    """Kill hosts and engines at random moments, with our adapters and with what people use
    otherwise, and count.

    `-- --kills 50 --cells prefect:local,whole:airflow:slurm`: how many in each cell (5), which
    (all); with `--seed 17` the cases from that seed on are shown, and not added to the page.
    """
    given = dict(zip(session.posargs[::2], session.posargs[1::2], strict=True))
    wanted = [
        given.pop(f"--{name}", default)
        for name, default in (("kills", "5"), ("seed", ""), ("cells", "all"))
    ]
    if given:
        session.error(f"{', '.join(given)}: the options are --kills, --seed and --cells")
    starter, *rows = hosts_and_engines(session, (*HOSTS, "core"), rivals=True)
    with real_cluster(session):
        session.run("python", "benchmarks/once/count.py", *wanted, starter, *rows, external=True)


@nox.session(venv_backend="none")
def load(session: nox.Session) -> None:
    """Have one Airflow, one Prefect server and one Ax experiment run 500 apps at once, on this
    machine and on Slurm.

    `-- --units 50 --cells ax:slurm`: fewer, and which. `--minutes 10`: rounds for so long, after
    which nothing may have
    grown. `--write yes`: the table goes to `docs/evidence/scale.md`.
    """
    given = dict(zip(session.posargs[::2], session.posargs[1::2], strict=True))
    defaults = (("units", "500"), ("minutes", "0"), ("cells", "all"))
    wanted = [given.pop(f"--{name}", default) for name, default in defaults]
    keep = ["--write"] if given.pop("--write", "") else []
    if given:
        session.error(
            f"{', '.join(given)}: the options are --units, --minutes, --cells and --write"
        )
    starter, *rows = hosts_and_engines(session, ("airflow", "ax", "prefect"))
    session.run("python", "benchmarks/load/table.py", *keep, *wanted, starter, *rows, external=True)


@nox.session(venv_backend="none")
def pictures(session: nox.Session) -> None:
    """Make all pictures and recordings of the pages anew, from real runs; `-- report kill`: these
    alone.
    """
    find_cpu_torch(session)
    if unknown := set(session.posargs) - set(sum(PICTURES.values(), ())):
        session.error(f"{', '.join(unknown)}: there are: {', '.join(sum(PICTURES.values(), ()))}")
    more = [word for name in ("report", "search") for word in files_of(name)]
    more += [
        "-r",
        "examples/digits/requirements.txt",
        *wheels_of(["plugins/kubernetes", "plugins/slurm"]),
    ]
    with real_cluster(session):
        for host, names in PICTURES.items():
            if wanted := [name for name in names if name in (session.posargs or names)]:
                python = python_of(session, host, *more, place=f"pictures-{host}")
                session.run(str(python), "docs/make_pictures.py", *wanted, external=True)


def hosts_and_engines(
    session: nox.Session, names: Sequence[str], *, rivals: bool = False
) -> list[str]:
    """Have all that hosts need on every engine; return the Python that starts engines, and
    NAME=PYTHON of each host.

    Each host has the environment of its own session, which is made if it is not there yet, with the
    engines' plugins on its path besides. With rivals it is another one, where what people use
    otherwise (`benchmarks/once/rivals`) is, too.
    """
    find_cpu_torch(session)
    digits = ("-r", "examples/digits/requirements.txt")
    rows = []
    for name in names:
        file = Path("benchmarks/once/rivals", f"{name}.txt")
        more = (*digits, "-r", str(file)) if rivals and file.exists() else digits
        place = f"once-{name}" if rivals else ""
        rows.append(f"{name}={python_of(session, HOST_SUITES.get(name, name), *more, place=place)}")
    starter = python_of(session, "docker", *digits)
    built = wheels_of(["core", *(f"plugins/{name}" for name in ("docker", "kubernetes", "slurm"))])
    # named after its content: another session that counts, or a program of it, may be using an
    # older one
    besides = (
        ROOT / ".nox" / "everywhere" / hashlib.sha256("".join(built).encode()).hexdigest()[:16]
    )
    with open(ROOT / ".nox" / "built" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not besides.exists():
            aside = besides.with_suffix(".part")
            shutil.rmtree(aside, ignore_errors=True)
            command = (
                own_uv(),
                "pip",
                "install",
                "--quiet",
                "--python",
                str(starter),
                "--target",
                str(aside),
            )
            session.run(*command, *built, external=True)
            aside.rename(besides)
    session.env["PYTHONPATH"] = str(besides)
    return [str(starter), *rows]


def python_of(
    session: nox.Session, name: str, *more: str, version: str = "", place: str = ""
) -> Path:
    """Return the Python of a suite's own environment, with the wheels of today; it is made if it is
    not there yet.

    Args:
        session: Who asks.
        name: `core`, or a plugin.
        more: What else to install.
        version: Of another Python than this one, such as `3.13`; the session is skipped if there is
            none here.
        place: Folder of the environment, if it is not the suite's own.
    """
    uv = own_uv()
    python = (
        ROOT / ".nox" / (place or (f"{name}-{version}" if version else name)) / "bin" / "python"
    )
    if not python.exists():
        other = ("--python", interpreter(session, version)) if version else ()
        session.run(uv, "venv", "--quiet", *other, str(python.parents[1]), external=True)
    command = (uv, "pip", "install", "--quiet", "--python", str(python))
    session.run(*command, *TOOLS, *files_of(name), *more, *wheels_of(_folders(name)), external=True)
    return python


def own_uv() -> str:
    """Return the program uv: the one beside the Python that runs nox, else that of the PATH."""
    return (
        shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        or "uv"
    )


def interpreter(session: nox.Session, version: str) -> str:
    """Return the path of a Python of this version: one on the PATH, or one of pyenv's; else the
    session is skipped.
    """
    own = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    found = [each for each in (shutil.which(f"python{version}"), *map(str, own)) if each]
    # what pyenv puts on the PATH may be there and not run
    running = [
        each
        for each in found
        if not subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode
    ]
    if not running:
        session.skip(f"no Python {version} is here")
    return running[0]


@nox.session(venv_backend="none")
@nox.parametrize("version", OTHER_PYTHONS, ids=OTHER_PYTHONS)
def python(session: nox.Session, version: str) -> None:
    """Run the core's suite and the conformance suites on another Python, if this machine has it."""
    find_cpu_torch(session)
    program = python_of(session, "core", version=version)
    given = tuple(session.posargs) or ("-q", "-n", "2")
    where = (
        () if any(word.startswith("tests/") for word in given) else ("tests/core", "tests/testing")
    )
    session.run(
        str(program),
        "-m",
        "pytest",
        *where,
        "--timeout=120",
        "--reruns=1",
        *QUICK,
        *given,
        external=True,
    )


def _plugin_session(name: str) -> None:
    """Make the session of one plugin, named like it."""

    def run(session: nox.Session) -> None:
        suite(session, name, *_folders(name))

    run.__doc__ = f"Test the plugin {name}."
    nox.session(run, name=name)


for _name in TESTED:
    _plugin_session(_name)


@nox.session
def real_kubernetes(session: nox.Session) -> None:
    """Test the plugin kubernetes on a real cluster: that of REAL_KUBECONFIG, else the one that
    REAL_CLUSTER starts.

    REAL_CLUSTER is a program with the commands `up`, which prints `export KUBECONFIG=…`, `status`
    and `down`.
    """
    with real_cluster(session):
        if "REAL_KUBECONFIG" not in session.env:
            session.log("not run: REAL_KUBECONFIG names no cluster")
            return
        install(
            session, *TOOLS, "cloudpickle>=3", "pip>=23", own=(*BASE, "plugins/kubernetes[images]")
        )
        given = session.posargs or ["-q", "-n", "8", *QUICK]
        limit = {} if session.posargs else {"REAL_SECONDS": "200"}
        outages = "tests/real_kubernetes/test_outages.py"
        session.run(
            "pytest",
            "tests/real_kubernetes",
            f"--ignore={outages}",
            "--timeout=200",
            *given,
            env=limit,
        )
        if "slow" in given:  # they concern everybody on the cluster
            session.run("pytest", outages, "--timeout=300", "-q")


@nox.session
@nox.parametrize("release", SLURM_RELEASES, ids=SLURM_RELEASES)
def slurm_release(session: nox.Session, release: str) -> None:
    """Run the Slurm suite with a newer Slurm, in a root of that release of Debian
    (`tests/slurm/root.py`).
    """
    root = runpy.run_path("tests/slurm/root.py")
    why = root["missing"]()
    if why is not None:
        session.skip(why)
    install(session, *TOOLS, *files_of("slurm"), own=(*BASE, "plugins/slurm"))
    folder = ROOT / ".nox" / f"debian-{release}"
    given = session.posargs or [
        "tests/slurm",
        "-q",
        "-n",
        "2",
        "--timeout=200",
        "--reruns=1",
        *QUICK,
    ]
    python = f"{session.virtualenv.location}/bin/python"
    session.run(
        "python", "tests/slurm/root.py", release, str(folder), python, "-m", "pytest", *given
    )


@contextlib.contextmanager
def real_cluster(session: nox.Session) -> Iterator[None]:
    """Have REAL_KUBECONFIG in the session's environment, if there is a cluster; one that was
    started here is ended.
    """
    program = os.environ.get("REAL_CLUSTER")
    if os.environ.get("REAL_KUBECONFIG") or not program:
        if os.environ.get("REAL_KUBECONFIG"):
            session.env["REAL_KUBECONFIG"] = os.environ["REAL_KUBECONFIG"]
        yield
        return
    with open("/var/tmp/transload-real-cluster.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        there = (
            "not running"
            not in subprocess.run([program, "status"], check=True, text=True, stdout=-1).stdout
        )
        try:
            said = subprocess.run([program, "up"], check=True, text=True, stdout=-1).stdout
            session.env["REAL_KUBECONFIG"] = said.strip().rpartition("=")[2]
            yield
        finally:
            if not there:
                subprocess.run([program, "down"], check=False)


@nox.session
@nox.parametrize("name", ["airflow", "kfp", "prefect"], ids=["airflow", "kfp", "prefect"])
def suggested(session: nox.Session, name: str) -> None:
    """Run a host's searches with Ax's suggester, which is left out of the host's own environment
    for its size.
    """
    find_cpu_torch(session)
    folders = list(dict.fromkeys((*_folders(name), *_folders("ax"))))
    pins = (*files_of(name), "-c", "tests/ax/constraints.txt")
    install(session, *TOOLS, *pins, own=folders)
    chosen = (
        "-m",
        "slow",
        "-k",
        "test_ax or test_searches and test_example",
        "-q",
        "--timeout=900",
    )
    session.run("pytest", f"tests/{name}", *chosen, "-W", "ignore::DeprecationWarning")


@nox.session(venv_backend="none")
def slow(session: nox.Session) -> None:
    """Run every suite's slow tests, then the lowest versions, other Pythons, the wheels of
    everything, and one component in every orchestrator.
    """
    for name in ("core", *TESTED):
        session.notify(name, SLOW)
    for name in ("core", *TESTED):
        session.notify(f"lowest({name})")
    for name in ("airflow", "kfp", "prefect"):
        session.notify(f"suggested({name})")
    session.notify("real_kubernetes", SLOW)
    for release in SLURM_RELEASES:
        session.notify(f"slurm_release({release})", ())
    for version in OTHER_PYTHONS:
        session.notify(f"python({version})", ("-q", "-n", "2"))
    session.notify("wheels")
    session.notify("everywhere")


@nox.session(venv_backend="uv")
@nox.parametrize("name", ["core", *TESTED], ids=["core", *TESTED])
def lowest(session: nox.Session, name: str) -> None:
    """Run a suite with the lowest versions that the distribution's metadata allows.

    `tests/<name>/lowest.txt` may raise one, where the first supported release is above what the
    package allows.
    """
    find_cpu_torch(session)
    folder = "core" if name == "core" else f"plugins/{name}"
    project = nox.project.load_toml(ROOT / folder / "pyproject.toml")["project"]
    made = Path(session.create_tmp()).resolve()
    wanted, pins, raised = (
        made / "wanted.txt",
        made / "lowest.txt",
        ROOT / "tests" / name / "lowest.txt",
    )
    # the distributions of this repository are not on an index
    found = [each for each in project["dependencies"] if not each.startswith("transload")]
    wanted.write_text("\n".join(found))
    more = ("-c", str(raised)) if raised.exists() else ()
    resolve = ("--resolution", "lowest-direct", "--no-deps", *more, "--quiet", "-o", str(pins))
    session.run("uv", "pip", "compile", str(wanted), *resolve, external=True)
    own = _folders(name)
    install(session, *TOOLS, *files_of(name), *more, "-c", str(pins), own=own)
    # old releases warn of what newer ones have mended
    run_pytest(session, f"tests/{name}", more=("-W", "ignore::DeprecationWarning"))


@nox.session(venv_backend="uv")
def wheels(session: nox.Session) -> None:
    """Build sdist and wheel of every distribution; try each wheel with nothing but core's and its
    own host.
    """
    made = Path(session.create_tmp()).resolve() / "wheels"
    shutil.rmtree(made, ignore_errors=True)
    find_cpu_torch(session)
    session.install("-r", "tests/requirements-typing.txt")
    for folder in DISTRIBUTIONS:
        session.run("uv", "build", "--quiet", "--out-dir", str(made), folder, external=True)
    for folder in DISTRIBUTIONS:
        name = Path(folder).name
        python = made.parent / name / "bin" / "python"
        session.run("uv", "venv", "--quiet", "--clear", str(python.parents[1]), external=True)
        parts = ["core", *dict.fromkeys((*_own_requirements(folder), name))]
        built = [
            str(path)
            for part in dict.fromkeys(parts)
            for path in made.glob(f"{_wheel_of(part)}-[0-9]*.whl")
        ]
        pins = (
            ("-c", f"tests/{name}/constraints.txt")
            if (ROOT / "tests" / name / "constraints.txt").exists()
            else ()
        )
        session.run(
            "uv", "pip", "install", "--quiet", "--python", str(python), *built, *pins, external=True
        )
        session.run(
            str(python),
            "-P",
            "tests/wheels.py",
            *(("core",) if name == "core" else ("core", folder)),
            external=True,
        )
        lenient = (
            "--strict",
            "--config-file=",
            "--ignore-missing-imports",
            "--follow-imports=silent",
        )
        session.run("mypy", *lenient, "--python-executable", str(python), f"tests/typed/{name}.py")
        shutil.rmtree(python.parents[1])


def _folders(name: str) -> list[str]:
    """Return the distributions that the tests of one need: the base, itself, and what it is used
    with.
    """
    own = "core" if name == "core" else f"plugins/{name}"
    return list(dict.fromkeys((*BASE, own, *ALSO.get(name, ()))))


def _own_requirements(folder: str) -> list[str]:
    """Return the names of this repository's plugins that a distribution cannot do without."""
    wanted = nox.project.load_toml(ROOT / folder / "pyproject.toml")["project"]["dependencies"]
    return [
        name for name in PLUGINS if any(each.startswith(f"transload-{name}>") for each in wanted)
    ]


def _wheel_of(name: str) -> str:
    return "transload" if name == "core" else f"transload_{name}"


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Time the core against TorchX 0.7.0, hosts and engines against their own way; write
    docs/evidence/benchmarks.md.

    Best on a machine that idles. After `--`: scripts of benchmarks/ or groups of them, `core` or
    `hosts`; default: all.
    """
    find_cpu_torch(session)
    install(session, "torchx==0.7.0", "matplotlib", own=["core[functions]"])
    scripts = runpy.run_path(str(ROOT / "benchmarks" / "run_all.py"))["SCRIPTS"]
    names = session.posargs or ["core", "hosts"]
    wanted = {
        each.environment for name, each in scripts.items() if name in names or each.group in names
    } - {"core"}
    more = {"prefect": ("prefect-shell",)}
    pythons = [
        f"--python={host}={python_of(session, host, *more.get(host, ()))}"
        for host in sorted(wanted)
    ]
    session.run("python", "benchmarks/run_all.py", *names, *pythons)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into docs/_build, every warning an error, and run the code that
    its pages show.
    """
    install(session, *TOOLS, "-r", "tests/docs/requirements.txt", own=BASE)
    # without their hosts: state tables are read without them
    session.run(
        "uv", "pip", "install", "--quiet", "--no-deps", *wheels_of(DISTRIBUTIONS), external=True
    )
    version = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]["version"]
    strict = ("-E", "-q", "-n", "-W", "--keep-going")
    session.run("python", "-m", "sphinx", "-c", "docs", *strict, ".", f"docs/_build/{version}")
    run_pytest(session, "tests/docs")
