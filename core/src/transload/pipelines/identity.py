"""Derive the ids of a job from the orchestrator's name for its step, and say where it runs."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

from transload.errors import SpecError

MAX_LENGTH: Final = 40
"""Longest id, in characters.

It leaves room for what schedulers add, below the 63 of a DNS label.
"""

_DIGEST_LENGTH: Final = 16
_OTHER = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Identity:
    """An orchestrator's unit of work, across crashes, restarts and retries.

    Args:
        host: name of the orchestrator, for example ``airflow``.
        namespace: what distinguishes this installation or run from others (a deployment, a flow
            run, a uuid).
        key: what the orchestrator calls the unit of work. Its last part is made readable in the id.
        generation: changes when somebody runs it again on purpose.
    """

    host: str
    namespace: str
    key: tuple[str, ...]
    generation: str = "0"


def app_id_of(identity: Identity, attempt: int) -> str:
    """Return the job id of an attempt, which is not qualified yet (see `Runner.qualified_id`).

    It has lower-case letters, digits and ``-``, at most 40 characters, and starts with a letter. It
    ends in a digest of identity and attempt. So equal ones give equal ids on every machine, and any
    difference gives another id.

    Args:
        identity: the unit of work.
        attempt: 0 for the first of the generation, then counted up.

    Raises:
        SpecError: for an empty name of the orchestrator, an empty key, or a negative attempt.
    """
    import hashlib
    import json

    host, namespace, parts = identity.host, identity.namespace, list(identity.key)
    if (
        not host
        or not parts
        or not all(isinstance(part, str) for part in [host, namespace, *parts])
    ):
        raise SpecError(
            f"identity={(host, namespace, identity.key)!r}: orchestrator and key must be texts, "
            "not empty"
        )
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
        raise SpecError(f"attempt={attempt!r}: must be an int, 0 or more")
    whole = json.dumps(
        [host, namespace, parts, str(identity.generation), attempt], ensure_ascii=True
    )
    # 5 bits a character: 16 characters are 80 bits
    number = int.from_bytes(hashlib.sha256(whole.encode()).digest()[:10], "big")
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    text = "".join(letters[(number >> (5 * index)) & 31] for index in range(_DIGEST_LENGTH))
    readable = _OTHER.sub("-", f"{host}-{parts[-1]}".lower()).strip("-") or "app"
    if not readable[0].isalpha():
        readable = f"a-{readable}"
    return f"{readable[: MAX_LENGTH - _DIGEST_LENGTH - 1].rstrip('-')}-{text}"


@cache
def where() -> str:
    """Return a text that two processes share only if they see the same machine.

    On Linux it is made of the boot id and the process namespace, so two containers of one machine
    differ. Elsewhere it is made of host name and hardware address.
    """
    if sys.platform == "linux":
        with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    import platform
    import uuid

    return f"{platform.node()}/{uuid.getnode():x}"
