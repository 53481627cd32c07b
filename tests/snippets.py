"""Run the code blocks of a page of the documentation in order, as a reader would.

A page is run in a folder of its own, in which there is a copy of ``examples``. Its blocks share one
namespace and one shell environment, in the order of the page:

- ``python`` is executed; a first line ``# some/name.py`` also saves it under that name, and it is
  run as if imported. A program that reads its arguments outside of any function is saved alone: the
  page has to run it by a command.
- ``console``: lines that begin with ``$ `` are commands, continued by a backslash, or up to the line
  ``END`` where one ends in ``<<'END'``; just that is copied by the site's button. Any other line is
  output that must appear, in this order, where ``…`` stands for anything.
- ``sh`` is a script, ``toml`` and ``json`` are read.
- Blocks of no language are pictures, not code.

A comment just before a block changes that:

- ``<!-- run by: tests/file.py::test -->`` leaves it out here, since that test runs it;
- ``<!-- not run: reason -->`` leaves it out;
- ``<!-- only in: suite -->`` names the one suite that runs it;
- ``<!-- fails: 1 -->`` expects that exit code of the last command;
- ``<!-- setup: …Python… -->``, which may stand anywhere, runs Python that readers do not see.

Each suite runs the pages that `PAGES` gives it, in its own environment, from
``tests/<suite>/test_docs.py``. A test in tests/docs sees to it that no page and no block is left
out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
SECONDS: Final = 110  # for all commands of one block

HOSTS: Final = (
    "airflow",
    "ax",
    "docker",
    "kfp",
    "kubernetes",
    "mlflow",
    "prefect",
    "report",
    "testing",
    "torchx",
)
BOTH: Final = ("docs/start/tutorial.md", "README.md")
"""Pages of which most runs in the environment of tests/docs alone, and a part, with the files it
needs, in a host's."""
PAGES: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        name: (
            *(f"docs/{folder}/{name}.md" for folder in ("guides", "orchestrators", "schedulers")),
            f"plugins/{name}/README.md",
            f"examples/{name}/README.md",
        )
        for name in HOSTS
    },
    "airflow": (
        "docs/orchestrators/airflow.md",
        "docs/start/airflow-on-kubernetes.md",
        "docs/start/airflow-with-slurm.md",
        "docs/reference/adapters.md",
        "plugins/airflow/README.md",
        "examples/airflow/README.md",
        "docs/start/tutorial.md",
        "README.md",
    ),
    "kfp": (
        "docs/orchestrators/kfp.md",
        "plugins/kfp/README.md",
        "examples/kfp/README.md",
    ),
    "ax": (
        "docs/orchestrators/ax.md",
        "plugins/ax/README.md",
        "examples/ax/README.md",
    ),
    "kubernetes": (
        "docs/schedulers/kubernetes.md",
        "docs/start/airflow-on-kubernetes.md",
        "plugins/kubernetes/README.md",
    ),
    "slurm": ("docs/schedulers/slurm.md", "plugins/slurm/README.md", "docs/index.md"),
    "torch": ("examples/ddp/README.md",),
    "prefect": (
        "docs/orchestrators/prefect.md",
        "plugins/prefect/README.md",
        "examples/prefect/README.md",
    ),
    "template": ("docs/extend/writing-an-adapter.md", "plugins/_template/README.md"),
}
"""Suite → the pages that are run in its environment. All other pages are run in that of tests/docs,
and `BOTH` too."""

LANGUAGES: Final = ("", "console", "json", "python", "sh", "toml", "yaml")
_FENCE: Final = re.compile(r"^( *)```([\w{}-]*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_COMMENT: Final = re.compile(
    r"<!-- (not run|run by|only in|fails|setup):\s(.*?)\s*-->\s*", re.DOTALL
)
_NAME: Final = re.compile(r"# ([\w./-]+\.\w+)\n")
_RUNS: Final = re.compile(r"^\$ (?!cat |cd |mkdir )", re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """One block of code, or one hidden setup, of a page."""

    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    run_by: str = ""
    only_in: str = ""
    fails: int = 0

    @property
    def place(self) -> str:
        """Where it is, as in ``docs/page.md:12``."""
        return f"{self.page}:{self.line}"

    def belongs_to(self, suite: str) -> bool:
        """Return whether a suite that has this page runs this block."""
        if self.only_in or self.page not in BOTH or suite == "docs":
            return self.only_in in ("", suite)
        return not (
            self.language == "console" and _RUNS.search(self.text)
        )  # the files that the suite's own part needs


def pages() -> list[str]:
    """Return every page whose code is looked at, as paths from the root of the repository."""
    patterns = (
        "*.md",
        "docs/*.md",
        "docs/[!_]*/*.md",
        "core/README.md",
        "plugins/*/README.md",
        "examples/README.md",
        "examples/*/README.md",
        "skills/*/SKILL.md",
    )
    return sorted(
        str(path.relative_to(ROOT))
        for pattern in patterns
        for path in ROOT.glob(pattern)
        if path.parent.name != "api"  # made anew by each build of the site
    )


def pages_of(suite: str) -> list[str]:
    """Return the pages with code that a suite runs. ``docs`` runs those that no other suite has."""
    taken = {page for name, some in PAGES.items() if name != suite for page in some} - set(BOTH)
    mine = PAGES.get(suite) or [page for page in pages() if page not in taken]
    return [page for page in mine if (ROOT / page).exists() and snippets(page)]


def snippets(page: str) -> list[Snippet]:
    """Return the blocks of a page in its order, each with what the comment before it says."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    inside = [range(*fence.span()) for fence in fences]
    comments = [
        found
        for found in _COMMENT.finditer(text)
        if not any(found.start() in span for span in inside)
    ]
    said = {found.end(): found for found in comments}
    found = [
        (fence.start(), _block(page, text, fence, said.get(fence.start()))) for fence in fences
    ]
    found += [
        (each.start(), Snippet(page, _line(text, each.start()), "python", each[2]))
        for each in comments
        if each[1] == "setup"
    ]
    return [snippet for _, snippet in sorted(found, key=lambda pair: pair[0])]


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _block(page: str, text: str, fence: re.Match[str], comment: re.Match[str] | None) -> Snippet:
    indent, language, body = fence.groups()
    body = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) if indent else body
    kind, value = (comment[1], comment[2]) if comment else ("", "")
    return Snippet(
        page,
        _line(text, fence.start()),
        language,
        body,
        not_run=value if kind == "not run" else "",
        run_by=value if kind == "run by" else "",
        only_in=value if kind == "only in" else "",
        fails=int(value) if kind == "fails" else 0,
    )


class Reader:
    """Somebody who does what a page shows, in the current folder.

    Args:
        suite: the suite whose environment this is.
        namespace: names that the Python of the page finds, besides ROOT, the folder of the
            repository, and SHELL, the variables of the shell; `__name__` is `__main__`.
    """

    def __init__(self, suite: str, namespace: Mapping[str, Any] | None = None) -> None:
        self._suite = suite
        path = os.pathsep.join(
            (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
        )
        self._environment = {**os.environ, "PATH": path, "COLUMNS": "120"}
        self._folder = os.getcwd()
        self.namespace: dict[str, Any] = {
            "__name__": "__main__",
            "ROOT": ROOT,
            "SHELL": self._environment,
        }
        self.namespace.update(namespace or {})

    def read(self, page: str) -> None:
        """Run all blocks of a page.

        Raises:
            AssertionError: a block went wrong; the message begins with page and line.
        """
        for snippet in snippets(page):
            if (
                snippet.not_run
                or snippet.run_by
                or not snippet.language
                or not snippet.belongs_to(self._suite)
            ):
                continue
            try:
                getattr(self, f"_{snippet.language}")(snippet)
            except Exception as error:
                raise AssertionError(f"{snippet.place}: {type(error).__name__}: {error}") from error

    def _save(self, snippet: Snippet) -> str:
        """Save a block whose first line names a file, and return that file's stem."""
        name = _NAME.match(snippet.text)
        if name:
            path = Path(self._folder, name[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(snippet.text, encoding="utf-8")
        return Path(name[1]).stem if name else ""

    def _python(self, snippet: Snippet) -> None:
        name = self._save(snippet)
        if name and re.search(r"^\S.*\bsys\.argv\b", snippet.text, re.MULTILINE):
            used = [
                each
                for each in snippets(snippet.page)
                if each.language == "console" and f"{name}.py" in each.text
            ]
            assert used, f"no command runs {name}.py"
            return
        code = "\n" * snippet.line + snippet.text  # so that tracebacks show the line of the page
        self.namespace["__name__"] = name or "__main__"
        with contextlib.chdir(self._folder):
            exec(compile(code, str(ROOT / snippet.page), "exec", dont_inherit=True), self.namespace)

    def _toml(self, snippet: Snippet) -> None:
        self._save(snippet)
        self.namespace["toml"] = tomllib.loads(snippet.text)

    def _json(self, snippet: Snippet) -> None:
        self.namespace["json"] = json.loads(snippet.text)

    def _yaml(self, snippet: Snippet) -> None:
        self._save(snippet)  # what it means is its suite's to test

    def _sh(self, snippet: Snippet) -> None:
        self._shell(snippet, snippet.text, [])

    def _console(self, snippet: Snippet) -> None:
        script, shown = _commands(snippet.text)
        assert script, "no line begins with '$ '"
        self._shell(snippet, script, shown)

    def _shell(self, snippet: Snippet, script: str, shown: list[str]) -> None:
        """Run commands in one bash, which begins with the folder and the variables that the last
        one ended with.
        """
        state = Path(self._folder, ".shell-state")
        body = f"set -eu\ntrap 'code=$?; {{ pwd; env -0; }} > {shlex.quote(str(state))}; exit $code' EXIT\n{script}"
        with subprocess.Popen(
            ["bash", "-c", body],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as bash:
            try:
                said, _ = bash.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                bash.kill()
                raise AssertionError(f"not done after {SECONDS} s:\n{script}") from None
        assert bash.returncode == snippet.fails, f"exit code {bash.returncode}:\n{script}\n{said}"
        self._remember(state)
        _check_output(said, shown)

    def _remember(self, state: Path) -> None:
        folder, _, variables = state.read_text(encoding="utf-8").partition("\n")
        state.unlink()
        self._folder = folder
        pairs = (pair.partition("=") for pair in variables.split("\0") if pair)
        self._environment.clear()
        self._environment.update((name, value) for name, _, value in pairs)


def _commands(text: str) -> tuple[str, list[str]]:
    """Return the script of a console block, and the lines of output that it shows."""
    commands: list[str] = []
    shown: list[str] = []
    continued = False
    in_here_document = False
    for line in text.splitlines():
        if in_here_document:
            commands.append(line)
            in_here_document = line != "END"
        elif line.startswith("$ "):
            commands.append(line[2:])
            in_here_document = line.endswith("<<'END'")
        elif continued:
            commands.append(line)
        elif line.strip():
            shown.append(line)
            continue
        continued = line.endswith("\\")
    return "\n".join(commands) + "\n" if commands else "", shown


def _check_output(said: str, shown: list[str]) -> None:
    """Compare output with a page's lines in this order, where ``…`` is anything.

    More is allowed.
    """
    position = 0
    for line in shown:
        pattern = r"\s+".join(
            ".*".join(re.escape(part) for part in word.split("…")) for word in line.split()
        )
        found = re.search(pattern, said[position:])
        assert found, f"the page shows {line.strip()!r}, which is not in the rest of:\n{said}"
        position += found.end()
