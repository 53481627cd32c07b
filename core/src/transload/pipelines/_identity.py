"""Whose app it is: ids derived from what a host calls its unit of work; and where this process runs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from transload.errors import SpecError

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.specs import CfgVal

MAX_LENGTH: Final = 40
"""Longest id, in characters: room for what schedulers add, below the 63 of a DNS label."""

_DIGEST_LENGTH: Final = 16
_OTHER = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Identity:
    """A host's unit of work, across crashes, restarts and retries.

    Args:
        host: name of the host, for example ``airflow``.
        namespace: what tells this installation or run from others (a deployment, a flow run, a uuid).
        key: what the host calls the unit of work; its last part is made readable in the id.
        generation: changes when somebody runs it again on purpose.
    """

    host: str
    namespace: str
    key: tuple[str, ...]
    generation: str = "0"

    def app_id(
        self,
        attempt: int,
        runner: Runner | None = None,
        scheduler: str | None = None,
        cfg: Mapping[str, CfgVal] | None = None,
    ) -> str:
        """Return the app id of an attempt; given a runner, the whole id that the app is submitted under.

        It has lower-case letters, digits and ``-``, at most 40 characters, and starts with a letter. A digest of all
        arguments is at its end: equal ones give equal ids on every machine, and any difference another id.

        Args:
            attempt: 0 for the first of the generation, then counted up.
            runner: that submits it; see `Runner.qualified_id`.
            scheduler: where it is submitted; None: the runner's default.
            cfg: the host's run options.

        Raises:
            SpecError: for an empty host or key, or a negative attempt.
            ConfigError: for an unknown scheduler or a wrong option.
        """
        import hashlib
        import json

        parts = list(self.key)
        if not self.host or not parts or not all(isinstance(part, str) for part in [self.host, self.namespace, *parts]):
            shown = (self.host, self.namespace, self.key)
            raise SpecError(f"identity={shown!r}: host and key must be texts, not empty")
        if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
            raise SpecError(f"attempt={attempt!r}: must be an int, 0 or more")
        whole = json.dumps([self.host, self.namespace, parts, str(self.generation), attempt], ensure_ascii=True)
        # 5 bits a character: 16 characters are 80 bits
        number = int.from_bytes(hashlib.sha256(whole.encode()).digest()[:10], "big")
        letters = "abcdefghijklmnopqrstuvwxyz234567"
        text = "".join(letters[(number >> (5 * index)) & 31] for index in range(_DIGEST_LENGTH))
        readable = _OTHER.sub("-", f"{self.host}-{parts[-1]}".lower()).strip("-") or "app"
        if not readable[0].isalpha():
            readable = f"a-{readable}"
        made = f"{readable[: MAX_LENGTH - _DIGEST_LENGTH - 1].rstrip('-')}-{text}"
        return made if runner is None else runner.qualified_id(made, scheduler, cfg)


@cache
def where() -> str:
    """Return a text that is equal in two processes only if they see the same machine: one boot, one set of processes.

    On Linux the boot id and the process namespace (two containers of one machine differ); elsewhere host name and
    hardware address.
    """
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    import platform
    import uuid

    return f"{platform.node()}/{uuid.getnode():x}"
