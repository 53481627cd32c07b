"""Move TorchX components and settings to transload, with `transload migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload_torchx.sbatch import convert_batch_script
    from transload_torchx.settings import convert_settings
    from transload_torchx.sources import Left, convert_source

__version__: Final = "0.1.0"

__all__ = ["Left", "__version__", "convert_batch_script", "convert_settings", "convert_source"]

# lazy, because every ``transload`` command imports this package for its plugin
__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "sbatch": "convert_batch_script",
        "settings": "convert_settings",
        "sources": "Left convert_source",
    },
)
