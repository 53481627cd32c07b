"""List the names that the core itself brings, without an import, so that a look-up is cheap."""

from __future__ import annotations

BUILTINS: dict[str, dict[str, str]] = {
    "schedulers": {
        "local": "transload.schedulers.local.scheduler:create_local",
        "local_cwd": "transload.schedulers.local.scheduler:create_local_cwd",
    },
    "trackers": {"fsspec": "transload.tracker.fsspec:create"},
    "components": {
        "dist.ddp": "transload.components.builtin.dist:ddp",
        "dist.spmd": "transload.components.builtin.dist:spmd",
        "utils.binary": "transload.components.builtin.utils:binary",
        "utils.booth": "transload.components.builtin.utils:booth",
        "utils.copy": "transload.components.builtin.utils:copy",
        "utils.echo": "transload.components.builtin.utils:echo",
        "utils.python": "transload.components.builtin.utils:python",
        "utils.sh": "transload.components.builtin.utils:sh",
        "utils.touch": "transload.components.builtin.utils:touch",
    },
}
"""Kind → name → ``package.module:attribute``."""
