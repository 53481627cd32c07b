"""A quick look whether an installed distribution may bring plugins, without importlib.metadata.

Reading all metadata through importlib.metadata costs tens of milliseconds at every start of the
command line. So our group is first searched in the ``entry_points.txt`` files. Only a hit is read
in full.
"""

from __future__ import annotations

import os
import sys
from functools import cache


def third_party_installed() -> bool:
    """Tell whether any installed distribution may bring plugins.

    It costs a few file reads.
    """
    return any(has_plugins(folder) for folder in dict.fromkeys(path or "." for path in sys.path))


@cache
def has_plugins(folder: str) -> bool:
    """Tell whether a folder of ``sys.path`` may hold a distribution that brings plugins.

    Such a distribution has entry points of our group.
    """
    try:
        names = [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        # a zip file or the like: only importlib.metadata can tell
        return os.path.isfile(folder)
    for name in names:
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:
                if "[transload]" in file.read().replace(" ", ""):
                    return True
        except OSError:
            continue
    return False
