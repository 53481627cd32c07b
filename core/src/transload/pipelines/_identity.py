"""Ids of apps that a host starts: derived from what the host calls its unit of work, the same on every machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from transload.errors import SpecError

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.specs import CfgVal

MAX_LENGTH: Final = 40
"""Longest id, in characters: room for what schedulers add, below the 63 of a DNS label."""

_DIGEST_LENGTH: Final = 16
_OTHER = re.compile(r"[^a-z0-9]+")


def app_id_for(host: str, namespace: str, identity: str | Sequence[str], generation: str | int, attempt: int) -> str:
    """Return the app id of one attempt at a host's unit of work.

    Lower-case letters, digits and ``-``, at most 40 characters, starting with a letter, a digest of all arguments at
    the end: equal arguments give equal ids on every machine, and any difference gives another id.

    Args:
        host: name of the host, for example ``airflow``.
        namespace: what tells this installation or run from others (a deployment, a flow run, a uuid).
        identity: what the host calls the unit of work; its last part is made readable in the id.
        generation: changes when somebody runs it again on purpose.
        attempt: 0 for the first attempt of the generation, then counted up.

    Raises:
        SpecError: for an empty host or identity, or a negative attempt.
    """
    import hashlib
    import json

    parts = [identity] if isinstance(identity, str) else list(identity)
    if not host or not parts or not all(isinstance(part, str) for part in [host, namespace, *parts]):
        raise SpecError(f"identity={(host, namespace, identity)!r}: host and identity must be texts, not empty")
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
        raise SpecError(f"attempt={attempt!r}: must be an int, 0 or more")
    canonical = json.dumps([host, namespace, parts, str(generation), attempt], ensure_ascii=True)
    digest = hashlib.sha256(canonical.encode()).digest()
    # 5 bits a character: 16 characters are 80 bits
    number = int.from_bytes(digest[:10], "big")
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    text = "".join(letters[(number >> (5 * index)) & 31] for index in range(_DIGEST_LENGTH))
    readable = _OTHER.sub("-", f"{host}-{parts[-1]}".lower()).strip("-") or "app"
    if not readable[0].isalpha():
        readable = f"a-{readable}"
    return f"{readable[: MAX_LENGTH - _DIGEST_LENGTH - 1].rstrip('-')}-{text}"


def qualified_app_id(runner: Runner, scheduler: str, app_id: str, cfg: Mapping[str, CfgVal]) -> str:
    """Return an app id completed by a scheduler whose ids carry more than a name (a namespace, a cluster).

    It is the id that the runner will submit it under: made of the run options in force, settings included.

    Args:
        runner: that submits it.
        scheduler: name of the scheduler.
        app_id: for instance of `app_id_for`.
        cfg: the host's run options.

    Raises:
        ConfigError: for an unknown scheduler or a wrong option.
    """
    backend = runner.scheduler(scheduler)
    options, _ = runner._options(scheduler, backend, cfg)
    return backend.qualified_id(app_id, options)


@dataclass(frozen=True, slots=True)
class Identity:
    """A host's unit of work, across crashes, restarts and retries.

    Args:
        host: name of the host.
        namespace: see `app_id_for`.
        key: see ``identity`` of `app_id_for`.
        generation: see `app_id_for`.
    """

    host: str
    namespace: str
    key: tuple[str, ...]
    generation: str = "0"

    def app_id(self, attempt: int) -> str:
        """Return the app id of an attempt.

        Raises:
            SpecError: see `app_id_for`.
        """
        return app_id_for(self.host, self.namespace, self.key, self.generation, attempt)
