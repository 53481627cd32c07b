"""Make pages about transload jobs, searches and lineages.

The functions ``collect_…`` read the data of a page. The functions ``…_report`` turn such data into
the HTML text of one self-contained page. Importing this package loads no templates, because every
``transload`` command imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload_report.app_page import app_report
    from transload_report.collect import collect_app, collect_lineage, collect_runs
    from transload_report.experiments import collect_experiment, experiment_data, ledger_data
    from transload_report.lineage_picture import lineage_svg
    from transload_report.model import (
        AppData,
        LineageData,
        LogTail,
        RunsData,
        SearchData,
        TrialData,
    )
    from transload_report.other_pages import lineage_report, runs_report, search_report

__all__ = [
    "AppData",
    "LineageData",
    "LogTail",
    "RunsData",
    "SearchData",
    "TrialData",
    "__version__",
    "app_report",
    "collect_app",
    "collect_experiment",
    "collect_lineage",
    "collect_runs",
    "experiment_data",
    "ledger_data",
    "lineage_report",
    "lineage_svg",
    "runs_report",
    "search_report",
]

__version__: Final = "0.1.0"

_HOMES: Final = {
    "app_page": "app_report",
    "collect": "collect_app collect_lineage collect_runs",
    "experiments": "collect_experiment experiment_data ledger_data",
    "lineage_picture": "lineage_svg",
    "model": "AppData LineageData LogTail RunsData SearchData TrialData",
    "other_pages": "lineage_report runs_report search_report",
}

__getattr__, __dir__, _ = lazy_names(__name__, _HOMES)
