"""The button in Airflow's interface that leads to the job."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

LINK_KEY: Final = "transload_link"


class AppLink(BaseOperatorLink):
    """Leads to a page about the job.

    It is a plugin's (hook ``transload_app_link``), else the scheduler's.
    """

    @property
    def name(self) -> str:
        """The text of the button."""
        return "transload app"

    @property
    def xcom_key(self) -> str:
        """The XCom that holds the link.

        It is pushed as soon as the job is there, so that the button works while it runs.
        """
        return LINK_KEY

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the link of a task instance, or an empty text."""
        link = getattr(operator, "app_link", None)
        if link is not None:  # known in the process of the task
            return str(link)
        # no such task, or an Airflow that has no XComs here: there is no link then
        with suppress(Exception):
            return str(XCom.get_value(key=LINK_KEY, ti_key=ti_key) or "")
        return ""
