"""The table of built-in components; no import, so that a look-up costs nothing."""

from __future__ import annotations

from typing import Final

BUILTIN_COMPONENTS: Final[dict[str, str]] = {
    "dist.ddp": "transload.components.dist:ddp",
    "dist.spmd": "transload.components.dist:spmd",
    "utils.binary": "transload.components.utils:binary",
    "utils.booth": "transload.components.utils:booth",
    "utils.copy": "transload.components.utils:copy",
    "utils.echo": "transload.components.utils:echo",
    "utils.python": "transload.components.utils:python",
    "utils.sh": "transload.components.utils:sh",
    "utils.touch": "transload.components.utils:touch",
}
"""Name → ``package.module:function``."""
