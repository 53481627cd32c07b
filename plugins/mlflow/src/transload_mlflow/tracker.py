"""The tracker ``MlflowTracker``, which keeps the runs of transload as runs of MLflow."""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from transload.errors import ConfigError
from transload.tracker import (
    ENV_TRANSLOAD_CHECKPOINT_NAME,
    ENV_TRANSLOAD_JOB_ID,
    ENV_TRANSLOAD_PARENT_RUN_ID,
    Lineage,
    TrackerArtifact,
    TrackerBase,
    TrackerSource,
    TrackingError,
    check_run_id,
    check_text,
    check_values,
    trace_lineage,
)
from transload_mlflow.convert import (
    ENDED,
    JOB,
    PARENT,
    RUN_ID,
    RUN_KEY,
    SHARED,
    LastEnd,
    Sharing,
    digest,
    printable,
    read,
    record_tag,
    shown_metric,
    shown_results,
    shown_tag,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

__all__ = ["MlflowTracker", "create"]

DEFAULT_EXPERIMENT: Final = "transload"
_TAGS_A_CALL: Final = 100
_METRICS_A_CALL: Final = 900  # with the tags a thousand
_PARENT_TAG: Final = "mlflow.parentRunId"
_RUNS_A_PAGE: Final = 1000
_SCHEMES: Final = (
    "sqlite:",
    "mysql",
    "postgresql",
    "mssql",
    "http:",
    "https:",
    "file:",
    "databricks",
    "uc:",
)
_log = logging.getLogger("transload_mlflow")

Status = Literal["FINISHED", "FAILED", "KILLED"]
"""State of a job → MLflow's status of an ended run."""


class MlflowTracker(TrackerBase):
    """Keeps runs in an experiment of MLflow. Creating a tracker connects to no server.

    Args:
        tracking_uri: a database, a server or a folder, in MLflow's form. None uses
            ``MLFLOW_TRACKING_URI``.
        experiment_name: the experiment. The first write creates it if it does not exist. None uses
            ``MLFLOW_EXPERIMENT_NAME``, else ``transload``.
    """

    def __init__(self, tracking_uri: str | None = None, experiment_name: str | None = None) -> None:
        self.tracking_uri = tracking_uri
        self.experiment_name = (
            experiment_name or os.environ.get("MLFLOW_EXPERIMENT_NAME") or DEFAULT_EXPERIMENT
        )
        self._lock = threading.RLock()
        self._experiment_id: str | None = None
        self._runs: dict[str, str] = {}
        self._time = 0

    @functools.cached_property
    def client(self) -> MlflowClient:
        """MLflow's own client, for operations that transload does not have."""
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.tracking_uri)

    def _experiment(self) -> str | None:
        """Return the id of the experiment, or None if it does not exist yet."""
        with self._lock:
            if self._experiment_id is None:
                found = self.client.get_experiment_by_name(self.experiment_name)
                self._experiment_id = None if found is None else str(found.experiment_id)
            return self._experiment_id

    def _experiment_to_write(self) -> str:
        """Return the id of the experiment, and create it if it is missing."""
        from mlflow.exceptions import MlflowException

        found = self._experiment()
        if found is not None:
            return found
        try:
            return str(self.client.create_experiment(self.experiment_name))
        except MlflowException:
            # another process may have created it meanwhile. If not, this is a real error.
            found = self._experiment()
            if found is None:
                raise
            return found

    def _search(self, condition: str) -> list[Run]:
        """Return all MLflow runs of the experiment that meet a condition."""
        experiment = self._experiment()
        if experiment is None:
            return []
        found: list[Run] = []
        token = None
        while True:
            page = self.client.search_runs(
                [experiment], condition, max_results=_RUNS_A_PAGE, page_token=token
            )
            found.extend(page)
            token = page.token
            if not token:
                return found

    def _runs_of(self, run_id: str) -> list[Run]:
        """Return the MLflow runs of a run. There are several if processes created it together.

        A job that goes on with the checkpoints of another one goes on in its MLflow run.
        """
        key = digest(check_run_id(run_id))
        found = self._search(f"tags.`{RUN_KEY}` = '{key}'")
        if not found:
            found = self._search(f"tags.`{JOB}{key}` = '1'")
        return _oldest_first(found)

    def _run_to_write(self, run_id: str, sharing: Sharing | None = None) -> str:
        """Return the id of the MLflow run of a run, and create it if it is missing.

        Args:
            run_id: the run.
            sharing: which jobs it is one run with. With None the environment says so, if it is the
                job of this process.
        """
        with self._lock:
            if run_id not in self._runs or sharing is not None:
                if sharing is None:
                    sharing = _own_sharing(run_id)
                self._runs[run_id] = self._find_or_create(run_id, sharing)
            return self._runs[run_id]

    def _find_or_create(self, run_id: str, sharing: Sharing | None) -> str:
        runs = self._runs_of(run_id)
        if not runs and sharing is not None:
            runs = _oldest_first(self._search(f"tags.`{SHARED}` = '{sharing.key}'"))
        if not runs:
            return self._create_run(run_id, sharing)
        if sharing is not None:
            self._join(runs[0], run_id, sharing)
        return str(runs[0].info.run_id)

    def _join(self, run: Run, run_id: str, sharing: Sharing) -> None:
        """Make an MLflow run that of a job, too. It runs again if another job has ended in it."""
        tags = {SHARED: sharing.key}
        if run.data.tags.get(RUN_KEY) != digest(run_id):
            tags[f"{JOB}{digest(run_id)}"] = "1"
        missing = {name: text for name, text in tags.items() if name not in run.data.tags}
        if missing:
            self._write(run.info.run_id, missing)
        last = LastEnd.read(run.data.tags)
        if last is not None and last.job != digest(run_id) and run_id == _own_job():
            self.client.update_run(run.info.run_id, status="RUNNING")

    def _create_run(self, run_id: str, sharing: Sharing | None = None) -> str:
        """Create the MLflow run of a run. Return its id, or that of a process that was first."""
        tags = {RUN_KEY: digest(run_id), RUN_ID: json.dumps(run_id)}
        if sharing is not None:
            tags[SHARED] = sharing.key
        made = self.client.create_run(
            self._experiment_to_write(), tags=tags, run_name=printable(run_id)[:250]
        )
        first = self._runs_of(run_id)[0]
        if first.info.run_id != made.info.run_id:
            self.client.delete_run(made.info.run_id)
        return str(first.info.run_id)

    def _write(
        self, uuid: str, tags: Mapping[str, str], points: Sequence[tuple[str, float, int]] = ()
    ) -> None:
        """Write tags, and points of metrics (name, value, step).

        MLflow shows the last written point of a metric as its latest value.
        """
        from mlflow.entities import Metric, RunTag

        # each point gets its own millisecond, the last one that of now, so that their order is kept
        first_ms = int(time.time() * 1000) - len(points) + 1
        metrics = []
        for number, (name, value, step) in enumerate(points):
            metrics.append(Metric(name, value, first_ms + number, step))
        items = [RunTag(name, value) for name, value in tags.items()]
        # One call is one transaction. Several calls are made only if one cannot take everything.
        while items or metrics:
            self.client.log_batch(
                uuid, metrics=metrics[:_METRICS_A_CALL], tags=items[:_TAGS_A_CALL]
            )
            items = items[_TAGS_A_CALL:]
            metrics = metrics[_METRICS_A_CALL:]

    def _next_time(self) -> int:
        """Return the time now in nanoseconds, which is later than every time before it."""
        with self._lock:
            self._time = max(time.time_ns(), self._time + 1)
            return self._time

    def _read(self, run_id: str, kind: str) -> list[dict[str, Any]]:
        """Return the records of a kind, oldest first."""
        records = []
        for run in self._runs_of(run_id):
            records += read(run.data.tags, kind)
        return sorted(records, key=lambda record: int(record["t"]))

    def add_metadata(self, run_id: str, /, **kwargs: object) -> None:
        """Record metadata of a run as tags, and numbers as metrics too."""
        check_run_id(run_id)
        values = check_values(kwargs)
        now = self._next_time()
        tags: dict[str, str] = {}
        for name, value in values.items():
            tag, text = record_tag("metadata", name, {"t": now, "name": name, "value": value})
            tags[tag] = text
        points = []
        for name, value in values.items():
            tags.update(_shown_tags(name, value))
            number = shown_metric(name, value)
            if number is not None:
                points.append((name, number, 0))
        self._write(self._run_to_write(run_id), tags, points)

    def metadata(self, run_id: str) -> dict[str, object]:
        """Return the metadata of a run by name, or {} for an unknown run."""
        return {record["name"]: record["value"] for record in self._read(run_id, "metadata")}

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record the name and the path of a run's artifact. The file is not copied."""
        check_run_id(run_id)
        check_text(name, "name")
        path = check_text(os.fspath(path), "path")
        values = None
        if metadata is not None:
            values = check_values(metadata, f"metadata of artifact {name!r}")
        record = {"t": self._next_time(), "name": name, "path": path, "metadata": values}
        tags = dict([record_tag("artifact", name, record)])
        tags.update(_shown_tags(f"artifact.{name}", path))
        self._write(self._run_to_write(run_id), tags)

    def artifacts(self, run_id: str) -> dict[str, TrackerArtifact]:
        """Return the artifacts of a run by name, or {} for an unknown run."""
        records = self._read(run_id, "artifact")
        return {r["name"]: TrackerArtifact(r["name"], r["path"], r["metadata"]) for r in records}

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run came from another one. MLflow shows it nested in its parent run."""
        check_run_id(run_id)
        tags = self._source_tags(source_id, artifact_name)
        if not artifact_name and source_id == os.environ.get(ENV_TRANSLOAD_PARENT_RUN_ID):
            tags[_PARENT_TAG] = self._parent(source_id)
        self._write(self._run_to_write(run_id), tags)

    def _source_tags(self, source_id: str, artifact_name: str | None = None) -> dict[str, str]:
        check_run_id(source_id, "source_id")
        name = check_text(artifact_name, "artifact_name") if artifact_name else None
        record = {"t": self._next_time(), "run_id": source_id, "artifact_name": name}
        mark = digest(source_id, name or "")
        tags = dict([record_tag("source", mark, record)])
        tags[f"{PARENT}{digest(source_id)}"] = "1"
        text = source_id if name is None else f"{source_id} ({name})"
        tags.update(_shown_tags(f"source.{mark[:6]}", text))
        return tags

    def _parent(self, run_id: str) -> str:
        """Return the id of the MLflow run in which to nest a run.

        The run of a search is not a job, so it is marked as finished with each of its trials.
        """
        uuid = self._run_to_write(run_id)
        if "://" not in run_id and self.client.get_run(uuid).info.status in ("RUNNING", "FINISHED"):
            self.client.set_terminated(uuid, "FINISHED")
        return uuid

    def sources(self, run_id: str, artifact_name: str | None = None) -> list[TrackerSource]:
        """Return the direct sources of a run.

        With ``artifact_name``, only those of that name count.
        """
        found = {(r["run_id"], r["artifact_name"]): None for r in self._read(run_id, "source")}
        return [
            TrackerSource(source, name)
            for source, name in found
            if not artifact_name or name == artifact_name
        ]

    def lineage(self, run_id: str) -> Lineage:
        """Return all runs from which a run came or that came from it, with their artifacts."""
        return trace_lineage(self, check_run_id(run_id))

    def run_ids(self, parent_run_id: str | None = None, **kwargs: str) -> list[str]:
        """Return the sorted ids of all runs of the experiment that transload has made.

        Args:
            parent_run_id: only runs that have this one as a direct source, which MLflow searches.
            kwargs: other filters, which are not supported.
        """
        if kwargs:
            raise TrackingError(
                f"run_ids: unknown filter {', '.join(kwargs)}; known: parent_run_id"
            )
        condition = f"tags.`{RUN_KEY}` != ''"
        if parent_run_id:
            parent = digest(check_run_id(parent_run_id, "parent_run_id"))
            condition = f"tags.`{PARENT}{parent}` = '1'"
        tags = [run.data.tags for run in self._search(condition)]
        return sorted({json.loads(each[RUN_ID]) for each in tags if RUN_ID in each})

    def finish(
        self,
        run_id: str,
        status: Status = "FINISHED",
        results: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
        usage: Mapping[str, float | None] = MappingProxyType({}),
        *,
        steps: Mapping[str, Mapping[str, Mapping[float, float]]] = MappingProxyType({}),
        first: str = "0",
        parent: str | None = None,
        sharing: Sharing | None = None,
        asked: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Set the state that MLflow shows for a run. A run that has already ended is not changed.

        A run that several jobs share ends with each of them, in the order in which they were
        submitted.

        Args:
            run_id: the run, which is created if it is unknown.
            status: the state.
            results: the job's results, as key → name → value. Numbers become metrics, other values
                become tags. Names start with the key, except for the keys ``final`` and ``first``.
            usage: its resource usage. Each number becomes a system metric, ``system/<name>``.
            steps: its results with steps, as key → name → step → value. They become the points of a
                metric before the last.
            first: the key of replica 0 of the first role.
            parent: the run that launched it. It becomes its source, and MLflow nests the run in it.
            sharing: which jobs it is one run with.
            asked: who asked for the job, by name. Each becomes a tag, ``asked.<name>``.
        """
        shown = shown_results(results, steps, first)
        if shown.refused:
            _log.warning(
                "%s: MLflow does not allow metrics or tags with these names: %s",
                run_id,
                ", ".join(shown.refused),
            )
        used = [(f"system/{name}", value, 0) for name, value in usage.items() if value is not None]
        self._run_to_write(run_id, sharing)
        for run in self._runs_of(run_id):
            if not _can_end(run, run_id, sharing):
                continue
            tags: dict[str, str] = {}
            for name, value in asked.items():
                tags.update(_shown_tags(f"asked.{name}", value))
            tags.update(shown.tags)
            if sharing is not None:
                tags[ENDED] = LastEnd(digest(run_id), sharing.created).text()
            if parent:
                tags.update(self._source_tags(parent))
                tags[_PARENT_TAG] = self._parent(parent)
            self._write(run.info.run_id, tags, [*shown.points, *used])
            self.client.set_terminated(run.info.run_id, status=status)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.tracking_uri, self.experiment_name)

    def __repr__(self) -> str:
        return f"MlflowTracker({self.tracking_uri!r}, {self.experiment_name!r})"


def _oldest_first(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.info.start_time or 0, run.info.run_id))


def _own_job() -> str | None:
    """Return the handle of the job that this process belongs to, or None if there is none."""
    return os.environ.get(ENV_TRANSLOAD_JOB_ID)


def _own_sharing(run_id: str) -> Sharing | None:
    """Return which jobs a run is one with, if it is the job of this process and has checkpoints."""
    name = os.environ.get(ENV_TRANSLOAD_CHECKPOINT_NAME)
    if not name or run_id != _own_job():
        return None
    return Sharing.of(run_id, name)


def _can_end(run: Run, run_id: str, sharing: Sharing | None) -> bool:
    """Tell whether the end of a job is to be written into an MLflow run."""
    last = LastEnd.read(run.data.tags)
    if sharing is None or last is None:
        return bool(run.info.status == "RUNNING")
    return last.is_before(run_id, sharing)


def _shown_tags(name: str, value: object) -> dict[str, str]:
    """Return the tag for people, or {} if no tag can have that name."""
    shown = shown_tag(name, value)
    return {} if shown is None else dict([shown])


def create(config: str | None) -> MlflowTracker:
    """Create the tracker ``mlflow`` from its configuration text.

    Args:
        config: a tracking URI, or a JSON object with ``tracking_uri`` and ``experiment_name``, each
            optional. None uses MLflow's own environment variables.

    Raises:
        ConfigError: if it is neither, or MLflow is not installed.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise ConfigError("the package mlflow is not installed (pip install mlflow)")
    settings: dict[str, Any] = {}
    if config and config.lstrip().startswith("{"):
        try:
            settings = json.loads(config)
        except ValueError as exc:
            raise ConfigError(
                f"the configuration must be a tracking URI or a JSON object: {exc}"
            ) from exc
    elif config:
        settings = {"tracking_uri": config}
    unknown = sorted(settings.keys() - {"tracking_uri", "experiment_name"})
    if unknown:
        raise ConfigError(
            f"unknown setting {', '.join(unknown)}; known: tracking_uri, experiment_name"
        )
    wrong = [name for name, value in settings.items() if not isinstance(value, str) or not value]
    if wrong:
        raise ConfigError(f"{wrong[0]}={settings[wrong[0]]!r}: must be a text")
    uri = settings.get("tracking_uri") or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        raise ConfigError("no tracking_uri is configured; set it, or MLFLOW_TRACKING_URI")
    if not uri.startswith(("/", *_SCHEMES)):
        raise ConfigError(
            f"tracking_uri={uri.partition(':')[0]}:…: must be a database, a server or an absolute path"
        )
    if _is_relative(uri):
        raise ConfigError(
            f"tracking_uri={uri!r}: relative; the job runs in another folder, so give an absolute "
            f"path ({uri.partition(':')[0]}:// and a path that begins with /)"
        )
    return MlflowTracker(uri, settings.get("experiment_name"))


def _is_relative(uri: str) -> bool:
    """Tell whether the file of a URI depends on the working directory.

    Examples are ``sqlite:///x``, ``file:x`` and a database in memory.
    """
    scheme, _, rest = uri.partition(":")
    if scheme == "sqlite":
        # a third slash ends the empty host name, and SQLite's own URIs come after it, too
        return not rest.startswith(("////", "///file:/"))
    if scheme == "file":
        path = rest.removeprefix("//").removeprefix("localhost")
        return not path.startswith("/")
    return False
