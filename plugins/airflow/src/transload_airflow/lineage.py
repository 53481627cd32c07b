"""What those who follow data are told of an app: events of Airflow's assets, and OpenLineage's datasets and facets."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transload.errors import TransloadError
from transload_airflow.values import plain

if TYPE_CHECKING:
    from transload.pipelines import Execution
    from transload.runner import AppResults


def announce_assets(context: Mapping[str, Any], outlets: Sequence[Any], results: AppResults) -> None:
    """Say of each outlet what the app made of it; those who wait for the asset find it in the event's ``extra``.

    An ``Asset`` gets ``handle``, ``results``, and ``artifact`` if one has its address. An ``AssetAlias`` gets an asset
    for each artifact: what the app made may be known only once it has run.

    Args:
        context: of the task.
        outlets: of the task.
        results: what the app reported.
    """
    from airflow.sdk import Asset, AssetAlias

    artifacts = {asset_uri(str(each.get("path", name))): (name, each) for name, each in results.artifacts.items()}
    for outlet in outlets:
        if isinstance(outlet, AssetAlias):
            for uri, found in artifacts.items():
                context["outlet_events"][outlet].add(Asset(uri), extra=_extra(results, *found))
        elif isinstance(outlet, Asset):
            found = artifacts.get(outlet.uri, ("", {}))
            context["outlet_events"][outlet].extra.update(_extra(results, *found))


def asset_uri(path: str) -> str:
    """Return the URI of an artifact: a URL as it is, a path as ``file://``."""
    return path if "://" in path else f"file://{path}" if path.startswith("/") else f"file:///{path}"


def _extra(results: AppResults, name: str, artifact: Mapping[str, Any]) -> dict[str, Any]:
    made = {"handle": results.handle, "results": results.results}
    if name:
        made["artifact"] = {"name": name, **artifact}
    values: dict[str, Any] = plain(made)
    return values


def operator_lineage(handle: str | None, results: AppResults | None, execution: Execution | None = None) -> Any:
    """Return an ``OperatorLineage``; None without the OpenLineage provider.

    Args:
        handle: the app.
        results: what it reported; None if it did not end well.
        execution: knows what was last seen of it: a task may fail while its app goes on.
    """
    try:
        from airflow.providers.common.compat.openlineage.facet import Dataset
        from airflow.providers.openlineage.extractors import OperatorLineage
    except ImportError:
        return None
    if handle is None:
        return OperatorLineage()
    artifacts = results.artifacts if results is not None else {}
    outputs = [Dataset(*dataset_name(str(each.get("path", name)))) for name, each in artifacts.items()]
    inputs = [Dataset(*dataset_name(source)) for source in sources_of(handle)]
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets={"transload": _facet(handle, results, execution)})


def parent_variables(ti: Any) -> dict[str, str]:
    """Return the variables that tell a job which task's run its own OpenLineage events belong to; none without it."""
    try:
        from airflow.providers.openlineage import conf
        from airflow.providers.openlineage.plugins import macros

        if not conf.is_disabled():
            return {
                "OPENLINEAGE_NAMESPACE": macros.lineage_job_namespace(),
                "OPENLINEAGE_PARENT_ID": macros.lineage_parent_id(ti),
                "OPENLINEAGE_ROOT_PARENT_ID": macros.lineage_root_parent_id(ti),
            }
    except ImportError:
        pass
    except Exception as exc:  # of the provider: no task fails for its lineage
        logging.getLogger(__name__).warning("OpenLineage: the job is not told of its parent: %s", exc)
    return {}


def dataset_name(path: str) -> tuple[str, str]:
    """Return OpenLineage's namespace and name of a path or URL: ``s3://bucket`` and ``key``, ``file`` and path."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return "file", path
    place, _, name = rest.partition("/")
    return ("file", f"/{name}") if scheme == "file" else (f"{scheme}://{place}", name or "/")


def sources_of(handle: str) -> list[str]:
    """Return the sources that the configured trackers know of a run; none if they cannot be asked."""
    from transload.tracker import build_trackers
    from transload_airflow.run import runner_for_tasks

    found = []
    try:
        for tracker in build_trackers(runner_for_tasks().settings.trackers()):
            found += [source.source_run_id for source in tracker.sources(handle)]
    except (TransloadError, OSError) as exc:
        logging.getLogger(__name__).warning("the sources of %s cannot be asked for: %s", handle, exc)
    return list(dict.fromkeys(found))


def _facet(handle: str, results: AppResults | None, execution: Execution | None) -> Any:
    from airflow.providers.common.compat.openlineage.facet import RunFacet
    from attr import define

    @define
    class TransloadRunFacet(RunFacet):
        """The app of a task."""

        handle: str
        state: str
        results: dict[str, Any]
        metadata: dict[str, Any]

    status = execution.status if execution is not None else None
    if results is None:
        return TransloadRunFacet(handle, status.state.name if status is not None else "UNKNOWN", {}, {})
    return TransloadRunFacet(handle, results.state.name, plain(results.results), plain(results.metadata))
