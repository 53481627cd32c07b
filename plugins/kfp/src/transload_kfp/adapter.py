"""What this plugin registers: how a job, or a search, becomes an object of Kubeflow Pipelines."""

from __future__ import annotations

from collections.abc import Callable
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
        if "tracker_base" not in host_options:
            raise ConfigError(
                "a search needs tracker_base, a folder for its state and for what its trials "
                "report: give tracker_base='s3://…' or a folder that all tasks see"
            )
        return transload_kfp.search_pipeline(source, **host_options)
    source, make = _maker(source, host_options)
    return make(source, **host_options)


def show(source: Any, **host_options: Any) -> str:
    """Return a component's YAML, what a launcher would submit, or a search's pipeline.

    Arguments and errors as of `convert`.
    """
    if _is_search(source):
        return transload_kfp.pipeline_text(convert(source, **host_options))
    source, make = _maker(source, host_options)
    if make is transload_kfp.launcher_from_app:
        host_options.setdefault("image", "launcher")  # which is not of what it submits
    return make(source, **host_options).dry_run()


def adapter() -> Adapter:
    """Return what is registered of this plugin."""
    return Adapter(HOST, convert=convert, dry_run=show, states=STATES)


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search. Without the extra transload-search nothing is."""
    return type(source).__module__.startswith("transload_search.")


def _maker(
    source: Any, host_options: dict[str, Any]
) -> tuple[Any, Callable[..., transload_kfp.AppComponent]]:
    """Return the source with its ``launch``, and what makes a component of it."""
    launch = host_options.pop("launch", None)
    if launch is not None:
        source = Launch.of(source, **launch)
    launches = host_options.pop("launcher", False) or not host_options.keys().isdisjoint(
        ("scheduler", "cfg")
    )
    if launches or (isinstance(source, Launch) and submit_fields(source)):
        return source, transload_kfp.launcher_from_app
    return source, transload_kfp.component_from_app
