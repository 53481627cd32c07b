"""Keep scripted jobs in a folder.

Every change is one atomic step, so that any number of processes may look.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from transload.schedulers.folder.home import make_private, state_home

ENV_DIR: Final = "TRANSLOAD_SCRIPTED_DIR"
"""Environment variable with the folder of the scripted scheduler.

By default it is below ``TRANSLOAD_HOME``.
"""


def default_folder() -> str:
    """Return the folder that the environment names."""
    return os.environ.get(ENV_DIR) or f"{state_home()}/scripted"


class Folder:
    """Reads and writes a folder of scripted jobs.

    Args:
        root: the folder, which is made when it is first written to.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._records: dict[str, dict[str, Any]] = {}
        self._times: dict[str, float] = {}

    def _app(self, app_id: str) -> Path:
        return self.root / "apps" / quote(app_id, safe="")

    def add(self, app_id: str, record: dict[str, Any]) -> bool:
        """Add a job, and return False if a job with that id exists already."""
        target = self._app(app_id)
        make_private(target.parent)
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=self.root))
        (aside / "record.json").write_text(json.dumps(record), encoding="utf-8")
        try:
            # the name is taken atomically: a folder that is not empty is not replaced
            os.rename(aside, target)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            return False
        return True

    def record(self, app_id: str) -> dict[str, Any] | None:
        """Return the record of a job, or None if there is none."""
        path = self._app(app_id)
        known = self._records.get(app_id)
        if known is not None and path.is_dir():
            return known
        self._records.pop(app_id, None)
        try:
            record: dict[str, Any] = json.loads((path / "record.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        self._records[app_id] = record
        return record

    def app_ids(self) -> list[str]:
        """Return the ids of all jobs in the folder."""
        try:
            return sorted(unquote(name) for name in os.listdir(self.root / "apps"))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, app_id: str) -> None:
        """Remove a job."""
        self._records.pop(app_id, None)
        aside = (
            Path(tempfile.mkdtemp(prefix=".old-", dir=self.root))
            if self._app(app_id).exists()
            else None
        )
        if aside is not None:
            try:
                os.rename(self._app(app_id), aside)
            except OSError:
                pass  # somebody else took it away
            shutil.rmtree(aside, ignore_errors=True)

    def remember(self, app_id: str) -> None:
        """Keep the record that an id was submitted."""
        self._touch(self.root / "records" / quote(app_id, safe=""))

    def forget(self, app_id: str) -> None:
        """Remove the record that an id was submitted."""
        (self.root / "records" / quote(app_id, safe="")).unlink(missing_ok=True)

    def remembered(self, app_id: str) -> bool:
        """Tell whether an id was ever submitted."""
        return (self.root / "records" / quote(app_id, safe="")).exists()

    def remembered_ids(self) -> list[str]:
        """Return the ids of which a record is kept that they were submitted."""
        try:
            return sorted(unquote(name) for name in os.listdir(self.root / "records"))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def mark(self, name: str, app_id: str | None = None) -> None:
        """Leave a mark with the present time, of a job or of the whole folder.

        The first one counts.
        """
        folder = self.root if app_id is None else self._app(app_id)
        if app_id is None or folder.is_dir():
            self._touch(folder / f"mark-{quote(name, safe='')}")

    def unmark(self, name: str) -> None:
        """Remove a mark of the whole folder."""
        path = self.root / f"mark-{quote(name, safe='')}"
        self._times.pop(str(path), None)
        path.unlink(missing_ok=True)

    def marks(self, app_id: str) -> dict[str, float]:
        """Return the time of each mark of a job and of the folder, in seconds since the epoch."""
        found = {}
        for folder in (self.root, self._app(app_id)):
            try:
                names = os.listdir(folder)
            except OSError:
                continue
            for name in names:
                if name.startswith("mark-"):
                    found[unquote(name[5:])] = self._time(folder / name)
        return found

    def marked(self, name: str) -> bool:
        """Tell whether the folder has a mark."""
        return (self.root / f"mark-{quote(name, safe='')}").exists()

    def count(self, name: str) -> int:
        """Return how often this was called with ``name`` before, by any process."""
        path = self.root / "counters" / quote(name, safe="")
        make_private(path.parent)
        # a file that grows by a byte is a counter that needs no lock
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, b".")
            return os.fstat(descriptor).st_size - 1
        finally:
            os.close(descriptor)

    def log(self, **values: object) -> None:
        """Add a line to the log of calls."""
        make_private(self.root)
        text = json.dumps({"time": time.time(), "pid": os.getpid(), **values}) + "\n"
        descriptor = os.open(
            self.root / "calls.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def calls(self) -> list[dict[str, Any]]:
        """Return the log of calls."""
        try:
            text = (self.root / "calls.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def _time(self, path: Path) -> float:
        known = self._times.get(str(path))
        if known is None:
            try:
                known = float(path.read_text(encoding="ascii"))
            except (OSError, ValueError):
                return time.time()
            self._times[str(path)] = known
        return known

    @staticmethod
    def _touch(path: Path) -> None:
        make_private(path.parent)
        if path.exists():
            return
        aside = path.with_name(f".{os.getpid()}-{time.monotonic_ns()}")
        aside.write_text(repr(time.time()), encoding="ascii")
        try:
            os.link(aside, path)
        except FileExistsError:
            pass
        finally:
            aside.unlink()
