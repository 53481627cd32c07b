"""Run the command line as ``python -m transload``."""

from __future__ import annotations

import sys

from transload.cli import main

if __name__ == "__main__":
    sys.exit(main())
