"""No code of the documentation goes unrun unseen."""

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
