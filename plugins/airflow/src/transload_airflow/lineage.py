"""What OpenLineage is told of an app: artifacts as outputs, sources as inputs, the rest as a run facet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from transload.errors import TransloadError

if TYPE_CHECKING:
    from transload.pipelines import Execution
    from transload.runner import AppResults


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
    except ImportError:
        return {}
    if conf.is_disabled():
        return {}
    try:
        return {
            "OPENLINEAGE_NAMESPACE": macros.lineage_job_namespace(),
            "OPENLINEAGE_PARENT_ID": macros.lineage_parent_id(ti),
            "OPENLINEAGE_ROOT_PARENT_ID": macros.lineage_root_parent_id(ti),
        }
    except Exception as exc:  # of the provider: no task fails for its lineage
        logging.getLogger(__name__).warning("OpenLineage: the job is not told of its parent: %s", exc)
        return {}


def dataset_name(path: str) -> tuple[str, str]:
    """Return OpenLineage's namespace and name of a path or URL: ``s3://bucket`` and ``key``, ``file`` and path."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return "file", path
    place, _, name = rest.partition("/")
    if scheme == "file":
        return "file", f"/{name}"
    return f"{scheme}://{place}", name or "/"


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

        @staticmethod
        def _get_schema() -> str:
            return "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunFacet"

    from transload_airflow.values import plain

    status = execution.status if execution is not None else None
    state = status.state.name if status is not None else "UNKNOWN"
    known: dict[str, Any] = (
        results.to_dict() if results is not None else {"state": state, "results": {}, "metadata": {}}
    )
    return TransloadRunFacet(
        handle=handle, state=known["state"], results=plain(known["results"]), metadata=plain(known["metadata"])
    )
