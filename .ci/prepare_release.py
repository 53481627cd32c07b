#!/usr/bin/env python3
"""Make a checkout ready to be built for an index.

Usage: prepare_release.py REPOSITORY TAG NOTES
Example: prepare_release.py https://github.com/OWNER/NAME v0.1.0 notes.md

- Each ``pyproject.toml`` gets ``[project.urls]``, below the address of the repository.
- Links of each distribution's README lead into the repository at that tag, since an index shows the
  README alone.
- NOTES is written from the changelog: what the tag's version brings.

The checkout is changed. Nothing is committed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|mailto:|#)([^)\s]+)(\))")


def main(argv: list[str]) -> int:
    """Prepare the checkout in which this file lies; return the exit code."""
    if len(argv) != 3:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    repository, tag, notes = argv
    root = Path(__file__).resolve().parents[1]
    notes_of_version = changes_of((root / "CHANGELOG.md").read_text(), tag.removeprefix("v"))
    if notes_of_version is None:
        print(f"CHANGELOG.md: no section of {tag}", file=sys.stderr)
        return 1
    for folder in distributions(root):
        add_urls(folder / "pyproject.toml", repository, tag, folder.relative_to(root))
        readme = folder / "README.md"
        readme.write_text(absolute_links(readme, root, repository, tag), encoding="utf-8")
    Path(notes).write_text(f"{notes_of_version}\n", encoding="utf-8")
    return 0


def distributions(root: Path) -> list[Path]:
    """Return the folders of the distributions that are released."""
    plugins = sorted(path.parent for path in root.glob("plugins/[!_]*/pyproject.toml"))
    return [root / "core", *plugins]


def add_urls(pyproject: Path, repository: str, tag: str, folder: Path) -> None:
    """Write ``[project.urls]`` into a ``pyproject.toml``.

    Raises:
        SystemExit: if it has that table.
    """
    text = pyproject.read_text(encoding="utf-8")
    if "urls" in tomllib.loads(text)["project"]:
        raise SystemExit(f"{pyproject}: [project.urls] is there already")
    urls = {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/{tag}/docs/index.md",
        "Source": f"{repository}/tree/{tag}/{folder}",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    rows = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    pyproject.write_text(f"{text.rstrip()}\n\n[project.urls]\n{rows}", encoding="utf-8")


def absolute_links(page: Path, root: Path, repository: str, tag: str) -> str:
    """Return the text of a page with links that work from any place.

    Raises:
        SystemExit: if a link leads nowhere.
    """

    def absolute(found: re.Match[str]) -> str:
        path, hash_sign, anchor = found[2].partition("#")
        target = (page.parent / path).resolve()
        if not target.exists():
            raise SystemExit(f"{page}: the link {found[2]} leads nowhere")
        kind = "tree" if target.is_dir() else "blob"
        if found[1].startswith("!"):
            kind = "raw"
        url = f"{repository}/{kind}/{tag}/{target.relative_to(root)}{hash_sign}{anchor}"
        return f"{found[1]}{url}{found[3]}"

    return LINK.sub(absolute, page.read_text(encoding="utf-8"))


def changes_of(changelog: str, version: str) -> str | None:
    """Return the section of a version without its heading; None if there is none."""
    found = re.search(
        rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)",
        changelog,
        re.DOTALL | re.MULTILINE,
    )
    if found is None:
        return None
    return found[1].strip()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
