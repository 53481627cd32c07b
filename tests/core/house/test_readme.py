"""README.md promises what is there; its code is run with that of the other pages."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def test_it_is_short() -> None:
    """A stranger reads it to the end."""
    assert len(README.splitlines()) <= 210


def test_it_names_every_host_and_engine_that_works() -> None:
    """What has an entry point, or calls itself a plugin for users, is in the README, by a link to
    its page.
    """
    for path in sorted(ROOT.glob("plugins/[!_]*/pyproject.toml")):
        name = path.parent.name
        page = ROOT / "docs" / f"{name}.md"
        if page.exists():
            assert f"](docs/{name}.md" in README, name
