"""What a task's job made, as Airflow's assets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import BaseAsset

from transload.pipelines import json_safe

if TYPE_CHECKING:
    from transload.runner import AppResults

_logger = logging.getLogger(__name__)


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
        _logger.warning("assets: %s cannot be reported: %s", what, exc)


def asset_uri(path: str) -> str:
    """Return the URI of an artifact, which is a URL itself, or a path with ``file://``."""
    if "://" in path:
        return path
    if path.startswith("/"):
        return f"file://{path}"
    return f"file:///{path}"
