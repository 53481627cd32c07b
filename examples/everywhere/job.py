"""The one job of this example: which component, and its arguments. Every other file here runs just
this.
"""

from __future__ import annotations

from pathlib import Path

COMPONENT = f"{Path(__file__).resolve().parents[1] / 'digits' / 'component.py'}:digits"
ARGUMENTS = {"replicas": 2, "epochs": 4, "seed": 7}
