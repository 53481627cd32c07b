"""Put the template's adapter and its invented orchestrator on the path, as neither is installed."""

from __future__ import annotations

import sys
from pathlib import Path

TEMPLATE = Path(__file__).parents[2] / "plugins" / "_template"
PATHS = [str(TEMPLATE / "src"), str(TEMPLATE), str(Path(__file__).parent)]
sys.path[:0] = [path for path in PATHS if path not in sys.path]
