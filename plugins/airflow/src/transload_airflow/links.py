"""The button in Airflow's interface that leads to the app."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

LINK_KEY: Final = "transload_link"


class AppLink(BaseOperatorLink):
    """Leads to a page about the app: a plugin's (hook ``transload_app_link``), else the
    scheduler's.
    """

    @property
    def name(self) -> str:
        """The text of the button."""
        return "transload app"

    @property
    def xcom_key(self) -> str:
        """The XCom that holds the link: pushed as soon as the app is there, so that the button
        works while it runs.
        """
        return LINK_KEY

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the link of a task instance, or an empty text."""
        found = getattr(operator, "app_link", None)
        if (
            found is None
        ):  # the process of the task knows it: to ask for an XCom that is not there logs an error
            with suppress(
                Exception
            ):  # no such task, or an Airflow that has no XComs here: there is no link then
                found = XCom.get_value(key=LINK_KEY, ti_key=ti_key)
        return str(found or "")
