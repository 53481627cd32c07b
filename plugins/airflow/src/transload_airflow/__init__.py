"""transload apps as Apache Airflow tasks: an operator, a decorator, a sensor, a trigger, a hook.

Importing this package imports no Airflow; the names below come on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transload_airflow.callbacks import AppCallbacks
    from transload_airflow.convert import AirflowAdapter, operator_from_app
    from transload_airflow.decorators import transload_task
    from transload_airflow.hooks import TransloadHook
    from transload_airflow.links import AppLink
    from transload_airflow.operators import TransloadOperator
    from transload_airflow.searches import search_group
    from transload_airflow.sensors import AppSensor
    from transload_airflow.states import STATES
    from transload_airflow.triggers import AppStateTrigger

__version__: Final = "0.1.0"

_HOMES: Final = {
    "AirflowAdapter": "convert",
    "AppCallbacks": "callbacks",
    "AppLink": "links",
    "AppSensor": "sensors",
    "AppStateTrigger": "triggers",
    "STATES": "states",
    "TransloadHook": "hooks",
    "TransloadOperator": "operators",
    "operator_from_app": "convert",
    "search_group": "searches",
    "transload_task": "decorators",
}

__all__ = [
    "STATES",
    "AirflowAdapter",
    "AppCallbacks",
    "AppLink",
    "AppSensor",
    "AppStateTrigger",
    "TransloadHook",
    "TransloadOperator",
    "__version__",
    "operator_from_app",
    "search_group",
    "transload_task",
]


def __getattr__(name: str) -> Any:
    # Airflow reads the provider metadata of this package on every `import airflow`: nothing may be imported by then
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
