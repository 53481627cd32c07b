"""List the names that the core itself brings, without an import, so that a look-up is cheap."""

from __future__ import annotations

BUILTINS: dict[str, dict[str, str]] = {
    "schedulers": {
        "local": "transload.schedulers.local.scheduler:create_local",
        "local_cwd": "transload.schedulers.local.scheduler:create_local_cwd",
    },
    "trackers": {"fsspec": "transload.tracker.fsspec:create"},
    "components": {
        "dist.ddp": "transload.components.dist:ddp",
        "dist.spmd": "transload.components.dist:spmd",
        "utils.binary": "transload.components.utils:binary",
        "utils.booth": "transload.components.utils:booth",
        "utils.echo": "transload.components.utils:echo",
        "utils.python": "transload.components.utils:python",
        "utils.sh": "transload.components.utils:sh",
    },
}
"""Kind → name → ``package.module:attribute``."""
