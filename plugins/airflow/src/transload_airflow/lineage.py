"""What those who follow data are told of an app: events of Airflow's assets, and OpenLineage's
datasets and facets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from transload.errors import TransloadError
from transload_airflow.runner import runner_for_tasks
from transload_airflow.values import plain

if TYPE_CHECKING:
    from transload.pipelines import Execution
    from transload.runner import AppResults


def announce_assets(
    context: Mapping[str, Any], outlets: Sequence[Any], results: AppResults
) -> None:
    """Say of each outlet what the app made of it; those who wait for the asset find it in the
    event's ``extra``.

    An asset gets ``handle``, ``results``, and ``artifact`` if one has its address. An
    ``AssetAlias`` gets an asset for
    each artifact: what the app made may be known only once it has run. What Airflow refuses is said
    in the log.

    Args:
        context: of the task.
        outlets: of the task.
        results: what the app reported.
    """
    from airflow.sdk import Asset, AssetAlias
    from airflow.sdk.definitions.asset import BaseAsset

    told = {"handle": results.handle, "results": plain(results.results)}
    made: dict[str, tuple[Asset, dict[str, Any]]] = {}
    for name, artifact in results.artifacts.items():
        with _no_failure(name):
            asset = Asset(
                asset_uri(str(artifact.get("path", name)))
            )  # its `uri` is as Airflow writes such a one
            made[asset.uri] = asset, {**told, "artifact": {"name": name, **plain(artifact)}}
    for outlet in outlets:
        if isinstance(outlet, BaseAsset):
            with _no_failure(outlet):
                event = context["outlet_events"][outlet]
                if isinstance(outlet, AssetAlias):
                    for asset, extra in made.values():
                        event.add(asset, extra=extra)
                else:
                    event.extra.update(made.get(event.key.uri, (None, told))[1])


@contextmanager
def _no_failure(what: object) -> Iterator[None]:
    """Warn of what Airflow, or a provider's rule for URIs, raises: no task fails for its
    lineage.
    """
    try:
        yield
    except Exception as exc:
        logging.getLogger(__name__).warning("lineage: %s cannot be reported: %s", what, exc)


def asset_uri(path: str) -> str:
    """Return the URI of an artifact: a URL as it is, a path as ``file://``."""
    if "://" in path:
        return path
    absolute = path if path.startswith("/") else f"/{path}"
    return f"file://{absolute}"


def operator_lineage(
    handle: str | None, results: AppResults | None, execution: Execution | None = None
) -> Any:
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
    outputs = [
        Dataset(*dataset_name(str(each.get("path", name)))) for name, each in artifacts.items()
    ]
    inputs = [Dataset(*dataset_name(source)) for source in sources_of(handle)]
    return OperatorLineage(
        inputs=inputs, outputs=outputs, run_facets={"transload": _facet(handle, results, execution)}
    )


def parent_variables(ti: Any) -> dict[str, str]:
    """Return the variables that tell a job which task's run its own OpenLineage events belong to;
    none without it.
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
    """Return OpenLineage's namespace and name of a path or URL: ``s3://bucket`` and ``key``,
    ``file`` and path.
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        return "file", path
    place, _, name = rest.partition("/")
    return ("file", f"/{name}") if scheme == "file" else (f"{scheme}://{place}", name or "/")


def sources_of(handle: str) -> list[str]:
    """Return the sources that the configured trackers know of a run; none if they cannot be
    asked.
    """
    from transload.tracker import build_trackers

    found = []
    try:
        for tracker in build_trackers(runner_for_tasks().settings.trackers()):
            found += [source.source_run_id for source in tracker.sources(handle)]
    except (TransloadError, OSError) as exc:
        logging.getLogger(__name__).warning(
            "the sources of %s cannot be asked for: %s", handle, exc
        )
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
        return TransloadRunFacet(
            handle, status.state.name if status is not None else "UNKNOWN", {}, {}
        )
    return TransloadRunFacet(
        handle, results.state.name, plain(results.results), plain(results.metadata)
    )
