"""Make the pictures of README.md anew, from real runs: python docs/make_pictures.py

Each host is started by ``quickstart.py --host``, runs the example, and is ended. Chromium is needed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {"airflow": "task.png", "prefect": "flow-run.png"}


def main() -> None:
    """Run each host, and keep what it shows."""
    for host, name in PICTURES.items():
        subprocess.run([sys.executable, str(ROOT / "quickstart.py"), "--host", host], cwd=ROOT, check=True)
        made = ROOT / f"everywhere-{host}"
        shutil.copy(made / name, ROOT / "docs" / "images" / f"everywhere-{host}.png")
        shutil.rmtree(made)


if __name__ == "__main__":
    main()
