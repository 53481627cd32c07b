"""Each distribution is complete, honest and bounded, and the documents' links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
FOLDERS = [
    ROOT / "core",
    *sorted(path.parent for path in ROOT.glob("plugins/[!_]*/pyproject.toml")),
]
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def project(folder: Path) -> dict[str, Any]:
    """Return the `[project]` table."""
    table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


def package(folder: Path) -> Path:
    """Return the folder of the import package."""
    return folder / "src" / str(project(folder)["name"]).replace("-", "_")


def requirements(folder: Path) -> list[Requirement]:
    """Return what the distribution requires, extras included."""
    table = project(folder)
    extras = [line for lines in table.get("optional-dependencies", {}).values() for line in lines]
    return [Requirement(line) for line in [*table.get("dependencies", ()), *extras]]


@each
def test_it_has_what_a_distribution_has(folder: Path) -> None:
    """README, changelog in the agreed form, the licence word for word, types, src layout."""
    assert (folder / "README.md").read_text().startswith(f"# {project(folder)['name']}\n")
    assert "keepachangelog" in (folder / "CHANGELOG.md").read_text()
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (package(folder) / "py.typed").exists()
    assert project(folder)["license"] == "Apache-2.0"
    assert project(folder)["requires-python"] == ">=3.11"


@each
def test_version_is_said_once_and_the_same(folder: Path) -> None:
    """`__version__` and the metadata agree."""
    found = re.search(
        r'^__version__[^=]*= "(.+)"$', (package(folder) / "__init__.py").read_text(), re.MULTILINE
    )
    assert found is not None
    assert found[1] == project(folder)["version"]


@each
def test_requirements_have_bounds_and_no_pins(folder: Path) -> None:
    """Each requirement has a lower bound, any upper bound is a major version, and none is a pin."""
    for wanted in requirements(folder):
        bounds = {clause.operator: clause.version for clause in wanted.specifier}
        assert ">=" in bounds, str(wanted)
        assert set(bounds) <= {">=", "<"}, str(wanted)
        assert re.fullmatch(r"[1-9]\d*|0\.\d+", bounds.get("<", "1")), str(
            wanted
        )  # below 1, each minor may break


@each
def test_each_dependency_has_its_reason(folder: Path) -> None:
    """docs/extend/dependencies.md, or the plugin's own README, names every dependency."""
    text = (ROOT / "docs" / "extend" / "dependencies.md").read_text() + (
        folder / "README.md"
    ).read_text()
    assert [wanted.name for wanted in requirements(folder) if wanted.name not in text] == []


@each
def test_a_plugin_works_or_says_that_it_does_not(folder: Path) -> None:
    """A plugin has an entry point and its module, or a README that says *in preparation*."""
    if folder.name == "core":
        return
    points = project(folder).get("entry-points", {}).get("transload", {})
    in_preparation = "in preparation" in (folder / "README.md").read_text().lower()
    assert in_preparation == (not points)
    assert not points or (package(folder) / "plugin.py").exists()


def _documents() -> list[Path]:
    """Return the Markdown files that the repository tracks (all there are, outside of a
    checkout).
    """
    listed = subprocess.run(
        ["git", "ls-files", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    ).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).exists()] or sorted(ROOT.glob("*.md"))


@pytest.mark.parametrize("path", _documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    """Each relative link of a document names a file or folder that exists."""
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
    broken = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert broken == []


def test_what_the_dockerfiles_of_the_pages_copy_and_install_is_there() -> None:
    """The pages' Dockerfiles copy files of the repository or page, and only then install them."""
    found = 0
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text()
        for block in re.findall(r"```\n(FROM .*?)```", text, re.DOTALL):
            found += 1
            copied: dict[str, Path] = {}
            for line in block.replace("\\\n", " ").splitlines():
                words = line.split()
                if words[0] == "COPY":
                    source = ROOT / words[1]
                    assert source.exists() or f"`{words[1]}`" in text, f"{page}: {line}"
                    copied[words[2]] = source
                for word in words:
                    parents = [place for place in copied if word.startswith(f"{place}/")]
                    if parents:
                        there = copied[parents[0]] / word.removeprefix(f"{parents[0]}/")
                        assert (there / "pyproject.toml").is_file(), f"{page}: {line}"
            installed = [word for word in block.split() if word.startswith("/transload/")]
            assert installed, f"{page}: nothing of ours is installed"
    assert found >= 2


def test_nothing_is_a_test_package() -> None:
    """There is no `__init__.py` below tests/, or `import airflow` would mean a test folder."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_every_page_is_in_the_index() -> None:
    """docs/index.md leads to each page of the folders beside it."""
    index = (ROOT / "docs" / "index.md").read_text()
    folder = ROOT / "docs"
    kept = ("_build", "api", "internals")  # made anew for the site, and for maintainers
    paths = [path for path in folder.glob("*/*.md") if path.parent.name not in kept]
    pages = {str(path.relative_to(folder)) for path in paths}
    assert sorted(page for page in pages if f"]({page})" not in index) == []


LONGER = {"kubernetes": 1400}
"""Words of the pages that may be longer than the others of their folders."""


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("docs/orchestrators/*.md"), *ROOT.glob("docs/schedulers/*.md")]),
    ids=lambda path: str(path.relative_to(ROOT / "docs")),
)
def test_a_page_of_a_plugin_is_read_to_its_end(path: Path) -> None:
    """It has at most 1,000 words, as `wc -w` counts. What is looked up is in docs/reference."""
    assert len(path.read_text().split()) <= LONGER.get(path.stem, 1000)


def test_the_glossary_has_words_that_pages_use() -> None:
    """Each is on another page for users, and they are in the order of the alphabet."""
    text = (ROOT / "docs" / "explanation" / "glossary.md").read_text()
    words = re.findall(r"^- \*\*(.+?)\*\*:", text.partition("\n## Words of orch")[0], re.MULTILINE)
    assert len(words) > 30
    assert words == sorted(words, key=str.lower)
    folders = ("start", "guides", "orchestrators", "schedulers", "reference")
    pages = [path.read_text() for folder in folders for path in ROOT.glob(f"docs/{folder}/*.md")]
    others = "\n".join(pages).lower()
    unused = [word for word in words if not re.search(rf"\b{word.lower()}", others)]
    assert unused == []


def test_tools_have_one_version_each() -> None:
    """The hooks before a commit and the group `dev` use the tools that the sessions use."""
    files = ("tests/requirements-lint.txt", "tests/requirements-typing.txt", "core/pyproject.toml")
    pinned = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    named = [
        name for line in re.findall(r"dependencies: \[(.*)\]", hooks) for name in _quoted(line)
    ]
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named += [name for name in groups["dependency-groups"]["lint"] if "pre-commit" not in name]
    assert len(named) > 8
    assert [name for name in named if name not in pinned] == []


def _quoted(text: str) -> list[str]:
    return re.findall(r'"([^"]+)"', text)
