"""The page's tables of states, exceptions and exit codes are those of the code."""

from __future__ import annotations

from pathlib import Path

import test_conformance

from transload_kfp import EXIT_CANCELLED, EXIT_UNKNOWN, STATES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "orchestrators" / "kfp.md").read_text(encoding="utf-8")


def test_tables() -> None:
    """The published tables are those of the code."""
    assert STATES.markdown() in (DOCS / "reference" / "states.md").read_text(encoding="utf-8")
    assert (
        test_conformance.TestKfp.render_exceptions()
        in (DOCS.parent / "dev" / "conformance.md").read_text()
    )


def test_exit_codes() -> None:
    """The exit codes in the page are the launcher's."""
    from transload_kfp.states import ENDINGS, EXIT_NO_RESULT

    for code in (EXIT_CANCELLED, EXIT_UNKNOWN, EXIT_NO_RESULT, *ENDINGS.values()):
        assert (
            f"| {code}" in PAGE
            or f"({code}:" in PAGE
            or f"; {code} " in PAGE
            or f" {code} says" in PAGE
        )
