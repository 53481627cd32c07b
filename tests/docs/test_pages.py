"""No code of the documentation goes unrun unseen, and no page tells of tests that are not there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("snippets_of_pages", TESTS / "snippets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SNIPPETS = _load()
PAGES = [page for page in SNIPPETS.pages() if SNIPPETS.snippets(page)]


MOST_NOT_RUN, SCREEN = 4, 20
FIRST_READ = ("README.md", "docs/start/tutorial.md", "docs/index.md")


def _suites(page: str) -> set[str]:
    return {suite for suite in (*SNIPPETS.PAGES, "docs") if page in SNIPPETS.pages_of(suite)}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    """Each is of a language that is run, in a suite that has the test, or has a comment with a
    reason.
    """
    suites = _suites(page)
    assert suites, f"{page} belongs to no suite: see PAGES in tests/snippets.py"
    for snippet in SNIPPETS.snippets(page):
        assert snippet.language in SNIPPETS.LANGUAGES, (
            f"{snippet.place}: nobody runs {snippet.language!r}"
        )
        if snippet.not_run or snippet.run_by or not snippet.language:
            continue
        assert not snippet.only_in or snippet.only_in in suites, (
            f"{snippet.place}: that suite does not run this page"
        )
        for suite in {snippet.only_in} if snippet.only_in else suites:
            assert (TESTS / suite / "test_docs.py").exists(), (
                f"{snippet.place}: tests/{suite}/test_docs.py is missing"
            )


@pytest.mark.parametrize("page", PAGES)
def test_who_runs_a_block_instead_is_there(page: str) -> None:
    """``run by`` names a test that exists, and that its folder's suite does run."""
    for snippet in SNIPPETS.snippets(page):
        file, _, name = snippet.run_by.partition("::")
        if file:
            assert re.search(
                rf"^ *(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE
            ), snippet.place


def test_few_blocks_are_run_by_nobody() -> None:
    """Blocks that nobody runs stay few, and there is none where readers begin."""
    marks = [snippet for page in PAGES for snippet in SNIPPETS.snippets(page) if snippet.not_run]
    assert len(marks) <= MOST_NOT_RUN, [snippet.place for snippet in marks]
    first = [
        snippet.place for snippet in marks if snippet.page in FIRST_READ or snippet.line <= SCREEN
    ]
    assert first == []


@pytest.mark.parametrize("page", PAGES)
def test_a_block_without_a_language_is_no_code(page: str) -> None:
    """A block without a language holds no code that would be run, such as a prompt or an import."""
    for snippet in SNIPPETS.snippets(page):
        if not snippet.language:
            assert not re.search(r"^(\$ |import |from \w+ import )", snippet.text, re.MULTILINE), (
                snippet.place
            )


def test_the_tests_that_pages_name_exist() -> None:
    """``tests/….py::name`` in a page is a file and a function of it, or a scenario of a suite that
    others inherit.
    """
    for path in ROOT.glob("docs/**/*.md"):
        for file, name in re.findall(
            r"(?<![\w/])((?:tests|core/src)/[\w/]+\.py)(?:::(\w+))?", path.read_text()
        ):
            assert (ROOT / file).exists(), f"{path.name}: {file}"
            defined = re.search(
                rf"^ *(?:async )?(?:def|class) {name}\b", (ROOT / file).read_text(), re.MULTILINE
            )
            assert not name or defined, f"{path.name}: {file}::{name}"
