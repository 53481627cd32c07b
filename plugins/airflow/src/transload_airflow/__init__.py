"""Run transload jobs as Apache Airflow tasks, by an operator, a decorator, a sensor and a hook.

Airflow imports this package, for its metadata, whenever it is imported itself. So it must import
next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload_airflow.callbacks import *
    from transload_airflow.convert import *
    from transload_airflow.decorators import *
    from transload_airflow.hooks import *
    from transload_airflow.links import *
    from transload_airflow.operators import *
    from transload_airflow.retry_policy import *
    from transload_airflow.searches import *
    from transload_airflow.sensors import *
    from transload_airflow.states import *
    from transload_airflow.triggers import *

__version__: Final = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "callbacks": "AppCallbacks",
        "convert": "operator_from_app",
        "decorators": "transload_task",
        "hooks": "TransloadHook",
        "links": "AppLink",
        "operators": "TransloadOperator",
        "retry_policy": "TransloadRetryPolicy",
        "searches": "search_group",
        "sensors": "AppSensor",
        "states": "STATES",
        "triggers": "AppStateTrigger",
    },
)
