"""The light and dark colours of the style sheet.

Every text has a contrast of AA to its background.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["COLORS", "colors_css"]

COLORS: Final[Mapping[str, tuple[str, str]]] = {
    "paper": ("#f4f6f9", "#0f141b"),
    "card": ("#ffffff", "#171e28"),
    "sunk": ("#eef1f6", "#10161e"),
    "ink": ("#18222e", "#e8edf3"),
    "quiet": ("#4d5a69", "#a9b6c5"),
    "line": ("#d6dde6", "#2e3947"),
    "grid": ("#e4e9ef", "#263140"),
    "accent": ("#1256b0", "#79b4ff"),
    "focus": ("#b34700", "#ffb36b"),
    "series": ("#1c66c4", "#6cb0ff"),
    "second": ("#b1490f", "#ff9e64"),
    "UNSUBMITTED": ("#5a6675", "#9aa9ba"),
    "SUBMITTED": ("#5a6675", "#9aa9ba"),
    "PENDING": ("#6a4fb8", "#b9a6ff"),
    "RUNNING": ("#1563bd", "#6cb0ff"),
    "SUCCEEDED": ("#17764a", "#4fce94"),
    "FAILED": ("#bf2319", "#ff8a80"),
    "CANCELLED": ("#835600", "#e6b450"),
    "UNKNOWN": ("#83389e", "#dba0f0"),
}
"""Name → its light and its dark colour."""


def colors_css() -> str:
    """Return the colours as CSS variables.

    They are light by default, dark if the system is dark, and follow the reader's choice.
    """
    light, dark = (
        ";".join(f"--{name}:{pair[index]}" for name, pair in COLORS.items()) for index in (0, 1)
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        + "".join(f".{name}{{--state:var(--{name})}}" for name in COLORS if name.isupper())
        + "\n"
    )
