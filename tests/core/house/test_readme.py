"""README.md promises what is there. Its code is run with that of the other pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


FOLDERS = ("guides", "orchestrators", "schedulers")
WITHOUT_CODE = re.sub(r"```.*?```|<!--.*?-->", "", README, flags=re.DOTALL)


def test_it_is_short() -> None:
    """The README is short, with few words, few links and two pictures."""
    words = re.findall(
        r"[A-Za-z0-9][\w'./:@=-]*", re.sub(r"<!--.*?-->", "", README, flags=re.DOTALL)
    )
    assert len(words) <= 750
    assert README.count("](") - README.count("![") <= 20
    assert README.count("![") + README.count("<picture>") == 2


def test_it_is_plain() -> None:
    """No sentence has more than 25 words, none is joined by a semicolon."""
    text = re.sub(r"`[^`]*`", "it", WITHOUT_CODE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for sentence in re.split(r"[.?!:]\W*\s|\n\n|\||\n- |<br>", text):
        assert len(sentence.split()) <= 25, sentence
    assert ";" not in text


def test_it_names_every_host_and_engine_that_works() -> None:
    """What has an entry point, or calls itself a plugin for users, is in the README, by a link to
    its page.
    """
    for path in sorted(ROOT.glob("plugins/[!_]*/pyproject.toml")):
        name = path.parent.name
        pages = [ROOT / "docs" / folder / f"{name}.md" for folder in FOLDERS]
        for page in filter(Path.exists, pages):
            assert f"]({page.relative_to(ROOT)}" in README, name
