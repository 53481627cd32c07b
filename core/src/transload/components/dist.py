"""The path by which users of TorchX know `transload.components.builtin.dist`."""

from transload.components.builtin.dist import *  # noqa: F403
