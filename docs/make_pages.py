#!/usr/bin/env python3
"""Write states.md, schedulers.md and hooks.md from the code, and, for the site alone, a
page for each module.

Run it after changing a state table, a scheduler, a hook or an adapter: these pages are kept with the
sources, and a test compares them. A state table is read without its host; the distributions of this
repository must be installed (their hosts need not).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import get_args

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


from transload.pipelines import StateMap  # noqa: E402
from transload.plugins import hookspecs  # noqa: E402
from transload.schedulers import Field, features  # noqa: E402
from transload.specs import AppState, Options, is_started, is_terminal  # noqa: E402
from transload.specs.options import OptionFields  # noqa: E402

HOST_PACKAGES = [
    *(
        "airflow",
        "anyio",
        "attr",
        "asgiref",
        "ax",
        "botorch",
        "docker",
        "httpx",
        "kfp",
        "kubernetes",
        "kubernetes_platform",
        "matplotlib",
    ),
    *(
        "mlflow",
        "numpy",
        "pandas",
        "plotly",
        "prefect",
        "pydantic",
        "requests",
        "sqlalchemy",
        "torch",
    ),
    "yaml",
]
"""What plugins import and the site does not need: stood in for while their docstrings are read."""

MODULES = {
    "transload.specs": "What a job is: see [specs](reference/specs.md).",
    "transload.errors": "What may go wrong, named by what to do next.",
    "transload.components": "Jobs as functions: see [components](guides/components.md).",
    "transload.runner": "Submitting jobs, waiting for them, their logs line by line: see "
    "[the runner](guides/runner.md).",
    "transload.schedulers": "The contract of schedulers, and what watches jobs until they end: see "
    "[writing a scheduler](extend/writing-a-scheduler.md).",
    "transload.schedulers.environments": "Packages that a job needs, which uv installs where it runs: see "
    "[environments](guides/environments.md).",
    "transload.schedulers.local": "See [the local scheduler](schedulers/local.md).",
    "transload.workspace": "How local code reaches where a job runs.",
    "transload.runtime": "Results, for applications, in one line: see [results and tracking](guides/tracking.md).",
    "transload.runtime.tracking": "Results, for applications: see [results and tracking](guides/tracking.md).",
    "transload.tracker": "Metadata, artifacts and lineage: see [results and tracking](guides/tracking.md).",
    "transload.pipelines": "What adapters share: see [writing an adapter](extend/writing-an-adapter.md).",
    "transload.plugins.hookspecs": "The hooks: see [plugins](extend/plugins.md).",
    "transload.plugins": "The plugin manager, and helpers for plugins.",
}
"""The modules of the core that have pages of their own on the site."""

PLUGINS = sorted(path.parent.name for path in HERE.parent.glob("plugins/[!_]*/pyproject.toml"))


def page_of(name: str) -> str | None:
    """Return the page of a plugin as a path below docs/; None if it has none there."""
    for folder in ("orchestrators", "schedulers", "guides"):
        if (HERE / folder / f"{name}.md").exists():
            return f"{folder}/{name}.md"
    return None


ABOUT = {name: page_of(name) or f"../plugins/{name}/README.md" for name in PLUGINS}
API = {
    **MODULES,
    **{f"transload_{name}": f"See [its page]({page})." for name, page in ABOUT.items()},
}

SECTIONS: Mapping[str, list[str]] = {
    "Start": ["start/*"],
    "Guides": ["guides/*"],
    "Orchestrators": ["orchestrators/*"],
    "Schedulers": ["schedulers/*"],
    "Reference": ["reference/*", "api/*"],
    "Explanation": ["explanation/*"],
    "Extend": ["extend/*"],
}
"""What users read, in the order of the menu."""

ABOUT_STATES = """\
`transload.specs.is_terminal` decides everywhere what is final. UNKNOWN is never read as a failure: see
[adapters](adapters.md#what-is-the-same-in-every-orchestrator).

## From a scheduler's words

A word that is not in the table, for instance of a newer engine, is UNKNOWN. What is added to the word (an exit code,
retries that are left) is said on the scheduler's own page.
"""
ABOUT_HOOKS = """\
Written by `docs/make_pages.py` from `transload.plugins.hookspecs`. [Plugins](plugins.md) shows how one is made.
"""

WORDS = {
    "docker": ("a container of Docker", "transload_docker.states", "STATES"),
    "slurm": ("Slurm", "transload_slurm.states", "STATES"),
    "kubernetes": ("a pod of Kubernetes", "transload_kubernetes.states", "PHASES"),
}


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module offers, in its own order."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return list(names)
    own = [
        name
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", "") == module.__name__
    ]
    return [name for name in own if not name.startswith("_")]


# ------------------------------------------------------------------------------------------------------
# the states


def _meanings() -> dict[str, str]:
    """Return what each state means, from the docstring of `AppState`."""
    rows = re.findall(r"^\| ([A-Z]+) \| ([^|]+) \|", inspect.getdoc(AppState) or "", re.MULTILINE)
    return {name: text.strip() for name, text in rows}


def _state_maps() -> dict[str, StateMap]:
    """Return the state table of every adapter whose distribution has one, by the name of the
    plugin.
    """
    found = {}
    for name in PLUGINS:
        if importlib.util.find_spec(f"transload_{name}") is None:
            raise SystemExit(
                f"transload-{name} is not installed: pip install --no-deps ./plugins/{name}"
            )
        if importlib.util.find_spec(f"transload_{name}.states") is None:
            continue
        table = getattr(importlib.import_module(f"transload_{name}.states"), "STATES", None)
        if isinstance(table, StateMap):
            found[name] = table
    return found


def states() -> str:
    """Return the page of all state tables."""
    parts = [
        "# States",
        "",
        "Written by `docs/make_pages.py` from the tables that the code itself uses.",
        "",
    ]
    parts += ["## States of an app, a role, a replica", ""]
    parts += ["| `AppState` | meaning | started | terminal |", "|---|---|---|---|"]
    meanings = _meanings()
    for state in AppState:
        marks = " | ".join("✓" if yes else "" for yes in (is_started(state), is_terminal(state)))
        parts.append(f"| {state.name} | {meanings[state.name]} | {marks} |")
    parts += ["", ABOUT_STATES]
    for name, (title, module, attribute) in WORDS.items():
        table = getattr(importlib.import_module(module), attribute)
        parts += [
            f"### {title[0].upper()}{title[1:]}",
            "",
            f"[Its page](../{page_of(name)}).",
            "",
            "| word | `AppState` |",
            "|---|---|",
        ]
        parts += [*(f"| `{word}` | {state.name} |" for word, state in table.items()), ""]
    parts += [
        "## To an orchestrator's states",
        "",
        "Each table is total: every `AppState` has one row.",
        "",
    ]
    for name, table in _state_maps().items():
        page = f"[Its page](../{page_of(name)})." if page_of(name) else ""
        parts += [f"### {table.host}", "", *([page, ""] if page else []), table.markdown()]
    return "\n".join(parts).rstrip() + "\n"


# -------------------------------------------------------------------------------------------------------
# the schedulers

SCHEDULERS = {
    "local": "transload.schedulers.local:LocalScheduler",
    "slurm": "transload_slurm:SlurmScheduler",
    "docker": "transload_docker.scheduler:DockerScheduler",
    "kubernetes": "transload_kubernetes.scheduler:KubernetesScheduler",
}
ABOUT_SCHEDULERS = """\
# Schedulers side by side

Written by `docs/make_pages.py` from the schedulers' classes, as `transload info NAME` shows them. What a scheduler
does not have is refused by the name of the field before anything is started. Limits of what it has stand on
its own page.
"""
ABOUT_OPTIONS = """
## Options of every scheduler

Options are given by `-c NAME=VALUE`, as `cfg` in Python, or in a [table of the settings](configuration.md). Settings of
the connection say which cluster it is. They stand in the table `[schedulers.NAME]` alone.
"""


def schedulers() -> str:
    """Return the page of what each scheduler has."""
    classes = {name: pkgutil.resolve_name(target) for name, target in SCHEDULERS.items()}
    found = {name: features(each) for name, each in classes.items()}
    pages = " | ".join(f"[{name}](../schedulers/{name}.md)" for name in found)
    parts = [ABOUT_SCHEDULERS, f"| | {pages} |", "|---" * (len(found) + 1) + "|"]

    def row(title: str, values: list[object]) -> None:
        cells = []
        for value in values:
            text = "✓" if value is True else ", ".join(value) if isinstance(value, list) else value
            cells.append(str(text or ""))
        parts.append(f"| {title} | {' | '.join(cells)} |")

    for field in get_args(Field):
        row(f"`{field}`", [field in each["fields"] for each in found.values()])
    for key in [key for key in next(iter(found.values())) if key not in ("fields", "methods")]:
        row(f"`{key}`", [each[key] for each in found.values()])
    parts += [ABOUT_OPTIONS, *_options(Options)]
    for name, cls in classes.items():
        parts += ["", f"## Options of {name}", "", *_options(cls.options, Options)]
        parts += ["", "Settings of the connection:", "", *_options(cls.connection)]
    return "\n".join(parts) + "\n"


def _options(cls: type[OptionFields], common: type[OptionFields] = OptionFields) -> list[str]:
    """Return the table of the options of a class, without those of `common`."""
    rows = ["| option | type | default | what it is |", "|---|---|---|---|"]
    for name, each in cls.table().items():
        if name in common.table():
            continue
        default = "" if each.default in (None, [], {}) else f"`{each.default}`"
        kind = each.type_name.replace("|", r"\|")
        help_text = re.sub(r"([<*|])", r"\\\1", each.help)
        rows.append(f"| `{name}` | `{kind}` | {default} | {help_text} |")
    return rows


# -------------------------------------------------------------------------------------------------------
# the hooks


def _markdown(docstring: str) -> str:
    """Return a Google-style docstring as Markdown: sections become lists."""
    lines, section = [], ""
    for line in docstring.replace("``", "`").splitlines():
        head = re.fullmatch(r"(Args|Returns|Raises):", line)
        entry = re.match(r"    (\w+): (.*)", line) if section == "Args" else None
        if head:
            section = head[1]
            lines += [f"*{section}*", ""]
        elif entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif section and line.startswith("    "):
            lines.append(("  " if section == "Args" else "") + line.strip())
        else:
            section = "" if line else section
            lines.append(line)
    return "\n".join(lines)


def hooks() -> str:
    """Return the page of all hooks."""
    parts = [
        "# Hooks",
        "",
        ABOUT_HOOKS,
    ]
    parts += [_markdown((inspect.getdoc(hookspecs) or "").split("\n\n", 1)[1]), ""]
    for name, thing in vars(hookspecs).items():
        if not name.startswith("transload_") or not inspect.isfunction(thing):
            continue
        arguments = ", ".join(inspect.signature(thing).parameters)
        parts += [f"## `{name}({arguments})`", "", _markdown(inspect.getdoc(thing) or ""), ""]
    return "\n".join(parts).rstrip() + "\n"


# ---------------------------------------------------------------------------------------------- for
# the site alone


def _directive(module: ModuleType, name: str, seen: dict[object, str]) -> str:
    """Return what documents one public name; data is shown with its value or its type."""
    thing, full = getattr(module, name), f"{module.__name__}.{name}"
    own = getattr(thing, "__module__", "").startswith("transload")
    if own and (inspect.isclass(thing) or inspect.isroutine(thing)):
        first = seen.setdefault(thing, full)
        if first != full:
            return f".. py:data:: {name}\n\n   The same as :py:obj:`{first}`."
    if inspect.isclass(thing):
        return f".. autoclass:: {full}"
    if inspect.isroutine(thing):
        return f".. autofunction:: {full}"
    if type(thing).__module__.startswith("transload."):
        return f".. py:data:: {name}\n   :type: {type(thing).__name__}"
    value = f"\n   :value: {thing!r}" if isinstance(thing, str | int | float) else ""
    return f".. py:data:: {name}{value}"


def exists(target: str) -> bool:
    """Tell whether a dotted name can be imported."""
    try:
        pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def api() -> None:
    """Write a page for each module that has names, below docs/api, which is not kept with the
    sources.
    """
    folder = HERE / "api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    seen: dict[object, str] = {}
    for name, about in API.items():
        module = importlib.import_module(name)
        names = [each for each in public_names(module) if each != "__version__"]
        if names:
            body = "\n\n".join(_directive(module, each, seen) for each in names)
            about = about.replace("](", "](../")
            text = (
                f"# `{name}`\n\n{about}\n\n```{{eval-rst}}\n.. py:module:: {name}\n\n{body}\n```\n"
            )
            (folder / f"{name}.md").write_text(text, encoding="utf-8")


def toctrees() -> str:
    """Return the hidden tables of contents: all of docs/, folder by folder."""
    root = [
        "../README",
        "../examples/README",
        "../ARCHITECTURE",
        "../CONTRIBUTING",
        "../SECURITY",
        "../CODE_OF_CONDUCT",
        "../CHANGELOG",
        "../core/README",
    ]
    root += [f"../{path}/README" for path in ("examples/*", "plugins/*")]
    text = ""
    for title, pages in [*SECTIONS.items(), ("The repository", root)]:
        there = in_reading_order(pages)
        above = [page for page in pages if page.startswith("..")]
        there += [page for page in above if "*" in page or (HERE / f"{page}.md").exists()]
        if there:
            text += (
                "\n\n```{toctree}\n:hidden:\n:glob:\n:caption: "
                + title
                + "\n\n"
                + "\n".join(there)
                + "\n```\n"
            )
    return text


def in_reading_order(patterns: Sequence[str]) -> list[str]:
    """Return the pages below docs/ that match, without their ending, as docs/index.md lists them.

    Those that it does not list come last, by name.
    """
    index = (HERE / "index.md").read_text(encoding="utf-8")
    listed = list(dict.fromkeys(re.findall(r"\]\(([\w/-]+)\.md", index)))
    found = sorted(
        path.relative_to(HERE).with_suffix("").as_posix()
        for pattern in patterns
        if not pattern.startswith("..")
        for path in HERE.glob(f"{pattern}.md")
    )
    return sorted(found, key=lambda page: listed.index(page) if page in listed else len(listed))


def versions(place: Path) -> None:
    """Write what lies above the sites of all versions: their list, which each site's sidebar reads,
    and the way in.
    """
    found = [each.parent.name for each in place.glob("[0-9]*/objects.inv")]
    found.sort(key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)], reverse=True)
    (place / "versions.js").write_text(
        f"window.transloadVersions = {json.dumps(found)};\n", encoding="utf-8"
    )
    if found:
        first = redirect(f"{found[0]}/docs/index.html")
        (place / "index.html").write_text(first, encoding="utf-8")


def redirect(target: str) -> str:
    """Return a page that leads to another one."""
    head = '<!doctype html><meta charset="utf-8"><title>transload</title>'
    refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
    return f'{head}{refresh}<a href="{target}">transload</a>'


def list_for_machines() -> str:
    """Return ``llms.txt``: what transload is, and its pages by section.

    The form is that of https://llmstxt.org.
    """
    index = (HERE / "index.md").read_text(encoding="utf-8")
    _, summary, *_ = index.split("\n\n")
    parts = ["# transload", f"> {summary}"]
    for title, patterns in SECTIONS.items():
        rows = []
        for page in in_reading_order(patterns):
            text = (HERE / f"{page}.md").read_text(encoding="utf-8")
            heading = text.partition("\n")[0].removeprefix("# ").replace("`", "")
            rows.append(f"- [{heading}](docs/{page}.html)")
        if rows:
            parts.append("\n".join([f"## {title}", "", *rows]))
    return "\n\n".join(parts) + "\n"


PAGES = {
    "reference/states.md": states,
    "reference/schedulers.md": schedulers,
    "extend/hooks.md": hooks,
}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (HERE / page).write_text(make(), encoding="utf-8")
