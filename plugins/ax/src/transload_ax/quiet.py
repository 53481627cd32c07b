"""What Ax and what it stands on say that is nobody's business."""

from __future__ import annotations

import logging
import warnings


def quiet() -> None:
    """Have Ax, PyTorch and what lies between them warn of nothing that users of a search could change."""
    # Ax sets the levels of its loggers when they are made, and tells at once that it has SQL storage
    logging.getLogger("ax.storage.sqa_store.with_db_settings_base").addFilter(
        lambda record: record.levelno > logging.INFO
    )
    logging.getLogger("ax").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(ax|botorch|gpytorch|linear_operator|pyro|torch)\.")
