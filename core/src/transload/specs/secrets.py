"""Check and resolve references to secrets, and mask what looks secret where it is shown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from transload.errors import SpecError
from transload.specs.checks import check_str, refuse

MASK: Final = "******"
"""What is shown in the place of a secret value."""

# texts, which the first use compiles, so that importing the specs costs less
_REVEALING = (
    r"(?i)secret|token(?!iz)|passw(or)?d|passphrase|passcode|credential|api_?key|(access|private|ssh|encryption|signing)_?key"
    r"|(^|_)(key|pwd|pass|pat|auth|jwt|bearer|creds?)$|_auth_|authorization|(^|_)jwt_"
    r"|connection_?string|conn_?str|dsn$"
)
# names that hold one of these words and are known to be something else
_HARMLESS = (
    r"(?i)(^|_)(result|sort|primary|foreign|partition|cache|group|public|metric|label|feature|row|lookup|dict|map|index"
    r"|json|column|field|idempotency|order|shard|routing|object|config|data|join|dedup|search|lock|hash)_keys?$"
    r"|(^|_)(max|min|num|n|new|total|prompt|completion|input|output|context|train|eval|batch|warmup)_(new_)?tokens$"
    r"|(^|_)(pad|eos|bos|unk|sep|cls|mask|stop|image|special)_token(_id|_ids)?$"
    r"|(^|_)(one|two|three|first|second|third|last|single|multi|forward|backward|num|n|max|by)_pass$"
    r"|(^|_)tokens?_(count|id|ids|type|types|limit|length|budget|dim|size|rate|per_\w+)$"
)
_SOURCE = r"(?s)([a-z][a-z0-9_-]*):(.+)\Z"
_USER_INFO = r"([\w+.-]*)://([^/?#\s]+)@"
_LOGINS = ("ssh", "git+ssh", "sftp")
"""Schemes of URLs in which a user without a password is only the name of a login."""
_IN_QUERY = r"(?<=[?&])([\w.-]+)=([^&#\s]+)"
_NAME = r"-{0,2}[A-Za-z_][\w.-]*"
_VALUE = r"""("[^"]*"|'[^']*'|[^\s;|&,)]+)"""
_IN_TEXT = (
    r"(?<![\w-])(--?[A-Za-z][\w.-]*)(=|\s+)" + _VALUE,  # --password hunter2
    r"(?<![\w.-])([A-Za-z_]\w*)(=)" + _VALUE,  # PASSWORD=hunter2
    r"""(["'][\w.-]+["'])(\s*:\s*)("[^"]*"|'[^']*')""",  # {"password": "hunter2"}
    r"(?i)\b(bearer|basic)(\s+)([\w.~+/=-]{8,})",
    r"""(?i)(?<![\w-])((?:proxy-)?authorization)(\s*:\s*)(?!bearer\s|basic\s)([^"'\s][^"'\r\n]*)""",
)
_WORDS = ("key", "auth", "pat", "token")  # in a program's text they may be anything
_REFERENCE = ("$", '"$', "'$", "-")


def looks_secret(name: str) -> bool:
    """Tell whether a name suggests that its value is a secret.

    The name is that of a variable, an option or a field.
    """
    plain = re.sub(r"[.-]", "_", name)
    return re.search(_REVEALING, plain) is not None and re.search(_HARMLESS, plain) is None


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of ``env`` for display.

    `MASK` replaces secret-looking values and passwords in URLs.
    """
    return {name: _masked_variable(name, value) for name, value in env.items()}


def _masked_variable(name: str, value: str) -> str:
    if value and looks_secret(name):
        return MASK
    if isinstance(value, str):
        return masked_url(value)
    return value  # a request's variables may hold anything


def masked_args(args: Sequence[str]) -> list[str]:
    """Return the words of a command fit for display.

    `MASK` replaces the values of options (``--password X``, ``--password=X``) and settings
    (``db.password=X``) whose names look secret, in scripts and JSON texts too. It also replaces
    user and password of URLs.
    """
    shown: list[str] = []
    secret_follows = False
    for arg in args:
        if secret_follows and not arg.startswith("-"):
            shown.append(MASK)
            secret_follows = False
            continue
        secret_follows = False
        name, equals, value = arg.partition("=")
        if not re.fullmatch(_NAME, name) or not looks_secret(name.lstrip("-")):
            shown.append(_masked_text(arg))
            continue
        secret_follows = not equals and name.startswith("-")
        shown.append(f"{name}={MASK}" if value else arg)
    return shown


def masked_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested values fit for display, masked at every depth as by `masked_env`."""
    return {name: _masked_value(str(name), value) for name, value in values.items()}


def masked_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as JSON values fit for display, as `masked_values` does."""
    import json

    from transload.specs.serialization import to_value

    return masked_values(json.loads(json.dumps(to_value(dict(values)), default=str)))


def _masked_value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return masked_values(value)
    if isinstance(value, (bool, int, float)) or not value:
        return value
    if looks_secret(name):
        return MASK
    if isinstance(value, str):
        return _masked_text(value)
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return masked_args(value)
        return [_masked_value("", item) for item in value]
    return value


def _masked_text(text: str) -> str:
    """Return a text for display.

    Secret-looking options, settings and JSON members in it are masked, and so are URLs.
    """

    def hide(found: re.Match[str]) -> str:
        name, between, value = found.groups()
        word = name.strip("\"'")
        is_scheme = word.lower() in ("bearer", "basic")
        is_secret = word not in _WORDS and looks_secret(word.lstrip("-"))
        if (is_scheme or is_secret) and not value.startswith(_REFERENCE):
            return f"{name}{between}{MASK}"
        return found.group()

    if re.search(r"[\s{]", text):  # a script, or JSON, since a plain word was looked at already
        for pattern in _IN_TEXT:
            text = re.sub(pattern, hide, text)
    return masked_url(text)


def masked_url(text: str) -> str:
    """Return ``text`` for display, with the secrets in its URLs masked.

    `MASK` replaces user, password and secret-looking parameters. A login such as ``ssh://me@host``
    is shown.
    """
    if "://" not in text:
        return text
    text = re.sub(_USER_INFO, _masked_user, text)
    return re.sub(_IN_QUERY, _masked_parameter, text)


def _masked_user(found: re.Match[str]) -> str:
    scheme, user = found.groups()
    if scheme in _LOGINS and not re.search("[:@]", user):
        return found.group()
    return f"{scheme}://{MASK}@"


def _masked_parameter(found: re.Match[str]) -> str:
    name = found[1]
    if looks_secret(name) or name.lower().endswith(("signature", "sig")):
        return f"{name}={MASK}"
    return found.group()


def check_source(source: object, path: str) -> None:
    """Refuse a source that is not ``kind:what``.

    The kind is ``env:NAME``, ``file:PATH``, or one of a scheduler's own.
    """
    check_str(source, path, empty=False)
    if not re.match(_SOURCE, str(source)):
        # the value is not shown, since it may be the secret itself
        refuse(
            path,
            "…",
            "must be a reference such as env:NAME, file:PATH or k8s:SECRET/KEY, not the secret "
            "itself",
        )


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
        path: its place in the spec, for the message.
        environ: the environment to read. The default is ``os.environ``.
        kinds: further kinds of sources, each with a function from the text after the colon to the
            value.

    Raises:
        SpecError: if it is missing, or the kind is one that only a scheduler can resolve.
    """
    kind, what = split_source(source)
    if kind in kinds:
        return kinds[kind](what)
    if kind == "env":
        if environ is None:
            environ = os.environ
        value = environ.get(what)
        if value is None:
            raise SpecError(
                f"{path}={source!r}: the environment variable {what} is not set where the app is "
                "submitted"
            )
        return value
    if kind == "file":
        try:
            with open(os.path.expanduser(what), encoding="utf-8-sig") as file:
                value = file.read().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as exc:
            raise SpecError(f"{path}={source!r}: cannot read the file: {exc}") from exc
        if "\0" in value:
            raise SpecError(
                f"{path}={source!r}: the file holds a NUL character, which no variable can"
            )
        return value
    raise SpecError(
        f"{path}={source!r}: this scheduler cannot resolve {kind!r}; use env:NAME or file:PATH"
    )
