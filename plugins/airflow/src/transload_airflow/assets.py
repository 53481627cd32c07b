"""What Airflow's assets are told of an app: its results and artifacts, with the events of the task's outlets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transload_airflow.values import plain

if TYPE_CHECKING:
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
