"""The sessions of experiments: `python3 run_tests.py -f benchmarks/noxfile.py -s NAME`.

They use the environments of the suites, which are made where they are missing, and add what they
find to the pages.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "none"
nox.options.sessions = []

ROOT = Path(__file__).resolve().parents[1]
MADE = ROOT / ".nox"
HOSTS = ("airflow", "ax", "kfp", "prefect")
PICTURES = {
    "airflow": ("airflow", "kill"),
    "main": ("engines",),
    "kfp": ("kfp",),
    "prefect": ("prefect",),
    "ax": ("search", "report", "run", "preempted"),
}
"""What `docs/make_pictures.py` makes, by the environment that it needs."""


def python_of(session: nox.Session, name: str, *more: str, folder: Path = MADE) -> str:
    """Return the Python of a suite's environment, after installing what else is wanted there."""
    make = ("nox", "-f", "noxfile.py", "--envdir", str(folder), "--install-only", "-s", name)
    session.run(*make, external=True, silent=True)
    home = re.sub(r"\W+", "-", name).strip("-")  # as nox calls it
    python = str(folder / home / "bin" / "python")
    if more:
        session.run("uv", "pip", "install", "-q", "--python", python, *more, external=True)
    return python


def hosts_and_engines(
    session: nox.Session, names: Sequence[str], rivals: bool = False
) -> list[str]:
    """Return the Python that starts engines, and NAME=PYTHON of each host.

    The plugins of all engines are on the path of each. With rivals, what people use otherwise is
    installed in environments of their own.
    """
    session.chdir(ROOT)
    rows = []
    for name in names:
        file = Path("benchmarks/once/rivals", f"{name}.txt")
        more = ("-r", str(file)) if rivals and file.exists() else ()
        home = "main" if name in ("core", "command_line") else name
        python = python_of(session, home, *more, folder=MADE / "rivals" if rivals else MADE)
        rows.append(f"{name}={python}")
    besides = MADE / "engines"
    shutil.rmtree(besides, ignore_errors=True)
    folders = ("./core", *(f"./plugins/{name}" for name in ("docker", "kubernetes", "slurm")))
    words = ("--reinstall", "--target", str(besides), *folders)
    starter = python_of(session, "main")
    session.run("uv", "pip", "install", "-q", "--python", starter, *words, external=True)
    session.env["PYTHONPATH"] = str(besides)
    return [starter, *rows]


def options(session: nox.Session, **known: str) -> list[str]:
    """Return the values of `--NAME VALUE` after `--`, each its default where it is not given."""
    given = dict(zip(session.posargs[::2], session.posargs[1::2], strict=True))
    found = [given.pop(f"--{name}", default) for name, default in known.items()]
    if given:
        session.error(f"{', '.join(given)}: the options are --{', --'.join(known)}")
    return found


@nox.session
def everywhere(session: nox.Session) -> None:
    """Run one component, unchanged, in every host, each on one engine; all results must be equal.

    `-- --all`: each host on every engine. `-- --write`: the table goes to the pages, too.
    """
    rows = hosts_and_engines(session, ("command_line", *HOSTS))
    session.run("python", "benchmarks/everywhere/table.py", *session.posargs, *rows)


@nox.session
def once(session: nox.Session) -> None:
    """Kill hosts and engines at random moments, or clear their tasks, and count.

    `-- --kills 50 --cells prefect:local,whole:airflow:slurm,clear:airflow:local`: how many in each
    cell (5), which (all); with `--seed 17` the cases from that seed on are shown, and not added to the page.
    `--airflow 3.4`: with that version of Airflow, without what people use otherwise.
    """
    *wanted, airflow = options(session, kills="5", seed="", cells="all", airflow="")
    if airflow:
        rows = hosts_and_engines(session, ())
        rows.append(f"airflow={python_of(session, f'airflow_versions({airflow})')}")
        session.env["ONCE_OURS"] = "yes"
    else:
        rows = hosts_and_engines(session, (*HOSTS, "core"), rivals=True)
    session.run("python", "benchmarks/once/count.py", *wanted, *rows)


@nox.session
def load(session: nox.Session) -> None:
    """Have one Airflow, one Prefect server and one Ax experiment run 500 apps at once.

    `-- --units 50 --cells ax:slurm`: fewer, and which. `--minutes 10`: rounds for so long, after
    which nothing may have grown. `--write yes`: the table goes to `dev/scale.md`.
    """
    *wanted, keep = options(session, units="500", minutes="0", cells="all", write="")
    rows = hosts_and_engines(session, ("airflow", "ax", "prefect"))
    kept = ["--write"] if keep else []
    session.run("python", "benchmarks/load/table.py", *kept, *wanted, *rows)


@nox.session
def pictures(session: nox.Session) -> None:
    """Make all pictures and recordings of the pages anew; `-- report kill`: these alone."""
    session.chdir(ROOT)
    known = [name for names in PICTURES.values() for name in names]
    if unknown := set(session.posargs) - set(known):
        session.error(f"{', '.join(unknown)}: there are: {', '.join(known)}")
    more = ("-r", "tests/report/requirements.txt", "-r", "tests/search/requirements.txt")
    engines = ("-e", "./plugins/kubernetes", "-e", "./plugins/slurm")
    for host, names in PICTURES.items():
        if wanted := [name for name in names if name in (session.posargs or names)]:
            folder = MADE / "pictures"
            python = python_of(session, host, *more, *engines, folder=folder)
            session.run(python, "docs/make_pictures.py", *wanted, external=True)


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Time the core against TorchX 0.7.0 and print the figures; best on a machine that idles.

    `-- logs imports`: these scripts alone.
    """
    session.chdir(ROOT)
    python = python_of(session, "main", "torchx==0.7.0")
    for name in session.posargs or ("imports", "command_line", "local_jobs", "logs"):
        session.run(python, f"benchmarks/{name}.py", external=True)
