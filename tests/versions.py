"""Check that a tag such as v1.2.3 names the version of every distribution.

Name those that differ, with exit code 1.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(argv: list[str]) -> int:
    """Compare the versions with the tag, which is the only argument."""
    if len(argv) != 1:
        print("usage: versions.py TAG", file=sys.stderr)
        return 2
    others = 0
    for path in sorted(
        [ROOT / "core" / "pyproject.toml", *ROOT.glob("plugins/[!_]*/pyproject.toml")]
    ):
        project = tomllib.loads(path.read_text())["project"]
        if f"v{project['version']}" != argv[0]:
            print(
                f"{path.relative_to(ROOT)}: {project['name']} is {project['version']}, the tag is "
                f"{argv[0]}"
            )
            others += 1
    return 1 if others else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
