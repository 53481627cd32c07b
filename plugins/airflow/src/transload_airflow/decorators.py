"""Provide ``@task.transload``, for a function that says what to run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Unpack

from airflow.providers.common.compat import sdk

from transload.errors import SpecError
from transload.specs import AppDef
from transload_airflow.operators import TransloadOperator
from transload_airflow.options import OperatorOptions
from transload_airflow.values import as_values, awaited


class _TransloadDecoratedOperator(sdk.DecoratedOperator, TransloadOperator):
    """Calls the function, then runs the AppDef that it returned.

    With ``component``, the function returns the arguments of the component.
    """

    template_fields: Sequence[str] = (
        *sdk.DecoratedOperator.template_fields,
        *TransloadOperator.template_fields,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **sdk.DecoratedOperator.template_fields_renderers,
        **TransloadOperator.template_fields_renderers,
    }
    custom_operator_name: str = "@task.transload"
    overwrite_rtif_after_execution: bool = True
    _source_is_given: ClassVar[bool] = False

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Unpack[OperatorOptions],
    ) -> None:
        for name in ("app", "component_args", "command"):
            if kwargs.get(name) is not None:
                raise SpecError(
                    f"@task.transload: {name} is what the function returns; give it there"
                )
        given: dict[str, Any] = {
            **kwargs,
            "python_callable": python_callable,
            "op_args": op_args,
            "op_kwargs": op_kwargs,
        }
        super().__init__(**given)

    def _launch(self, context: Mapping[str, Any]) -> Any:
        merged: Any = dict(context)
        sdk.context_merge(merged, self.op_kwargs)
        arguments = sdk.determine_kwargs(self.python_callable, self.op_args, merged)
        given = awaited(self.python_callable(*self.op_args, **arguments))
        self._take(given)
        return super()._launch(context)

    def _take(self, given: Any) -> None:
        """Run what the function has returned.

        Raises:
            SpecError: if it is of another type.
        """
        kind = type(given).__name__
        if self.component is None:
            if not isinstance(given, (AppDef, Mapping, str)):
                raise SpecError(f"@task.transload: must return an AppDef, not {kind}")
            self.app, _ = as_values(given)
            return
        if isinstance(given, (str, AppDef)) or not isinstance(given, (Mapping, Sequence)):
            raise SpecError(f"@task.transload(component=…): must return arguments, not {kind}")
        self.component_args = given


def transload_task(
    python_callable: Callable[..., Any] | None = None, **kwargs: Unpack[OperatorOptions]
) -> sdk.TaskDecorator:
    """Make a task of a function that returns an AppDef.

    With ``component=``, the function returns the arguments of the component.

    Available as ``@task.transload``.

    Args:
        python_callable: the function.
        kwargs: of `TransloadOperator`.
    """
    return sdk.task_decorator_factory(
        python_callable=python_callable,
        decorated_operator_class=_TransloadDecoratedOperator,
        **kwargs,
    )
