"""The one error of results and tracking."""

from __future__ import annotations

from transload.errors import TransloadError

__all__ = ["TrackingError", "told_as_tracking_error"]


class TrackingError(TransloadError, ValueError):
    """A key, name or value cannot be stored, or what is stored cannot be read by this version.

    The message names the place (``result 'loss'``, a path), the value, and what is allowed.
    """


class told_as_tracking_error:  # noqa: N801  (used as a context, like those of contextlib, which costs more to import)
    """A context in which whatever a storage or a tracker of somebody else raises becomes one `TrackingError`.

    Args:
        what: what is read, for the message; the user and password of URLs are masked in it.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, TransloadError):
            from transload.specs import masked_url

            text = f"{self._what} cannot be read: {type(error).__name__}: {error}"
            raise TrackingError(masked_url(text)) from error
