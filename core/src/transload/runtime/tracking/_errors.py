"""The one error of results and tracking."""

from __future__ import annotations

from transload.errors import TransloadError

__all__ = ["TrackingError"]


class TrackingError(TransloadError, ValueError):
    """A key, name or value cannot be stored, or what is stored cannot be read by this version.

    The message names the place (``result 'loss'``, a path), the value, and what is allowed.
    """
