"""Move TorchX components and settings to transload, with `transload migrate`."""

from __future__ import annotations

from typing import Final

from transload_torchx.sbatch import convert_batch_script
from transload_torchx.settings import convert_settings
from transload_torchx.sources import Left, convert_source

__version__: Final = "0.1.0"

__all__ = ["Left", "__version__", "convert_batch_script", "convert_settings", "convert_source"]
