"""Collect the results, metadata and artifacts of a job as one value."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SchedulerUnavailable, TransloadError
from transload.runtime import aside_name
from transload.runtime.tracking import (
    ResultsGone,
    TrackingError,
    given_base,
    open_store,
    read_bodies,
    read_curves,
)
from transload.runtime.tracking.format import told_as_tracking_error
from transload.runtime.tracking.names import OUTPUTS, decode_name, natural
from transload.runtime.tracking.stores import LocalStore
from transload.runtime.untrusted import RefusedFile
from transload.specs import AppState, SpecError, make_app_handle, masked_url, parse_app_handle
from transload.specs.checks import closest
from transload.specs.serialization import SCHEMA, load, reading, to_value
from transload.specs.text import named

if TYPE_CHECKING:
    from transload.runtime.tracking import Store
    from transload.runtime.tracking.format import Body
    from transload.schedulers.api import AppDescription, SchedulerBase
    from transload.specs import AppStatus, ReplicaStatus

__all__ = ["collect_results", "collect_steps"]


MAX_OUTPUTS: Final = 1000
"""The largest number of a job's files that are listed among its artifacts."""

_CLOCK_S: Final = 0.02  # a file's time may be this much behind the clock
_NAMED: Final = 10  # files that were not read, in messages
_SHOWN: Final = 20  # keys, in messages
_NEWEST: Final = 3
_NOT_STARTED: Final = (AppState.UNSUBMITTED, AppState.SUBMITTED, AppState.PENDING)

ResultValue = int | float | str


class NoSuchResult(TransloadError, LookupError):
    """A job has not reported a requested result, or has reported it under several keys."""


@dataclass
class AppResults:
    """The results of a job.

    Args:
        handle: the job.
        state: its state when the results were read. Only the state says whether it succeeded, not
            the existence of results.
        results: key → name → value, in the public result format.
        metadata: its metadata in the configured trackers.
        artifacts: name → ``{"path": …, "metadata": …}``, for files in the job's output folder and
            artifacts in the configured trackers.
        looked_in: the places of results, which were read even if there are none.
        first: the default key of replica 0 of the first role.
        collisions: key → replicas (``role/number``) that wrote it, if there are several. The
            results are those of the last one.
        refused: unreadable files by their names below the job's folder, each with the reason. The
            other fields have all readable results.
    """

    handle: str
    state: AppState
    results: dict[str, dict[str, ResultValue]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, dict[str, Any]] = field(default_factory=dict)
    looked_in: list[str] = field(default_factory=list)
    first: str = "0"
    collisions: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def value(self, name: str, key: str | int | None = None) -> ResultValue:
        """Return the result with a name.

        Args:
            name: name of the result, for example ``accuracy``.
            key: its key. It may be left out if ``final``, replica 0 of the first role, or only one
                key has the name.

        Raises:
            NoSuchResult: if no key or several keys have it. The message has the keys or the places.
        """
        return self.results[self.key_of(name, key)][name]

    def key_of(self, name: str, key: str | int | None = None) -> str:
        """Return the key of the result that `value` returns, with the same arguments and errors."""
        keys = list(self.results) if key is None else [str(key)]
        found = [each for each in keys if name in self.results.get(each, {})]
        for each in ("final", self.first):
            if each in found:
                return each
        if len(found) == 1:
            return found[0]
        if found:
            raise NoSuchResult(
                f"result {name!r} was reported under {len(found)} keys ({', '.join(found)}): give "
                "one"
            )
        missing = f"no result {name!r}"
        if key is not None:
            missing = f"{missing} under key {str(key)!r}"
        raise NoSuchResult(f"{missing}: {self.explain()}{self._how_to_write(name)}")

    def _how_to_write(self, name: str) -> str:
        """Return the name that was probably meant. If nothing was written, say what to write."""
        if self.results:
            names = sorted({each for values in self.results.values() for each in values})
            meant = closest(name, [each for each in names if each != name])
            if meant is None:
                return ""
            return f"; did you mean {meant!r}?"
        written = f"write it by transload.runtime.report({name}=…), or by transload put {name}=…"
        if name in self.metadata:
            return f"; {name!r} is among the metadata in a tracker, which are no results: {written}"
        return f"; {written}"

    def explain(self) -> str:
        """Return one line with the results, or with the places where they were searched."""
        where = (
            ", ".join(self.looked_in)
            or "nowhere: no tracker base is visible inside the job, give tracker_base"
        )
        left_out = "".join(f"; not read: {line}" for line in self.refusals())
        if not self.results:
            return f"{self.handle} ({self.state}) reported nothing; looked in {where}{left_out}"
        shown = "; ".join(
            f"{key}: {', '.join(values) or 'nothing'}"
            for key, values in list(self.results.items())[:10]
        )
        return f"{self.handle} reported {shown} (in {where}){left_out}"

    def refusals(self) -> list[str]:
        """Return ``name: reason`` for each unreadable file, or for the first ones and a number."""
        lines = [f"{name}: {reason}" for name, reason in list(self.refused.items())[:_NAMED]]
        more = len(self.refused) - len(lines)
        if more:
            lines.append(f"and {more:,} more files")
        return lines

    def lines(self, emphasise: Callable[[str], str] = str) -> list[str]:
        """Return a readable line for each key with results, and how many keys are left out.

        Of many keys, the first replicas are shown, and the last of all others. Of epochs these are
        the latest, since the log has shown the others.

        Args:
            emphasise: formats a key, for example in bold.
        """
        lines = []
        for key in self._keys_to_show():
            values = self.results[key]
            shown = "  ".join(
                f"{_on_one_line(name)}={_on_one_line(value)}" for name, value in values.items()
            )
            lines.append(f"result {emphasise(_on_one_line(key))}: {shown}")
        more = len(self.results) - len(lines)
        if more:
            lines.append(f"and {more} more: `transload results {self.handle}`")
        return lines

    def _keys_to_show(self) -> list[str]:
        replicas = [key for key in self.results if key.isdecimal()]
        others = [key for key in self.results if not key.isdecimal()]
        return replicas[:_SHOWN] + others[-_NEWEST:]

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values with a ``schema``, and ``refused`` if not empty."""
        values = {"schema": SCHEMA, **to_value(self)}
        if not self.refused:
            del values["refused"]
        return values

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the results as JSON text (NaN and Infinity as Python's json writes them)."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False, default=str)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> AppResults:
        """Create results from the values of `to_dict`, and ignore unknown fields.

        Raises:
            SpecError: if it is not such a value, or has a newer schema.
        """
        with reading("AppResults", data) as values:
            names = AppResults.__dataclass_fields__
            known = {name: values[name] for name in names if name in values}
            known["state"] = AppState.__members__.get(values["state"], AppState.UNKNOWN)
            return AppResults(**known)

    @staticmethod
    def from_json(text: str | bytes) -> AppResults:
        """Create results from a text of `to_json`.

        Raises:
            SpecError: if it is not JSON, or not in the form of results.
        """
        return AppResults.from_dict(load(text, "AppResults"))


def _on_one_line(value: object) -> str:
    """Return a result as text, with floats of six digits, and texts on one line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(value))


def collect_results(
    app_handle: str,
    backend: SchedulerBase,
    description: AppDescription,
    trackers: Mapping[str, str | None],
    *,
    shared: bool = False,
    outputs: bool = True,
) -> AppResults:
    """Return the results of a job from its tracker base and from trackers (name → configuration).

    With ``shared``, results in its given tracker base that have no run are included. Without
    ``outputs``, its files are not looked at.

    Raises:
        ResultsGone: if there is nothing any more that could have results.
        SchedulerUnavailable: if the scheduler does not know just now where they are.
        TrackingError: if one of them cannot be read. The message names it.
        ConfigError: if a tracker cannot be created from its configuration.
    """
    # the job itself uses the session that submitted it, which the given handle may not have
    parsed = parse_app_handle(app_handle)
    run_id = make_app_handle(
        parsed.scheduler_backend, description.session or parsed.session_name, parsed.app_id
    )
    results = AppResults(run_id, description.status.state)
    if description.app is not None and len(description.app.roles) > 1:
        results.first = f"{description.app.roles[0].name}/0"
    own = backend.results_store(parsed.app_id)
    found = _read_base(results, own, description.tracker_base, run_id, shared=shared)
    store = _or_base(own, description)
    old = _older_than_attempts(store, backend, description.status)
    _add_results(
        results,
        {key: body for key, body in found.items() if body.writer or key not in old},
        description,
    )
    if outputs:
        _add_outputs(results, store)
    if outputs and not results.results and not results.artifacts:
        _check_there(backend, description, own)
    if not trackers:
        return results
    from transload.tracker import build_trackers

    for name, tracker in zip(trackers, build_trackers(trackers), strict=True):
        results.looked_in.append(f"tracker {name}")
        with told_as_tracking_error(f"tracker {name!r}:"):
            results.metadata.update(tracker.metadata(run_id))
            artifacts = list(tracker.artifacts(run_id).values())
        for artifact in artifacts:
            results.artifacts[artifact.name] = {
                "path": artifact.path,
                "metadata": dict(artifact.metadata or {}),
            }
    return results


def _read_base(
    results: AppResults, own: Store | None, folder: str | None, run_id: str, *, shared: bool
) -> dict[str, Body]:
    """Return the results in a job's own folder and in its given base, by key."""

    def read(place: str) -> Mapping[str, Body]:
        results.looked_in.insert(0, masked_url(place))
        with told_as_tracking_error(f"tracker base {masked_url(place)}:"):
            return read_bodies(own or open_store(place), results.refused)

    if own is not None:
        return dict(read(own.base)) if own.base else {}
    if not folder:
        return {}
    found: dict[str, Body] = {}
    given = given_base(folder)
    if given:
        wanted = (run_id, None) if shared else (run_id,)
        found = {key: body for key, body in read(given).items() if body.run in wanted}
    if folder != given:
        found.update(read(folder))  # results in the job's own folder take precedence
    return found


def _older_than_attempts(
    store: Store | None, backend: SchedulerBase, status: AppStatus
) -> set[str]:
    """Return the keys in a job's own folder that are older than the latest attempt.

    For files without a writer, their time decides, if jobs and this process share a clock.
    """
    replicas = [each for role in status.roles for each in role.replicas]
    starts = [start for start in map(_start_after_failure, replicas) if start is not None]
    is_known = replicas and len(starts) == len(replicas) and backend.reach == "host"
    if not is_known or not isinstance(store, LocalStore):
        return set()
    first = min(starts) - _CLOCK_S
    try:
        with os.scandir(store.base) as listing:
            written = {entry.name: entry.stat(follow_symlinks=False).st_mtime for entry in listing}
    except OSError:
        return set()
    return {decode_name(name, ".json") or "" for name, at in written.items() if at < first}


def _start_after_failure(replica: ReplicaStatus) -> float | None:
    """Return when a replica was first started after its latest failure.

    After an interruption it goes on with the results that it has reported.

    Returns:
        The time, or None if there is no such failure or that is not known any more.
    """
    if not replica.restarts:
        return None
    start = replica.start_time
    for attempt in reversed(replica.earlier):
        if attempt.cause in (None, "failed"):
            return start
        start = attempt.start_time
    return start if not replica.interruptions else None


def _add_results(
    results: AppResults, found: Mapping[str, Body], description: AppDescription
) -> None:
    """Add the results of each replica's last attempt, and those without a writer."""
    roles = description.status.roles
    again = [(role.role, each) for role in roles for each in role.replicas if each.restarts]
    latest = {(role, each.id): each.latest_attempt for role, each in again}
    for key in sorted(found, key=natural):
        body = found[key]
        writer = body.writer or {}
        attempt = writer.get("attempt")
        replica = writer.get("replica")  # a job may have written anything
        known = None
        if isinstance(replica, int):
            known = latest.get((str(writer.get("role")), replica))
        if known is not None and isinstance(attempt, int) and attempt < known:
            continue
        results.results[key] = body.results
        if body.replaced:
            last = f"{writer.get('role')}/{writer.get('replica')}"
            results.collisions[key] = [*body.replaced, last]


def collect_steps(
    backend: SchedulerBase, description: AppDescription
) -> dict[str, dict[str, dict[float, float]]]:
    """Return key → name → step → value of a job, with the errors of `Job.steps`."""
    own = backend.results_store(description.app_id)
    store = _or_base(own, description)
    refused: dict[str, str] = {}
    if store is None:
        return {}
    with told_as_tracking_error("steps"):
        curves = read_curves(store, refused=refused)
    if not curves:
        _check_there(backend, description, own)
    for name, reason in refused.items():
        _warn(f"{store.where(name)}: {reason}")
    return curves


def fetch_outputs(
    backend: SchedulerBase,
    description: AppDescription,
    pattern: str,
    folder: str,
    *,
    replace: bool = True,
    refuse: Callable[[str], object] | None = None,
) -> list[str]:
    """Copy the files of a job, with the arguments and errors of `Job.fetch`.

    ``refuse`` gets a line for each file that is left out. By default they are logged.
    """
    own = backend.results_store(description.app_id)
    store = _or_base(own, description)
    if store is None:
        return []
    what = f"copying files of {description.app_id}"
    files = Files(store, folder, OUTPUTS)
    copied = _copy_files(files, what, pattern, replace=replace, refuse=refuse or _warn)
    if not copied:
        _check_there(backend, description, own)
    return copied


def fetch_checkpoints(
    backend: SchedulerBase,
    app_id: str,
    pattern: str,
    folder: str,
    *,
    replace: bool = True,
    refuse: Callable[[str], object] | None = None,
) -> list[str]:
    """Copy the checkpoints of a job. Those of several roles go into a folder for each role.

    Args:
        backend: the scheduler that keeps them.
        app_id: the job.
        pattern: which of the files, as in `Job.fetch`.
        folder: where to.
        replace: whether files of the same names are replaced.
        refuse: gets a line for each file that is left out. By default they are logged.

    Returns:
        The new paths.

    Raises:
        SpecError: if it has no checkpoints, they cannot be read from here, or a file is there
            already that must not be replaced.
        TrackingError: if they cannot be read.
    """
    places = backend.checkpoints(app_id)
    if not places:
        raise SpecError(f"{app_id} did not ask for checkpoints (run it with --checkpoints)")
    copied: list[str] = []
    for place in places:
        store = backend.checkpoint_store(app_id, place.role)
        if store is None:
            raise SpecError(
                f"the checkpoints of role {place.role!r} cannot be read from here: they are in "
                f"{place.path} of scheduler {backend.name!r}"
            )
        target = os.path.join(folder, place.role) if len(places) > 1 else folder
        files = Files(store, target)
        what = f"copying checkpoints of {app_id}"
        copied += _copy_files(files, what, pattern, replace=replace, refuse=refuse or _warn)
    return copied


@dataclass(frozen=True)
class Files:
    """Files of a store that are to be copied to a folder.

    Args:
        store: where they are.
        target: the folder.
        start: the folder of the store that they are in, or "" for all of it.
    """

    store: Store
    target: str
    start: str = ""


def _copy_files(
    files: Files, what: str, pattern: str, *, replace: bool, refuse: Callable[[str], object]
) -> list[str]:
    """Copy the files whose names match, and return the new paths."""
    from transload.runtime.progress_lines import progress

    store = files.store
    copied = []
    with told_as_tracking_error("outputs"), progress(what) as step:
        paths, refused = store.walk(files.start)
        names = {path: path.partition("/")[2] if files.start else path for path in paths}
        wanted = named(names.values(), pattern)
        targets = {}
        for path, name in names.items():
            if name not in wanted:
                continue
            if stays_below(name):
                targets[path] = os.path.join(files.target, name)
            else:
                refused[path] = "its name leads out of its folder"
        if not replace:
            _refuse_existing(list(targets.values()))
        for path, target in targets.items():
            try:
                _copy(store, path, target, step)
            except RefusedFile as exc:
                refused[path] = exc.reason
            else:
                copied.append(target)
    for path, reason in refused.items():
        refuse(f"{path}: {reason}")
    return copied


def _refuse_existing(targets: list[str]) -> None:
    """Refuse to overwrite existing files."""
    there = [target for target in targets if os.path.lexists(target)]
    if not there:
        return
    more = f" and {len(there) - 1} more" if len(there) > 1 else ""
    raise SpecError(
        f"{there[0]}{more}: there already; --force replaces files, -o FOLDER copies elsewhere"
    )


def stays_below(name: str) -> bool:
    """Tell whether a relative path stays below its folder."""
    return not {"", ".", ".."} & set(name.split("/"))


def _copy(store: Store, path: str, target: str, step: Callable[[int], object]) -> None:
    """Copy a file. The target gets its name only when it is complete."""
    parent = os.path.dirname(target) or "."
    os.makedirs(parent, exist_ok=True)
    aside = os.path.join(parent, aside_name())
    try:
        store.fetch(path, aside, step)
        os.replace(aside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def _warn(line: str) -> None:
    logging.getLogger("transload.runner").warning("not read: %s", line)


def own_store(backend: SchedulerBase, description: AppDescription) -> Store | None:
    """Return the store of a job's own folder, or None if it has none."""
    return _or_base(backend.results_store(description.app_id), description)


def _or_base(own: Store | None, description: AppDescription) -> Store | None:
    """Return the store that the scheduler keeps of a job, else that of its tracker base, if any."""
    if own is None and description.tracker_base:
        return open_store(description.tracker_base)
    return own


def _check_there(backend: SchedulerBase, description: AppDescription, own: Store | None) -> None:
    """Raise ResultsGone if a job that reported nothing may have lost what it reported.

    A scheduler that keeps results itself raises it in `SchedulerBase.results_store`. Here is what
    all have in common: a submit makes the job's folder, so one that is not there was removed.
    """
    status = description.status
    if status.state in _NOT_STARTED:
        return
    if description.app is None and not description.tracker_base:
        problem = status.msg or "its record cannot be read"
        text = f"the results of {description.app_id} cannot be read: {problem}"
        if status.state is AppState.UNKNOWN:  # it may be known again
            raise SchedulerUnavailable(text)
        raise ResultsGone(text)
    store = _or_base(own, description)
    is_made = own is not None or _is_made_by_submit(backend, description)
    if store is not None and is_made and store.is_missing():
        raise ResultsGone(
            f"the results of {description.app_id} cannot be read any more: {store.base} is not "
            "there, or not on a disk of this machine"
        )


def _is_made_by_submit(backend: SchedulerBase, description: AppDescription) -> bool:
    """Tell whether the folder of a job's results was there before the job started."""
    if backend.shares_disk:
        return True
    opts = backend.options.of_record(description.cfg)
    return description.tracker_base == backend.results_folder(description.app_id, opts)


def _add_outputs(results: AppResults, store: Store | None) -> None:
    """Add the files of a job as artifacts, by their names below its output folder."""
    if store is None:
        return
    try:
        with told_as_tracking_error("outputs"):
            paths, refused = store.walk(OUTPUTS)
    except TrackingError as exc:  # the results themselves are readable
        results.artifacts[f"({OUTPUTS})"] = {"path": "", "metadata": {"problem": str(exc)}}
        return
    for path in paths[:MAX_OUTPUTS]:
        results.artifacts[path.partition("/")[2]] = {"path": store.where(path), "metadata": {}}
    results.refused.update(refused)
