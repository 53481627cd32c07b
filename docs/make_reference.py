#!/usr/bin/env python3
"""Write reference.md: every public name of the core with what its docstring begins with. Run it after adding one."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

MODULES = {
    "transload.specs": "What a job is: see [specs](specs.md).",
    "transload.errors": "What may go wrong, named by what to do next.",
    "transload.components": "Jobs as functions: see [components](components.md).",
    "transload.runner": "Submitting and following apps: see [the runner](runner.md).",
    "transload.schedulers": "The contract of schedulers: see [writing a scheduler](writing-a-scheduler.md).",
    "transload.following": "Logs, line by line, and what follows apps until they end.",
    "transload.schedulers.local": "See [the local scheduler](local-scheduler.md).",
    "transload.workspace": "How local code reaches where a job runs.",
    "transload.runtime": "Results, for applications, in one line: see [results and tracking](tracking.md).",
    "transload.runtime.tracking": "Results, for applications: see [results and tracking](tracking.md).",
    "transload.tracker": "Metadata, artifacts and lineage: see [results and tracking](tracking.md).",
    "transload.pipelines": "What adapters share: see [writing an adapter](writing-an-adapter.md).",
    "transload.hookspecs": "The hooks: see [plugins](plugins.md).",
    "transload.plugins": "The plugin manager.",
}


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module offers, in its own order."""
    names = getattr(module, "__all__", None)
    if names is not None:
        return list(names)
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    return [name for name in own if not name.startswith("_")]


def _line(module: ModuleType, name: str) -> str:
    thing = getattr(module, name)
    if inspect.isclass(thing) and thing.__name__ != name and thing.__module__ != "builtins":
        return f"| `{name}` | another name of `{thing.__name__}` |"
    if inspect.isroutine(thing) or (inspect.isclass(thing) and thing.__module__ != "builtins"):
        about = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
        return f"| `{name}{'()' if inspect.isroutine(thing) else ''}` | {about.replace('|', chr(92) + '|')} |"
    if isinstance(thing, str | int | float):
        return f"| `{name}` | `{thing!r}` |"
    own = type(thing).__module__.startswith("transload.")
    return f"| `{name}` | {f'of type `{type(thing).__name__}`' if own else 'for annotations'} |"


def text() -> str:
    """Return the page."""
    parts = ["# Public names", "", "Written by `docs/make_reference.py` from the docstrings, which say more.", ""]
    for name, about in MODULES.items():
        module = importlib.import_module(name)
        parts += [f"## `{name}`", "", about, "", "| name | |", "|---|---|"]
        parts += [_line(module, public) for public in public_names(module)]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("reference.md").write_text(text(), encoding="utf-8")
