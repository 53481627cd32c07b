"""What a task's job is in Airflow's assets, and in OpenLineage's datasets and facets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import BaseAsset
from attr import define

from transload.errors import TransloadError
from transload.pipelines import json_safe
from transload_airflow.runner import runner_for_tasks

if TYPE_CHECKING:
    from transload.runner import AppResults
    from transload.specs import AppStatus

_logger = logging.getLogger(__name__)


# -- Airflow's assets


@dataclass
class _Event:
    """What an artifact is as an asset, and the ``extra`` of its event."""

    asset: Any
    extra: dict[str, Any]


def announce_assets(
    context: Mapping[str, Any], outlets: Sequence[Any], results: AppResults
) -> None:
    """Report the job's data in the ``extra`` of the asset's event, for each outlet.

    An asset gets ``handle``, ``results``, and ``artifact`` if one has its address. An
    ``AssetAlias`` gets an asset for each artifact, since they may be known only once the job has
    run. The log has a warning for each that Airflow refuses.

    Args:
        context: of the task.
        outlets: of the task.
        results: what the job reported.
    """
    extra = {"handle": results.handle, "results": json_safe(results.results)}
    events: dict[str, _Event] = {}
    for name, artifact in results.artifacts.items():
        with _no_failure(name):
            asset = Asset(asset_uri(str(artifact.get("path", name))))
            artifact_extra = {**extra, "artifact": {"name": name, **json_safe(artifact)}}
            events[asset.uri] = _Event(asset, artifact_extra)  # its uri as Airflow writes it
    for outlet in outlets:
        if not isinstance(outlet, BaseAsset):
            continue
        with _no_failure(outlet):
            event = context["outlet_events"][outlet]
            if isinstance(outlet, AssetAlias):
                for made in events.values():
                    event.add(made.asset, extra=made.extra)
            elif event.key.uri in events:
                event.extra.update(events[event.key.uri].extra)
            else:
                event.extra.update(extra)


@contextmanager
def _no_failure(what: object) -> Iterator[None]:
    """Warn of what Airflow, or a provider's rule for URIs, raises. No task fails for that."""
    try:
        yield
    except Exception as exc:
        _logger.warning("lineage: %s cannot be reported: %s", what, exc)


def asset_uri(path: str) -> str:
    """Return the URI of an artifact, which is a URL itself, or a path with ``file://``."""
    if "://" in path:
        return path
    if path.startswith("/"):
        return f"file://{path}"
    return f"file:///{path}"


# -- OpenLineage


def operator_lineage(
    handle: str | None, results: AppResults | None, status: AppStatus | None = None
) -> Any:
    """Return an ``OperatorLineage``, or None without the OpenLineage provider.

    Args:
        handle: the job, or None if there is none.
        results: what it reported, or None if it did not end well.
        status: what was last seen of it, since a task may fail while its job goes on.
    """
    try:
        from airflow.providers.common.compat.openlineage.facet import Dataset
        from airflow.providers.openlineage.extractors import OperatorLineage
    except ImportError:
        return None
    if handle is None:
        return OperatorLineage()
    outputs = []
    if results is not None:
        paths = [str(artifact.get("path", name)) for name, artifact in results.artifacts.items()]
        outputs = [Dataset(*dataset_name(path)) for path in paths]
    inputs = [Dataset(*dataset_name(source)) for source in sources_of(handle)]
    facet = _facet(handle, results, status)
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets={"transload": facet})


def parent_variables(ti: Any) -> dict[str, str]:
    """Return the variables that name the task's run for the job's own OpenLineage events.

    There are none without OpenLineage.
    """
    with _no_failure("the job's parent"), suppress(ImportError):
        from airflow.providers.openlineage import conf
        from airflow.providers.openlineage.plugins import macros

        if not conf.is_disabled():
            return {
                "OPENLINEAGE_NAMESPACE": macros.lineage_job_namespace(),
                "OPENLINEAGE_PARENT_ID": macros.lineage_parent_id(ti),
                "OPENLINEAGE_ROOT_PARENT_ID": macros.lineage_root_parent_id(ti),
            }
    return {}


def dataset_name(path: str) -> tuple[str, str]:
    """Return OpenLineage's namespace and name of a path or URL.

    Those of a URL are ``s3://bucket`` and ``key``, those of a file ``file`` and its path.
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        return "file", path
    place, _, name = rest.partition("/")
    if scheme == "file":
        return "file", f"/{name}"
    return f"{scheme}://{place}", name or "/"


def sources_of(handle: str) -> list[str]:
    """Return the sources that the configured trackers know of a run.

    There are none if the trackers cannot be asked.
    """
    from transload.tracker import build_trackers

    found = []
    try:
        for tracker in build_trackers(runner_for_tasks().settings.trackers()):
            found += [source.source_run_id for source in tracker.sources(handle)]
    except (TransloadError, OSError) as exc:
        _logger.warning("the sources of %s cannot be asked for: %s", handle, exc)
    return list(dict.fromkeys(found))


def _facet(handle: str, results: AppResults | None, status: AppStatus | None) -> Any:
    """Return OpenLineage's facet of a run, with how its job ended and what it reported."""
    from airflow.providers.common.compat.openlineage.facet import RunFacet

    @define
    class TransloadRunFacet(RunFacet):
        """The job of a task."""

        handle: str
        state: str
        results: dict[str, Any]
        metadata: dict[str, Any]

    if results is not None:
        return TransloadRunFacet(
            handle=handle,
            state=results.state.name,
            results=json_safe(results.results),
            metadata=json_safe(results.metadata),
        )
    state = "UNKNOWN"
    if status is not None:
        state = status.state.name
    return TransloadRunFacet(handle=handle, state=state, results={}, metadata={})
