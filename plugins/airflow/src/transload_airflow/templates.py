"""The rules of Airflow's templates here, which are stricter than Airflow's own.

A text that holds no template does not change, also where templates make values of other types
(``render_template_as_native_obj``): ``"1.10"`` stays that text. The return value of an upstream
task is data, never a template. Airflow itself keeps to that for ``expand``, but not for lists and
mappings that come by ``expand_kwargs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import jinja2
from airflow.providers.common.compat.sdk import BaseOperator

from transload.errors import TransloadError
from transload_airflow.failures import failure
from transload_airflow.masks import Reads

_MARKERS: Final = (
    "variable_start_string",
    "block_start_string",
    "comment_start_string",
    "line_statement_prefix",
    "line_comment_prefix",
)
"""Settings of a template environment that say with what a template begins."""


class TemplateRules(BaseOperator):
    """The common base of this package's operators, which renders their template fields."""

    text_fields: Sequence[str] = ()
    """Template fields that hold one text each.

    It stays a text, whatever type Airflow would make of it.
    """

    word_fields: Sequence[str] = ()
    """Template fields that hold a list of texts."""

    own_fields: Sequence[str] = ()
    """Template fields that hold values.

    What a template in one of their texts returns keeps its type.
    """

    _field: str = ""
    _whole: Any = None
    """Name and value of the template field that is being rendered."""

    _reads: Reads = Reads()
    """What the templates have asked for."""

    def failure_of(self, error: TransloadError) -> BaseException:
        """Return the exception by which Airflow skips the task, fails it, or perhaps retries it."""
        return failure(error)

    def render_template(
        self,
        content: Any,
        context: Any,
        jinja_env: jinja2.Environment | None = None,
        seen_oids: set[int] | None = None,
    ) -> Any:
        """Render a value as Airflow does, but a text as this module says.

        The arguments are those of ``BaseOperator``.
        """
        environment = jinja_env or self.get_template_env()
        is_text = isinstance(content, str) and not content.endswith(tuple(self.template_ext))
        if not is_text or id(content) in (seen_oids or ()):
            return super().render_template(content, context, environment, seen_oids)
        if not _has_template(content, environment):
            return content
        part = content is not self._whole
        if self._field in self.text_fields or (part and self._field in self.word_fields):
            return _text(environment.from_string(content), context)
        if part and self._field in self.own_fields:
            return _value(environment.from_string(content), context)
        return super().render_template(content, context, environment, seen_oids)

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Any,
        jinja_env: jinja2.Environment,
        seen_oids: set[int],
    ) -> None:
        """Render fields one by one. Airflow calls this for a mapped task, too."""
        if parent is not self:
            super()._do_render_template_fields(
                parent, template_fields, context, jinja_env, seen_oids
            )
            return
        self._reads = Reads()
        noting = self._reads.noting(context)
        names = list(template_fields)
        seen_oids.update(id(value) for value in self._upstream_values(names, context))
        # what was made of a value that an upstream task has returned is no template either
        seen_oids.update(
            id(getattr(self, name, None)) for name in names if id(self.as_given(name)) in seen_oids
        )
        for name in names:
            self._field = name
            self._whole = getattr(self, name, None)
            super()._do_render_template_fields(parent, [name], noting, jinja_env, seen_oids)
        self._field = ""
        self._whole = None

    def _upstream_values(self, names: Iterable[str], context: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the values of template fields that come from an upstream task.

        The task has returned them for ``expand_kwargs``.
        """
        dag = self.get_dag()
        mapped: Any = None
        if dag is not None:
            mapped = dag.task_dict.get(self.task_id)
        written: Mapping[str, Any] | None = getattr(mapped, "partial_kwargs", None)
        if written is None:
            return
        decorated = getattr(mapped, "op_kwargs_expand_input", None)
        given: Any = decorated
        if given is None:
            given = mapped.expand_input
        if given.EXPAND_INPUT_TYPE != "list-of-dicts" or _is_literal(
            given.value, context["ti"].map_index
        ):
            return
        if decorated is None:
            held = {name: self.as_given(name) for name in names}
        else:
            written = written["op_kwargs"]
            held = dict(getattr(self, "op_kwargs", {}))
        for name, value in held.items():
            if name not in written or value is not written[name]:
                yield value

    def as_given(self, name: str) -> Any:
        """Return a template field as it was given to the constructor."""
        return getattr(self, name, None)


def _is_literal(mappings: Any, index: int) -> bool:
    """Tell whether the arguments of a mapped task are written in the DAG's file."""
    return isinstance(mappings, (list, tuple)) and isinstance(mappings[index], Mapping)


def _has_template(text: str, environment: jinja2.Environment) -> bool:
    """Tell whether a text holds anything that its environment would not leave as it is."""
    markers = [getattr(environment, name) for name in _MARKERS]
    return any(marker in text for marker in markers if marker)


def _nodes(template: jinja2.Template, context: Any) -> list[Any]:
    """Return what a template consists of once it is rendered.

    These are texts, and in a native environment other values.
    """
    return list(template.root_render_func(template.new_context(dict(context))))


def _text(template: jinja2.Template, context: Any) -> str:
    """Return what a template makes, as a text."""
    return "".join(str(node) for node in _nodes(template, context))


def _value(template: jinja2.Template, context: Any) -> Any:
    """Return the value of a template, which is the one value that it names, or else a text."""
    nodes = _nodes(template, context)
    if len(nodes) == 1 and not isinstance(nodes[0], jinja2.Undefined):
        return nodes[0]
    return "".join(str(node) for node in nodes)
