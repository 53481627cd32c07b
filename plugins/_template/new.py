"""Make a plugin of your own from the template: python3 plugins/_template/new.py NAME FOLDER

NAME is your host in small letters and digits, such as `flyte`; FOLDER is made and gets sources,
tests and metadata. The result passes the conformance suite as it is, with the invented host in your
host's place: replace it piece by piece.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

TEMPLATE = Path(__file__).parent
TESTS = TEMPLATE.parents[1] / "tests" / "template"
COPIED = ("conftest.py", "test_conformance.py", "tinyflow_driver.py")


def make(name: str, folder: Path) -> None:
    """Copy the template to `folder`, with `name` in the place of `tinyflow`.

    Raises:
        SystemExit: The name does not fit, or the folder is there already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*", name):
        raise SystemExit(
            f"{name!r} is no name for a plugin: small letters and digits, a letter first"
        )
    if folder.exists():
        raise SystemExit(f"{folder} is there already: name a folder that is not")
    shutil.copytree(
        TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "new.py")
    )
    (folder / "tests").mkdir()
    for file in COPIED:
        shutil.copy(TESTS / file, folder / "tests" / file)
    for path in sorted(
        folder.rglob("*"), reverse=True
    ):  # what is inside of a folder comes before it
        if path.is_file():
            text = path.read_text().replace('.parents[2] / "plugins" / "_template"', ".parents[1]")
            path.write_text(text.replace("tinyflow", name).replace("Tinyflow", name.capitalize()))
        path.rename(path.with_name(path.name.replace("tinyflow", name)))


def main(argv: list[str]) -> None:
    """Make it, and say what comes next."""
    if len(argv) != 2:
        raise SystemExit(__doc__)
    make(argv[0], Path(argv[1]))
    print(
        f"{argv[1]}: a plugin for {argv[0]}. Where transload and transload-testing are installed, "
        "try it with"
    )
    print(f"  pytest {argv[1]}/tests")


if __name__ == "__main__":
    main(sys.argv[1:])
