"""What this plugin registers: how a job, or a search, becomes an object of Kubeflow Pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import transload_kfp
from transload.errors import ConfigError
from transload.pipelines import Adapter, Launch
from transload_kfp.refusals import submit_fields
from transload_kfp.states import STATES
from transload_kfp.step import HOST

if TYPE_CHECKING:
    from transload_search import Search


def convert(source: Any, **host_options: Any) -> Any:
    """Return a component, a launcher, or of a search a pipeline.

    It is a launcher if ``scheduler``, ``cfg`` or ``launcher=True`` is given.

    Args:
        source: an AppDef, its JSON, a component, a `transload.pipelines.Launch`, or a
            `transload_search.Search`.
        host_options: arguments of `component_from_app`, `launcher_from_app` or `search_pipeline`,
            with ``launch={"args": …, "scheduler": …}`` as in every adapter.

    Raises:
        UnsupportedFeature: for what one component cannot express, by field name.
        SpecError: for a wrong source, argument or input.
        ConfigError: for a wrong option.
    """
    # by the package's own names, since launchers import this module
    if _is_search(source):
        return _search_pipeline(source, host_options)
    source, launches = _launched(source, host_options)
    if launches:
        return transload_kfp.launcher_from_app(source, **host_options)
    return transload_kfp.component_from_app(source, **host_options)


def show(source: Any, **host_options: Any) -> str:
    """Return a component's YAML, what a launcher would submit, or a search's pipeline.

    Arguments and errors as of `convert`.
    """
    if _is_search(source):
        return transload_kfp.pipeline_text(_search_pipeline(source, host_options))
    source, launches = _launched(source, host_options)
    if launches:
        host_options.setdefault("image", "launcher")  # which is not of what it submits
        return transload_kfp.launcher_from_app(source, **host_options).dry_run()
    return transload_kfp.component_from_app(source, **host_options).dry_run()


def adapter() -> Adapter:
    """Return what is registered of this plugin."""
    return Adapter(HOST, convert=convert, dry_run=show, states=STATES)


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search. Without the extra transload-search nothing is."""
    return type(source).__module__.startswith("transload_search.")


def _search_pipeline(search: Search, host_options: Mapping[str, Any]) -> Any:
    if "tracker_base" not in host_options:
        raise ConfigError(
            "a search needs tracker_base, a folder for its state and for what its trials report: "
            "give tracker_base='s3://…' or a folder that all tasks see"
        )
    return transload_kfp.search_pipeline(search, **host_options)


def _launched(source: Any, host_options: dict[str, Any]) -> tuple[Any, bool]:
    """Return the source with its ``launch``, and whether a launcher is asked for."""
    launch = host_options.pop("launch", None)
    if launch is not None:
        source = Launch.of(source, **launch)
    if host_options.pop("launcher", None):
        return source, True
    if "scheduler" in host_options or "cfg" in host_options:
        return source, True
    if not isinstance(source, Launch):
        return source, False
    return source, bool(submit_fields(source))
