"""Check run ids, texts and metadata that a tracker is to keep."""

from __future__ import annotations

from collections.abc import Mapping

from transload.runtime.tracking import TrackingError

_MAX_RUN_ID = 4096  # bytes of UTF-8
_MAX_DEPTH = 64
_MAX_INT_BITS = (
    13_000  # Python itself refuses to write or read whole numbers of more than 4300 digits
)


def check_run_id(run_id: object, what: str = "run_id") -> str:
    """Check a run id, which must be a text of 1 to 4096 bytes in UTF-8, and return it.

    Raises:
        TrackingError: if it is not. The message has its name and value.
    """
    text = check_text(run_id, what)
    if not text:
        raise TrackingError(f"{what}='': must have at least one character")
    size = len(text.encode())
    if size > _MAX_RUN_ID:
        raise TrackingError(
            f"{what}={text[:40]!r}...: {size} bytes in UTF-8; must be at most {_MAX_RUN_ID}"
        )
    return text


def check_text(text: object, what: str) -> str:
    """Check that a value is a str that UTF-8 can encode, and return it.

    Raises:
        TrackingError: if it is not.
    """
    if not isinstance(text, str):
        raise TrackingError(f"{what}={text!r}: {type(text).__name__}; must be a str")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise TrackingError(
            f"{what}={text!r}: has a lone surrogate, which UTF-8 cannot encode"
        ) from exc
    return str.__str__(text)


def check_values(values: Mapping[str, object], what: str = "metadata") -> dict[str, object]:
    """Return values in a form that JSON can store.

    Allowed are str, int, float, bool, None, and lists and dicts of these. The keys of dicts are
    str. NaN, the infinities and large ints are kept exactly. A tuple becomes a list.

    Raises:
        TrackingError: if a value cannot be stored. The message has its place.
    """
    if not isinstance(values, Mapping):
        raise TrackingError(f"{what}={values!r}: {type(values).__name__}; must be a mapping")
    checked = _check(values, what, 0)
    assert isinstance(checked, dict)
    return checked


def _check(value: object, where: str, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        if value.bit_length() > _MAX_INT_BITS:
            raise TrackingError(
                f"{where}: an int of {value.bit_length()} bits; must be at most {_MAX_INT_BITS}"
            )
        return int(value)
    if depth >= _MAX_DEPTH:
        raise TrackingError(
            f"{where[:80]}: nested more than {_MAX_DEPTH} levels deep, or contains itself"
        )
    if isinstance(value, Mapping):
        return {
            _check_name(name, where): _check(item, f"{where}[{name!r}]", depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_check(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    kind = type(value).__name__
    hint = "; call its .item() or .tolist()" if hasattr(value, "tolist") else ""
    raise TrackingError(
        f"{where}: {kind} cannot be kept; allowed are str, int, float, bool, None, lists and "
        f"dicts{hint}"
    )


def _check_name(name: object, where: str) -> str:
    if not isinstance(name, str):
        raise TrackingError(f"{where}: name {name!r} is a {type(name).__name__}; names are str")
    return str.__str__(name)
