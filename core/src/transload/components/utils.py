"""The path by which users of TorchX know `transload.components.builtin.utils`."""

from transload.components.builtin.utils import *  # noqa: F403
