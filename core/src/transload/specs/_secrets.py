"""Secrets by reference: what a source means, how it is resolved, what is masked where it is shown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from transload.errors import SpecError
from transload.specs._check import check_str, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

MASK: Final = "******"
"""What is shown in the place of a secret value."""

# texts, not compiled: importing the specs costs less, and the first use compiles them
_REVEALING = (
    r"(?i)secret|token(?!iz)|passw(or)?d|passphrase|passcode|credential|api_?key|(access|private|ssh|encryption|signing)_?key"
    r"|(^|_)(key|pwd|pat|auth)$|_auth_|connection_?string|conn_?str|dsn$"
)
_SOURCE = r"(?s)([a-z][a-z0-9_-]*):(.+)\Z"
_USER_INFO = r"(?<=://)[^/@\s]+@"


def looks_secret(name: str) -> bool:
    """Tell whether the name of an environment variable suggests that its value is a secret."""
    return re.search(_REVEALING, name) is not None


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of ``env`` fit for display: values of secret-looking names are replaced by `MASK`."""
    return {name: MASK if looks_secret(name) and value else value for name, value in env.items()}


def masked_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as JSON values fit for display: texts of secret-looking names are replaced by `MASK`."""
    import json

    from transload.specs._json import to_value

    found = json.loads(json.dumps(to_value(dict(values)), default=str))
    return {
        name: masked_env(value)
        if isinstance(value, dict)
        else MASK
        if value and looks_secret(name) and not isinstance(value, int | float)
        else value
        for name, value in found.items()
    }


def masked_url(text: str) -> str:
    """Return ``text`` fit for display: the user and password of URLs in it are replaced by `MASK`."""
    return re.sub(_USER_INFO, f"{MASK}@", text)


def check_source(source: object, path: str) -> None:
    """Refuse a source that is not ``kind:what`` (``env:NAME``, ``file:PATH``, or a scheduler's own kind)."""
    check_str(source, path, empty=False)
    if not re.match(_SOURCE, str(source)):
        # the value is not shown: somebody may have put the secret itself there
        refuse(path, "…", "must be a reference such as env:NAME, file:PATH or k8s:SECRET/KEY, not the secret itself")


def split_source(source: str) -> tuple[str, str]:
    """Split ``"env:NAME"`` into ``("env", "NAME")``.

    Raises:
        SpecError: if the source has no kind.
    """
    check_source(source, "secret source")
    kind, _, what = source.partition(":")
    return kind, what


def resolve_secret(
    source: str,
    path: str,
    environ: Mapping[str, str] | None = None,
    kinds: Mapping[str, Callable[[str], str]] = MappingProxyType({}),
) -> str:
    """Return the value of a secret from ``env:NAME`` (this process's environment) or ``file:PATH``.

    One newline at the end of a file is not part of the value.

    Args:
        source: the reference.
        path: where it stands in the spec, for the message.
        environ: the environment to read; default ``os.environ``.
        kinds: further kinds of sources, and what finds the value of each by what stands after the colon.

    Raises:
        SpecError: if it is missing, or the kind is one that only a scheduler can resolve.
    """
    kind, what = split_source(source)
    if kind in kinds:
        return kinds[kind](what)
    if kind == "env":
        value = (os.environ if environ is None else environ).get(what)
        if value is None:
            raise SpecError(f"{path}={source!r}: the environment variable {what} is not set where the app is submitted")
        return value
    if kind == "file":
        try:
            with open(os.path.expanduser(what), encoding="utf-8-sig") as file:
                return file.read().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as exc:
            raise SpecError(f"{path}={source!r}: cannot read the file: {exc}") from exc
    raise SpecError(f"{path}={source!r}: this scheduler cannot resolve {kind!r}; use env:NAME or file:PATH")
